"""One folder for each task: what it reads, builds, trains and predicts."""
