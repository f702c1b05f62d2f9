"""Plain functions and their fast twins.

The textbook (`parts`, `models`, `decoding`, `training`) marks a function that has a faster form with `@accelerated`
and says no more about speed. `seqloom/fast` registers the faster form with `@twin_of`, and a predicate `supported`
over the same arguments. A call takes the first twin that supports it, else the plain function. `plain()` and
SEQLOOM_PLAIN=1 switch all twins off.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from threading import Lock
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import torch
from torch import nn

P = ParamSpec("P")
R = TypeVar("R")


class Twin(NamedTuple):
    fast: Callable[..., Any]
    supported: Callable[..., bool]
    compiles: bool  # whether a compiler may trace it
    own_state: bool  # whether `supported` recognizes a state of fast code, which goes on, whatever is switched off
    hooks: bool = False  # whether it runs beside probes and hooks


TWINS: dict[str, list[Twin]] = {}  # by the name of the plain function
_plain = int(os.environ.get("SEQLOOM_PLAIN", "") not in ("", "0"))  # how many ask for plain code
_loaded = False
_lock = Lock()


def accelerated(plain: Callable[P, R]) -> Callable[P, R]:
    """Mark a function or method that may have fast twins. `.plain` is the function itself."""
    twins = TWINS.setdefault(f"{plain.__module__}.{plain.__qualname__}", [])

    @wraps(plain)
    def dispatch(*args: P.args, **keywords: P.kwargs) -> R:
        if not _loaded:
            load()
        compiling = torch.compiler.is_compiling()
        for twin in twins:
            if not twin.own_state and (_plain or (compiling and not twin.compiles)):
                continue
            alone = twin.own_state or twin.hooks or compiling
            if twin.supported(*args, **keywords) and (alone or not _disturbed(args)):
                return twin.fast(*args, **keywords)
        return plain(*args, **keywords)

    vars(dispatch)["plain"] = plain
    return dispatch


def twin_of(
    plain: Callable[..., Any],
    supported: Callable[..., bool],
    *,
    compiles: bool = False,
    own_state: bool = False,
    hooks: bool = False,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register a faster form of an `accelerated` function. Earlier twins are asked first.

    `supported` takes the same arguments and says whether the fast form can do them here and is faster. It need not ask
    about compilers (unless `compiles`), nor, where the first argument is a module, about probes and hooks in it (unless
    `hooks`: the twin calls these modules as plain code does, or `supported` asks about those that it does not call).
    """

    def register(fast: Callable[P, R]) -> Callable[P, R]:
        TWINS[f"{plain.__module__}.{plain.__qualname__}"].append(Twin(fast, supported, compiles, own_state, hooks))
        return fast

    return register


def plain_of(function: Callable[P, R]) -> Callable[P, R]:
    """The plain form of a function; of one that is not `accelerated`, the function itself."""
    return cast("Callable[P, R]", vars(function).get("plain", function))


@torch.compiler.assume_constant_result  # a compiler runs it while it traces
def load() -> None:
    """Import the twins, once; the first call of an accelerated function does."""
    global _loaded
    with _lock:
        if _loaded:
            return
        _loaded = True  # first: twins call accelerated functions themselves
        import_module("seqloom.fast.twins")


@contextmanager
def plain() -> Iterator[None]:
    """Run plain code alone within the block, in all threads: to read along, to debug, to compare."""
    global _plain
    with _lock:
        _plain += 1
    try:
        yield
    finally:
        with _lock:
            _plain -= 1


def disturbed(*modules: nn.Module) -> bool:
    """Whether a probe or a hook in these modules would miss calls: a twin of several modules calls none of them."""
    parts = [*modules]
    for part in parts:  # a tenth of the time of `modules()` and `getattr`
        own = vars(part)
        if own["_forward_hooks"] or own["_forward_pre_hooks"] or own.get("probe") is not None:
            return True
        if own["_modules"]:
            parts += [below for below in own["_modules"].values() if below is not None]
    return False


def _disturbed(args: tuple[Any, ...]) -> bool:
    return bool(args) and isinstance(args[0], nn.Module) and disturbed(args[0])
