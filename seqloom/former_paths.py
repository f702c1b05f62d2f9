"""Import paths that the documents named before the modules moved: they work for one more version, with a warning.

`seqloom/__init__.py` installs the finder; a module of this table is looked up only when somebody imports its old path.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Old module -> its new place.
MODULES = {
    "seqloom.data.codec": "seqloom.data.tokenizers.vocabulary",
    "seqloom.data.embedded": "seqloom.data.datasets.from_packages",
    "seqloom.data.read": "seqloom.data.formats.pairs",
    "seqloom.data.registry": "seqloom.data.datasets.catalog",
    "seqloom.looking": "seqloom.inspection",
    "seqloom.looking.attention": "seqloom.inspection.attention_maps",
    "seqloom.looking.cost": "seqloom.inspection.cost",
    "seqloom.looking.gates": "seqloom.inspection.gates",
    "seqloom.looking.gradients": "seqloom.inspection.gradients",
    "seqloom.looking.importance": "seqloom.inspection.column_importance",
    "seqloom.looking.reach": "seqloom.inspection.memory_reach",
    "seqloom.models.pictures": "seqloom.models.encoders.image",
    "seqloom.parts.cell": "seqloom.parts.recurrent.cells",
    "seqloom.parts.see": "seqloom.parts.visibility",
    "seqloom.tasks.embed": "seqloom.tasks.shared.embeddings",
}
# Old module that is a package now -> its names that went into a module of it.
NAMES = {"seqloom.parts.recurrent": {"Recurrent": "seqloom.parts.recurrent.layers"}}
# Names that have changed too, in any of these modules.
RENAMED = {"See": "Visibility", "looked_back": "self_attention_weights", "said_by": "outputs_of"}


def former_names(package: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose names went into its modules."""

    def look_up(name: str) -> Any:
        if name not in NAMES[package]:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = NAMES[package][name]
        _warn(f"{package}.{name}", f"{home}.{name}")
        return getattr(importlib.import_module(home), name)

    return look_up


class FormerPaths(MetaPathFinder, Loader):
    """Finds modules by their old paths."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname in MODULES else None

    def exec_module(self, module: ModuleType) -> None:
        """What the module is asked for is looked up in the new one."""
        home = MODULES[module.__name__]
        _warn(module.__name__, home)
        new = importlib.import_module(home)

        def look_up(name: str) -> Any:
            return getattr(new, name if hasattr(new, name) else RENAMED.get(name, name))

        vars(module).update(__getattr__=look_up, __dir__=lambda: dir(new), __doc__=new.__doc__)
        if hasattr(new, "__all__"):
            vars(module)["__all__"] = new.__all__


def install() -> None:
    """Before Python's own finders: below a package that moved they would find its new modules a second time."""
    if not any(isinstance(finder, FormerPaths) for finder in sys.meta_path):
        sys.meta_path.insert(0, FormerPaths())


def _warn(old: str, new: str) -> None:
    warnings.warn(f"{old} is now {new}; the old path goes in the next version", DeprecationWarning, stacklevel=3)
