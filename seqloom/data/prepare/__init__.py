"""From the user's files to numbered examples, one pipeline a shape of data."""
