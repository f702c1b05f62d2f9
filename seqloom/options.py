"""Options from a signature: the names and types of what a user sets, checked before anything is built."""

from __future__ import annotations

import copy
import math
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from seqloom.errors import SeqloomError, known, shown

LARGEST = 2**63  # larger whole numbers fit nowhere


def checked(make: Callable[..., Any], values: Mapping[str, Any], section: str) -> dict[str, Any]:
    """`values` for the keywords of a dataclass or function: names known, types as annotated."""
    hints = hints_of(make)
    return {
        name: converted(f"{section}.{known(name, hints, f'setting of {section}')}", hints[name], v)
        for name, v in values.items()
    }


def without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without the values that are None, which means not set."""
    return {name: value for name, value in values.items() if value is not None}


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found.update(flattened(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value})
    return found


def merge(config: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """`more` laid over `config`, nested dicts joined; neither is changed."""
    result = copy.deepcopy(config)
    for name, value in more.items():
        both = isinstance(value, dict) and isinstance(result.get(name), dict)
        result[name] = merge(result[name], value) if both else copy.deepcopy(value)
    return result


@cache
def hints_of(make: Callable[..., Any]) -> Mapping[str, Any]:
    """Annotations of a constructor's or a dataclass's keywords."""
    home = make.__init__ if isinstance(make, type) else make
    return {name: hint for name, hint in get_type_hints(home, include_extras=True).items() if name != "return"}


def converted(name: str, hint: Any, value: Any) -> Any:
    """The value as the annotation wants it. A number written as text, as YAML reads 1e-3, is taken as a number."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if any(kind is Any or get_origin(kind) is Annotated for kind in kinds):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise SeqloomError(f"{name} takes a finite number, here {value}")
    if _is_too_wide(value):
        raise SeqloomError(f"{name} takes numbers of at most 64 bits, here {shown(value)}")
    for kind in kinds:
        plain = get_origin(kind) or kind
        if kind is type(None) and value is None:
            return None
        if isinstance(value, plain) and isinstance(value, bool) == (plain is bool):
            return value
    if float in kinds and not isinstance(value, bool):
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            pass
        else:
            return converted(name, float, number)
    raise SeqloomError(f"{name} takes {' or '.join(_name(kind) for kind in kinds)}, here {shown(value)}")


def _is_too_wide(value: Any) -> bool:
    return any(map(_is_too_wide, value)) if isinstance(value, list) else isinstance(value, int) and abs(value) > LARGEST


def _name(kind: Any) -> str:
    if kind is type(None):
        return "nothing"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    words |= {dict: "keys and values", list: "a list"}
    inner = get_args(kind) if get_origin(kind) is list else ()
    of = f" of {_name(inner[0]).removeprefix('a ')}s" if inner else ""
    return words.get(get_origin(kind) or kind, str(kind)) + of
