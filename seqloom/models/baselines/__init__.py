"""Models without a network, to compare with."""
