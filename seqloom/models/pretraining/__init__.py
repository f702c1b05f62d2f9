"""Models that learn from plain text: masked tokens, skip-gram."""
