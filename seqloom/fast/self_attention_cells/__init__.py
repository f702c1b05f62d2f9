"""Cells with attention over their own history, all steps in one kernel."""
