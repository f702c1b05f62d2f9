"""Import paths of the documents and examples before the modules moved: they work, and say where to go."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from seqloom import former_paths

DOCUMENTED = {  # in the README, in CONTRIBUTING.md and in the examples
    "seqloom.data": ("registry",),
    "seqloom.data.codec": ("Codec",),
    "seqloom.data.embedded": ("cmudict",),
    "seqloom.data.read": ("read_sources",),
    "seqloom.looking": ("gates", "gradients", "reach"),
    "seqloom.models": ("pictures",),
    "seqloom.models.pictures": ("DenseNet", "ResNet"),
    "seqloom.parts.cell": ("Cell",),
    "seqloom.parts.recurrent": ("Recurrent",),
    "seqloom.parts.see": ("See",),
    "seqloom.tasks.embed": ("Embedder", "nearest"),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("old", DOCUMENTED)
def test_what_the_documents_imported_is_still_there(old):
    for name in DOCUMENTED[old]:
        found: dict[str, object] = {}
        exec(f"from {old} import {name}", found)
        assert found[name] is not None


@pytest.mark.parametrize("old", former_paths.MODULES)
def test_an_old_module_shows_what_the_new_one_holds(old):
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{former_paths.MODULES[old]}; the old path goes in the next version"):
        module = importlib.import_module(old)
    new = importlib.import_module(former_paths.MODULES[old])
    for name in (name for name in dir(new) if not name.startswith("_")):
        assert getattr(module, name) is getattr(new, name)


@pytest.mark.parametrize("package", former_paths.NAMES)
def test_names_that_went_into_a_module_of_a_package_are_found_there(package):
    for name, home in former_paths.NAMES[package].items():
        with pytest.warns(DeprecationWarning, match=f"{package}.{name} is now {home}"):
            found = getattr(importlib.import_module(package), name)
        assert found is getattr(importlib.import_module(home), name)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = importlib.import_module(package).nonsense


def test_nothing_is_looked_up_before_an_old_path_is_imported():
    unwanted = {"torch", "numpy", "seqloom.looking", "seqloom.inspection"}
    code = f"import sys, seqloom; assert not {unwanted} & {{*sys.modules}}"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_a_path_that_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("seqloom.looking.nonsense")
