"""`--set decoder.score=additive`: any setting by its dotted name. `runs/config.py` puts it into its section."""

from __future__ import annotations

from typing import Any

import yaml

from seqloom.documents import parse_yaml
from seqloom.errors import SeqloomError, SettingError, shown


def parse_set(text: str) -> tuple[str, Any]:
    """`"training.clip=0.5"` -> `("training.clip", 0.5)`."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise SettingError(f"--set takes key=value, here {shown(text)}")
    return key.strip(), parse_value(value)


def parse_value(text: str) -> Any:
    """The value as YAML: numbers, true and false, [lists], {keys: and values}; anything else is a string."""
    try:
        return parse_yaml(text, "a setting")
    except (yaml.YAMLError, SeqloomError):
        return text
