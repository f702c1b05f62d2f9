"""One training, from files to a run folder."""
