"""`seqloom data check`: every broken or doubtful line, named, for each shape of data."""
