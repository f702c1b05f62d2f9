"""x W + b on a CPU by oneDNN."""
