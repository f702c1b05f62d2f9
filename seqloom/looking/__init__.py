"""Looking inside a model: what it attends to, its gates and gradients, how far back it remembers, what it costs."""
