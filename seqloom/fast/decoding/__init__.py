"""One decoding step with few operations, for a CPU."""
