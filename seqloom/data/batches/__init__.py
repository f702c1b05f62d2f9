"""Examples to batches: padding, bucketing by length, chunks."""
