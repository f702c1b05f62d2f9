"""What makes the same answer sooner, by operation, then CPU, GPU or Triton. Never needed to understand the rest."""
