"""N → M: pairs of source and target."""
