"""What each task's evaluation adds to a report."""
