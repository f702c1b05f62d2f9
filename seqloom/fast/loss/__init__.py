"""Cross-entropy and its gradient in one kernel."""
