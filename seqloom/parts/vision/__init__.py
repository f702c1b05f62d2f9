"""Feature maps of pictures."""
