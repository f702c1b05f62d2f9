"""What stands in a run folder: checks of its files, the log of metrics, the environment, ensembles."""
