"""One decoding step with few operations."""
