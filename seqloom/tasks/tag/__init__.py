"""N → N: a tag for every word."""
