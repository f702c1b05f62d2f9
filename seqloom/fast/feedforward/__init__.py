"""The activation and dropout of a feed-forward network in one kernel."""
