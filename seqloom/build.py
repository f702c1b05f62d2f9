"""Choosing a part by name. A constructor's keywords are its configuration; a table's keys are the only registry.

A table maps a name to a class, or to a mapping that names another entry with some keywords already set
(`"gru": {"kind": "recurrent", "cell": "gru"}`). A keyword that is itself a choice is annotated with its table:
`score: Annotated[Choice, SCORES] = "scaled"`. YAML, Python, `--set` and the help text all come from the signature:
a keyword with a default is the user's to set; one without is a size that only the caller knows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin

from seqloom.errors import SeqloomError, is_known, known, shown
from seqloom.options import converted, hints_of
from seqloom.setting_names import with_current_names

# The least that a setting of this name may be, in every part that has it.
MINIMUM = dict.fromkeys(("dim", "layers", "heads", "embedding", "longest", "length", "window"), 1) | {"hidden": 0}
# The most: more is a slip or a trap, and would be out of memory or time before it is found to be wrong.
MAXIMUM = dict.fromkeys(("dim", "embedding", "hidden"), 1 << 20) | {"layers": 1000, "heads": 1 << 12}
MAXIMUM |= dict.fromkeys(("longest", "length", "window"), 1 << 24)
Choice = str | Mapping[str, Any] | Callable[..., Any]  # "gru", {"kind": "gru", "layers": 2}, or the user's own class
Table = Mapping[str, Any]  # name -> class, or name -> {"kind": another name, keyword: value}
Entry = TypeVar("Entry")


class Functions(Mapping[str, Callable[..., Any]], Generic[Entry]):
    """A view of a table whose entries name their function as "module:function", imported when it is asked for: the
    table itself needs neither torch nor numpy. Entries without a function, by `path`, are not in the view."""

    def __init__(self, table: Mapping[str, Entry], path: Callable[[Entry], str | Callable[..., Any] | None]) -> None:
        self.table, self.path = table, path

    def __getitem__(self, name: str) -> Callable[..., Any]:
        path = self.path(self.table[name])
        if path is None:
            raise KeyError(name)
        if callable(path):
            return path
        module, _, function = path.partition(":")
        return getattr(import_module(module), function)

    def __iter__(self) -> Iterator[str]:
        return (name for name, entry in self.table.items() if self.path(entry) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in self.table and self.path(self.table[name]) is not None  # pyright: ignore[reportArgumentType]


def build(table: Mapping[str, Any], choice: Choice, **sizes: Any) -> Any:
    """Make the chosen part; `sizes` are what only the caller knows, such as `query_dim`."""
    return maker(table, choice)(**sizes)


def maker(table: Mapping[str, Any], choice: Choice) -> Callable[..., Any]:
    """What `build` calls: the entry, with the keywords that the choice sets."""
    if callable(choice):
        return choice
    make, options = _resolve(table, choice)
    return partial(make, **options) if options else make


def kind_of(choice: Choice) -> Any:
    """The name of a choice."""
    return choice.get("kind") if isinstance(choice, Mapping) else choice


def short(choice: Mapping[str, Any]) -> Any:
    """A complete choice, or its name alone where it has no settings."""
    return dict(choice) if len(choice) > 1 else choice["kind"]


def complete(table: Table, choice: Choice, place: str = "") -> dict[str, Any]:
    """The same choice with every default written out, nested choices too. `place` is where it stands: encoder.cell."""
    if callable(choice):
        raise SeqloomError(
            f"{choice!r} is a class of your own: a run's config can only name what is in the tables; "
            "build the model with it in Python, or add it to its table"
        )
    make, options = _resolve(table, choice, place)
    result: dict[str, Any] = {"kind": next(name for name, entry in table.items() if entry is make)}
    tables = nested_tables(make)
    for name, default in settings(make).items():
        value = options.get(name, default)
        inner = f"{place}.{name}" if place else name
        result[name] = complete(tables[name], value, inner) if name in tables else _checked_value(make, name, value)
    return result


def _checked_value(make: Callable[..., Any], name: str, value: Any) -> Any:
    """A setting of the right type and within its bounds."""
    hints = hints_of(make)
    if name not in hints:  # of a part of another package
        raise SeqloomError(f"{name} of {make.__name__} has no type annotation, so it cannot be a setting")
    value = converted(f"{name} of {make.__name__}", hints[name], value)
    numbers = value if isinstance(value, list) else [value]
    if name in MINIMUM and any(isinstance(n, int | float) and n < MINIMUM[name] for n in numbers):
        raise SeqloomError(f"{name} of {make.__name__} is at least {MINIMUM[name]}, here {value}")
    if name in MAXIMUM and any(isinstance(n, int | float) and n > MAXIMUM[name] for n in numbers):
        raise SeqloomError(f"{name} of {make.__name__} is at most {MAXIMUM[name]:,}, here {value}")
    if name == "dropout" and not 0 <= numbers[0] < 1:
        raise SeqloomError(f"dropout of {make.__name__} is at least 0 and below 1, here {value}")
    return value


def settings(make: Callable[..., Any]) -> dict[str, Any]:
    """The keywords a user may set, with their defaults."""
    parameters = inspect.signature(make).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def nested_tables(make: Callable[..., Any]) -> dict[str, Table]:
    """Which keywords of `make` are choices, and from which table."""
    return {name: get_args(hint)[1] for name, hint in hints_of(make).items() if get_origin(hint) is Annotated}


def chosen(table: Table, choice: Mapping[str, Any]) -> Iterator[tuple[Table, str]]:
    """The table and the name of every part of a complete choice."""
    make = table[choice["kind"]]
    yield table, choice["kind"]
    for name, inner in nested_tables(make).items():
        if name in settings(make):
            yield from chosen(inner, choice[name])


def by_current_names(table: Table, choice: Any, base: Any = None) -> Any:
    """The same choice with its settings, and those of the parts in it, by the names that they have now.

    A choice may leave out its kind: then it is that of `base`, the choice it is to be merged into. What is no choice of
    the table stays as it is.
    """
    if not isinstance(choice, Mapping):
        return choice
    usual = {"kind": base} if isinstance(base, str) else dict(base) if isinstance(base, Mapping) else {}
    kind = choice.get("kind", usual.get("kind"))
    if not isinstance(kind, str) or not is_known(kind, table):
        return dict(choice)
    make, usual = table[kind], usual if usual.get("kind") == kind else {}
    while isinstance(make, Mapping):
        make, usual = table[make["kind"]], {**make, **usual}
    defaults, tables = settings(make), nested_tables(make)
    found = with_current_names("model", choice, {"kind", *defaults})
    for name in found.keys() & tables.keys():
        inner = _with_default_kind(defaults[name], usual[name]) if name in usual else defaults[name]
        found[name] = by_current_names(tables[name], found[name], inner)
    return found


def set_by_path(config: dict[str, Any], key: str, value: Any) -> None:
    """Set `a.b.c` in nested dicts. A choice given as a bare name opens into `{"kind": name}` when a keyword is set."""
    *path, last = key.split(".")
    here = config
    for name in path:
        inner = here.get(name)
        if inner is not None and not isinstance(inner, dict | str):
            raise SeqloomError(f"cannot set {key}: {name} is {inner!r} and has no settings of its own")
        here[name] = inner if isinstance(inner, dict) else {"kind": inner} if inner else {}
        here = here[name]
    inner = here.get(last)
    if isinstance(inner, dict) and isinstance(value, str):  # another kind, of the same width and depth
        kept = () if value == "none" else ("dim", "layers")  # what is none has neither
        here[last] = {"kind": value, **{name: inner[name] for name in kept if name in inner}}
    else:
        here[last] = value


def _resolve(table: Table, choice: Any, place: str = "") -> tuple[Callable[..., Any], dict[str, Any]]:
    where = f"{place}: " if place else ""
    if not isinstance(choice, str | Mapping):
        raise SeqloomError(f"{where}{shown(choice)} is no choice; name one of: {', '.join(sorted(table))}")
    options = {"kind": choice} if isinstance(choice, str) else by_current_names(table, choice)
    if "kind" not in options:
        raise SeqloomError(f"{where}a choice needs its kind, one of: {', '.join(sorted(table))}")
    make = table[_known(options.pop("kind"), table, "kind", where)]
    if isinstance(make, Mapping):
        opened = {name: _with_default_kind(make.get(name), value) for name, value in options.items()}
        return _resolve(table, {**make, **opened}, place)
    defaults = settings(make)
    for name in options:
        _known(name, defaults, f"setting of {make.__name__}", where)
    return make, {name: _with_default_kind(defaults[name], value) for name, value in options.items()}


def _known(name: Any, names: Mapping[str, Any], what: str, where: str) -> str:
    try:
        return known(name, names, what)
    except SeqloomError as error:
        raise SeqloomError(f"{where}{error}") from None


def _with_default_kind(usual: Any, value: Any) -> Any:
    """Settings of a choice without its kind are settings of the default kind."""
    if not isinstance(value, Mapping) or "kind" in value or not isinstance(usual, str | Mapping):
        return value
    return {**({"kind": usual} if isinstance(usual, str) else usual), **value}
