"""Shared by all tasks: the Task protocol, evaluation, transfer, prediction from Python."""
