"""Recipes: a recorded dataset, model and training, followed and scored again."""
