"""What all tasks share: the Task protocol, evaluation, presets, transfer, prediction from Python."""
