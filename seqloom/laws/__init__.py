"""The laws of parts, as code: what every cell, score, mixer and norm obeys, ours and a user's own.

A law is a function of a maker, `make(seed, dtype, device)`, which builds the part in a small setting (`subjects.py`).
It returns None if the law holds and `NotApplicable` if it does not concern the part, and raises `LawError` with what it
found.
`kinds.py` lists the laws of each kind, `checking.py` runs them and looks for the smallest case in which one breaks.
"""
