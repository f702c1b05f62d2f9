"""From the user's files to encoded examples, one pipeline a shape of data."""
