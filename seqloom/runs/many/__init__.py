"""Several trainings: ensembles, cross-validation, parallel jobs."""
