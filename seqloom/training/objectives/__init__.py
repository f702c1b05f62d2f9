"""What is trained: a batch in, a loss out."""
