"""One file per command; each calls one library function."""
