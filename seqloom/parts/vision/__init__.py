"""Feature maps of images."""
