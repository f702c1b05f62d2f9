"""JSON lines: one object per line, with texts under its keys."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from seqloom.data.files.lines import LineError

_KINDS = {str: "text", int: "a number", float: "a number", bool: "true or false", list: "a list", dict: "an object"}


def parse_json(text: str, keys: tuple[str, ...], loose: bool = False) -> tuple[str, tuple[str, ...]]:
    """Source and targets. The first key is the source; the second is required and may be a list of texts. `loose`:
    numbers are accepted as texts."""
    value = json_object(text, keys)
    source, *others = keys
    if source not in value:
        raise LineError(f'key "{source}" is missing', "columns")
    targets: list[str] = []
    for key in others:
        found = value.get(key)
        items = found if isinstance(found, list) else [] if found is None else [found]
        items = (json.dumps(item) if loose and isinstance(item, int | float) else item for item in items)
        texts = [json_text(item, key) for item in items]
        targets += texts if key == others[0] else [text for text in texts if not empty(text)]
        if not targets:
            break  # the first target is missing, whatever the others are
    return json_text(value[source], source), tuple(targets)


def json_object(text: str, keys: Sequence[str]) -> dict[str, Any]:
    """Parse a line, which must be an object; `keys` are for the error message."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        if not text:
            raise LineError("empty line; expected a JSON object", "empty") from None
        column = f" at column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "too deep, or a number too long"
        raise LineError(f"broken JSON: {reason}{column}", "json") from None
    if not isinstance(value, dict):
        like = ", ".join(f'"{key}": …' for key in keys)
        raise LineError(f"expected an object like {{{like}}}, not {_KINDS.get(type(value), 'null')}", "json")
    return value


def json_text(value: Any, key: str) -> str:
    """What stands under `key`, which must be text that can be written to a file."""
    if not isinstance(value, str):
        raise LineError(f'"{key}" must be text, not {_KINDS.get(type(value), "null")}', "json")
    if "\0" in value:
        raise LineError(f'NUL character in "{key}"', "nul")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise LineError(f'"{key}" holds half a surrogate pair, which is no character', "utf8") from None
    return value


def empty(text: str) -> bool:
    # White space alone counts as empty: split into words nothing would be left of it.
    return not text or text.isspace()
