"""Dropout, residual and layer norm in one kernel."""
