"""What models are made of; knows nothing of tasks."""
