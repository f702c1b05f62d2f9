"""Reports, model cards and scores of a run, written into its folder."""
