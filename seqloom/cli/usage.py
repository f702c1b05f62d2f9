"""Errors in how a command was given: one line and exit status 2."""

from __future__ import annotations

from typing import Any

import typer

UsageError: Any = typer.BadParameter.__mro__[1]  # click's, which newer typers carry inside under another name
