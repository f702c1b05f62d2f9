"""N → 1: labels or a number for a text."""
