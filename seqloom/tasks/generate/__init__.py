"""Language models: prefix → continuation."""
