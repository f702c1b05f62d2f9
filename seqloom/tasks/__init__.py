"""Tasks by shape: what each reads, builds, trains and says."""
