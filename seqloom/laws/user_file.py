"""A user's own file: run as Python runs it, and the parts that are found in it."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable
from functools import partial
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from seqloom.build import build
from seqloom.errors import SettingError, is_known, known, missing, setting_errors
from seqloom.laws.case import Kind, Part
from seqloom.laws.checking import clipped
from seqloom.laws.kinds import KINDS
from seqloom.parts.recurrent.cells import Cell

MODULE = "seqloom_own_parts"
SOUGHT = {
    "cell": "a subclass of Cell, or a function of (input_dim, dim)",
    "score": "an nn.Module with `keys` and `as_dot`, or a function of (query_dim, key_dim)",
    "mixer": "an nn.Module with `begin` and `causal`, or a function of (dim, heads, score)",
    "norm": "an nn.Module with `across`",
}


def parts_of(source: str, kind: str | None = None, name: str | None = None) -> list[Part]:
    """The parts that a file stands for, or the name of a part of ours or of an installed package."""
    path = Path(source)
    if path.suffix == ".py" or path.exists():
        return _own_parts(path, kind, name)
    if "/" in source or "." in source:
        raise SettingError(str(missing(path)))
    tables = {one: KINDS[one].table for one in ([kind] if kind else KINDS)}
    with setting_errors():
        ours = (one for one, table in tables.items() if source in table)  # before those of packages
        found = next(ours, None) or next((one for one, table in tables.items() if is_known(source, table)), None)
    if found is not None:
        return [Part(source, found, partial(build, tables[found], source))]
    with setting_errors("no such file, and no part of this name"):
        known(source, {entry for table in tables.values() for entry in table}, kind or "part")
    raise AssertionError("unreachable")


def _own_parts(path: Path, kind: str | None, name: str | None) -> list[Part]:
    module = load(path)
    found = {key: one for key, value in vars(module).items() if (one := _part(key, value, kind, module, name))}
    if name is not None:
        if name not in vars(module):
            with setting_errors(str(path)):
                known(name, found or {key for key in vars(module) if not key.startswith("_")}, "class")
        if name not in found:
            raise SettingError(f"{path}: {name} is not recognized as {_sought(kind)}; say which it is by --kind")
        found = {name: found[name]}
    else:
        found = {key: one for key, one in found.items() if not _is_base(vars(module)[key], vars(module))}
    if not found:
        raise SettingError(f"{path}: no part found in it; looked for {_sought(kind)}")
    for one in found.values():
        _check_keywords(path, one, vars(module)[one.name])
    return list(found.values())


def _sought(kind: str | None) -> str:
    return SOUGHT[kind] if kind else "; ".join(f"{one}: {text}" for one, text in SOUGHT.items())


def load(path: Path) -> ModuleType:
    """Run the file as a module. Its neighbors can be imported, as when Python runs it."""
    if not path.exists():
        raise SettingError(str(missing(path)))
    if not path.is_file() or path.suffix != ".py":
        what = "a directory, not" if path.is_dir() else "not"
        raise SettingError(f"{path}: {what} a file of Python (.py)")
    path = path.resolve()
    loader = SourceFileLoader(MODULE, str(path))
    spec = spec_from_file_location(MODULE, path, loader=loader)
    assert spec
    module = module_from_spec(spec)
    sys.modules[MODULE] = module
    sys.path.insert(0, str(path.parent))
    try:
        loader.exec_module(module)
    except SyntaxError as error:
        line = f":{error.lineno}" if error.lineno else ""  # none for bytes that are no text
        raise SettingError(f"{error.filename or path}{line}: {error.msg}") from None
    except SystemExit:
        raise SettingError(f"{path}: it ends Python when it is run; put that below if __name__ == '__main__'") from None
    except (UnicodeDecodeError, ValueError) as error:
        raise SettingError(f"{path}{_line(error, path)}: {clipped(str(error))}") from None
    except Exception as error:
        raise SettingError(f"{path}{_line(error, path)}: {type(error).__name__}: {clipped(str(error))}") from None
    finally:
        sys.path.remove(str(path.parent))
    return module


def _line(error: Exception, path: Path) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f":{lines[-1]}" if lines else ""


def _part(key: str, value: Any, kind: str | None, module: ModuleType, name: str | None) -> Part | None:
    """A part if the value was made in this file and is one; with `name` and `kind`, whatever it looks like."""
    if not callable(value) or key.startswith("_") or inspect.ismodule(value):
        return None
    made = value.func if isinstance(value, partial) else value
    if isinstance(value, nn.Module) or (value is made and getattr(made, "__module__", "") != module.__name__):
        return None
    kinds = [KINDS[kind]] if kind else list(KINDS.values())
    if kind and name == key:
        found: Kind | None = kinds[0]
    elif isinstance(made, type):
        found = next((one for one in KINDS.values() if one.recognized(made)), None)
    else:
        found = next((one for one in KINDS.values() if one.name != "norm" and _needed(value) == one.takes), None)
    if found is None or found not in kinds:
        return None
    return Part(key, found.name, value, str(Path(module.__file__ or "")))


def _needed(make: Callable[..., Any]) -> tuple[str, ...]:
    """The parameters without a default that can be given by name."""
    parameters = inspect.signature(make).parameters.values()
    return tuple(
        p.name for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    )


def _is_base(value: Any, names: dict[str, Any]) -> bool:
    """Whether a class is only there for others of the file: an abstract one, or a cell without `step`."""
    if not isinstance(value, type):
        return False
    unfinished = inspect.isabstract(value) or (issubclass(value, Cell) and value.step is Cell.step)
    return unfinished and any(isinstance(one, type) and value in one.__mro__[1:] for one in names.values())


def _check_keywords(path: Path, part: Part, make: Callable[..., Any]) -> None:
    """A part is made with the sizes of its kind alone."""
    takes = KINDS[part.kind].takes
    parameters = inspect.signature(make).parameters
    shown = f"{part.name}({', '.join(f'{name}=…' for name in takes)})"
    if unknown := [name for name in _needed(make) if name not in takes]:
        raise SettingError(
            f"{path}: a {part.kind} is made by {shown}, but {part.name} needs {', '.join(unknown)} too; give it a "
            f"default, or write a function of ({', '.join(takes)}) that makes it"
        )
    every = any(p.kind == p.VAR_KEYWORD for p in parameters.values())
    if lacking := [name for name in takes if name not in parameters and not every]:
        raise SettingError(f"{path}: a {part.kind} is made by {shown}, but {part.name} takes no {', '.join(lacking)}")
