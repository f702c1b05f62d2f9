"""N → 1: a class or a number for a row of a table."""
