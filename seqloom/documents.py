"""JSON and YAML that may come from anybody: bounded in size and depth, and nothing in it but plain values.

Settings, recipes, runs, models and whatever else comes as a whole file goes through here. JSON lines of data, and what
Seqloom itself or one of its libraries wrote (caches, pipes, files of packages), are parsed where they are used; the
list of those places, each with its reason, is in tests/test_guards.py. What is refused is a SeqloomError with the
place it came from.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from seqloom.errors import SeqloomError, missing

DEPTH = 100  # of lists in lists: what is deeper was not written for us, and would use up the stack of who walks it
LONGEST = 1 << 28  # bytes of JSON: the largest tokenizers have a tenth of it
YAML_LONGEST = 1 << 20  # bytes of YAML, which is slow to read
NODES = 50_000  # values of a YAML document, those that aliases stand for counted each time
DIGITS = 100  # of a number in YAML: more take time to read
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def _whole_number(text: str) -> int:
    """One of more than 64 bits fits into no tensor, and one of thousands of digits into nothing."""
    number = int(text) if len(text) < 21 else 2**64
    if not -(2**63) <= number < 2**64:
        raise ValueError(f"the number {text[:20]}… is too large")
    return number


_DECODER = json.JSONDecoder(parse_int=_whole_number)


def read_text(path: Path, longest: int) -> str:
    """A text file in UTF-8 of so many bytes at most."""
    try:
        raw = bytearray()
        with path.open("rb") as file:  # by pieces: room is made for as much as is asked for
            while len(raw) <= longest and (piece := file.read(1 << 20)):
                raw += piece
        if len(raw) > longest:
            raise SeqloomError(f"{path}: cannot be read: it is longer than {longest:,} bytes")
        return raw.decode()
    except FileNotFoundError as error:
        raise missing(path) from error
    except (OSError, ValueError) as error:  # a NUL in its name, or no UTF-8 in the file, is a ValueError
        raise SeqloomError(f"{path}: cannot be read: {error}") from error


def parse_json(raw: str | bytes, where: object) -> Any:
    """The value that JSON stands for; `where` it came from is what errors begin with."""
    try:
        text = raw if isinstance(raw, str) else raw.decode()
        value = _DECODER.decode(text)
    except RecursionError as error:
        raise _too_deep(where) from error
    except ValueError as error:
        raise SeqloomError(f"{where}: cannot be read: {error}") from error
    # Cheap looks at the text come first, for few need a walk through the values.
    if text.count("[") + text.count("{") > DEPTH and isinstance(value, dict | list):
        _check_depth(value, where)
    if "\\u" in text and _HALF.search(text):
        _check_whole(value, where)
    return value


def read_json(path: Path) -> dict[str, Any]:
    """Keys and values of a JSON file."""
    value = parse_json(read_text(path, LONGEST), path)
    if not isinstance(value, dict):
        raise SeqloomError(f"{path}: expected keys and values")
    return value


def read_yaml(path: Path) -> dict[str, Any]:
    """Keys and values of a YAML file; errors name the line."""
    import yaml

    try:
        loaded = parse_yaml(read_text(path, YAML_LONGEST), path)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise SeqloomError(f"{where}: not YAML: {problem}") from error
    if not isinstance(loaded, dict):
        raise SeqloomError(f"{path}: expected keys and values")
    return loaded


def parse_yaml(text: str, where: object) -> Any:
    """The value that YAML stands for: text, numbers, true, false and null, lists, and keys that are text. Dates are
    text. What is no YAML at all raises yaml.YAMLError, which knows the line."""
    if len(text) > YAML_LONGEST:
        raise SeqloomError(f"{where}: cannot be read: YAML of more than {YAML_LONGEST:,} characters")
    loader = _loader()(text)
    loader.where = where
    try:
        return loader.get_single_data()
    except (ValueError, LookupError, TypeError, AttributeError) as error:  # !!int x, !!bool x
        raise SeqloomError(f"{where}: a value is not of the type that its tag says: {error}") from error
    except RecursionError as error:
        raise _too_deep(where) from error
    finally:
        loader.dispose()


@cache
def _loader() -> type:
    """Made where YAML is read: much else needs no yaml."""
    import yaml

    class Bounded(yaml.SafeLoader):
        """Counts what it composes, and what aliases stand for as often as they do."""

        where: object = ""
        depth = count = 0

        def __init__(self, text: str) -> None:
            super().__init__(text)
            self.sizes: dict[int, int] = {}

        def compose_node(self, parent: Any, index: Any) -> Any:
            alias, before = self.check_event(yaml.AliasEvent), self.count
            line = self.peek_event().start_mark.line + 1
            self.depth += 1
            if self.depth > DEPTH:
                raise _too_deep(f"{self.where}:{line}")
            node: Any = super().compose_node(parent, index)
            self.depth -= 1
            if alias and id(node) not in self.sizes:
                raise SeqloomError(f"{self.where}:{line}: an alias stands for what it is part of")
            self.count += self.sizes[id(node)] if alias else 1
            self.sizes[id(node)] = self.count - before
            if self.count > NODES:
                raise SeqloomError(f"{self.where}:{line}: YAML of more than {NODES:,} values, aliases counted")
            if not alias:
                self._check_plain(node, line)
            return node

        def _check_plain(self, node: Any, line: int) -> None:
            kind = node.tag.removeprefix("tag:yaml.org,2002:")
            if kind in ("binary", "set", "omap", "pairs"):
                raise SeqloomError(f"{self.where}:{line}: a value of the type !!{kind}, which nothing here takes")
            if isinstance(node, yaml.MappingNode):
                for key, _ in node.value:
                    if not key.tag.endswith((":str", ":merge")):
                        shown_key = repr(key.value)[:DIGITS]
                        raise SeqloomError(f"{self.where}:{line}: the key {shown_key} is no text; put it in quotes")
            elif kind in ("timestamp", "value"):
                node.tag = "tag:yaml.org,2002:str"
            elif kind in ("int", "float") and len(node.value) > DIGITS:
                raise SeqloomError(f"{self.where}:{line}: a number of more than {DIGITS} digits")

    return Bounded


def _too_deep(where: object) -> SeqloomError:
    return SeqloomError(f"{where}: cannot be read: nested more than {DEPTH} deep")


def _check_depth(value: Any, where: object) -> None:
    level = [value]
    for _ in range(DEPTH):
        within = (one.values() if isinstance(one, dict) else one for one in level)
        level = [one for values in within for one in values if isinstance(one, dict | list)]
        if not level:
            return
    raise _too_deep(where)


def _check_whole(value: Any, where: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])
        raise SeqloomError(f"{where}: cannot be read: it holds {half}, which is half a character") from error
