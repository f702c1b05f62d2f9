"""Reading files of examples and turning them into batches of numbers."""
