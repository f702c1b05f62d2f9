"""Looking inside a model: what it attends to, what it costs."""
