"""Settings that had another name in an earlier version: the one table of old and new names.

An old name is understood wherever settings are given: options, `--set`, keywords in Python, YAML files, recipes, the
config of a saved run, keywords of a part. It means the new one where the section's dataclass or the part's constructor
takes the new name and not the old one: `reset` is `reset_gate` of a GRU cell and `state_reset` of a language model, and
`start` of a part that has a `start` is just that. Fingerprints of caches keep the first names: see `by_first_names`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from seqloom.errors import SettingError

# Section of a config -> old name -> new name, or several, of which a section or a part has one.
RENAMED: dict[str, dict[str, str | tuple[str, ...]]] = {
    "training": {
        "optimiser": "optimizer",
        "rate": "learning_rate",
        "trigger": "asgd_patience",
        "smoothing": "label_smoothing",
        "agreement": "r_drop",
        "capture": "cuda_graphs",
        "keep": "keep_checkpoints",
        "average": "average_checkpoints",
    },
    "data": {
        "fold": "lowercase",
        "rules": "split_version",
        "recognise": "detect",
        "repair": ("shorten_repeats", "repair_tags"),
        "weights": "class_weights",
        "cut": "truncate",
        "vary": "vary_length",
        "often": "subsample",
        "without": "exclude",
        "kinds": "column_types",
        "masked": "mask_rate",
    },
    "model": {
        "feeding": "input_feeding",
        "given": "context_to",
        "start": "initial_state",
        "forget": "forget_bias",
        "tie": "tie_embeddings",
        "share": "share_embeddings",
        "lock": "locked_dropout",
        "drop_input": "input_dropout",
        "drop_words": "embedding_dropout",
        "small": "activation_penalty",
        "slow": "temporal_penalty",
        "reset": ("reset_gate", "state_reset"),
        "straight": "skip_connection",
        "unknown": "unk_rate",
        "grams": "ngrams",
        "summary": "pooling",
        "enter_norm": "embedding_norm",
        "scale": "scale_embeddings",
        "globals": "global_tokens",
        "normaliser": "normalizer",
    },
}
OPTIONS = {  # of `seqloom train`
    "--rate": "--learning-rate",
    "--fold": "--casefold",
    "--optimiser": "--optimizer",
    "--cut": "--truncate",
    "--average": "--average-checkpoints",
}
LOG_KEYS = {"rate": "learning_rate"}  # in the lines of metrics.jsonl

_FIRST = {
    one: old
    for names in RENAMED.values()
    for old, new in names.items()
    for one in ([new] if isinstance(new, str) else new)
}

# `lowercase` -> what `fold` was. "full" does what "casefold" does, but was written so, not as `true`: caches differ.
_FOLDS = {"casefold": True, "full": "casefold"}


def current_name(section: str, name: str, names: Collection[str]) -> str:
    """What a setting is called now in a section or part that has settings of these names; itself if it is not old."""
    if name in names:
        return name
    new = RENAMED[section].get(name, ())
    return next((one for one in ([new] if isinstance(new, str) else new) if one in names), name)


def with_current_names(
    section: str, values: Mapping[str, Any], names: Collection[str], prefix: str = ""
) -> dict[str, Any]:
    """`values` by the names of now, for a section or part that has settings of these names.

    One setting that is given by both of its names must have one value; None is nothing given. `prefix` is what stands
    before the names in an error: `training.`.
    """
    found: dict[str, Any] = {}
    given: dict[str, str] = {}
    for name, value in values.items():
        new = current_name(section, name, names) if isinstance(name, str) else name
        value = value if new == name else _current_value(section, name, value)
        if None not in (value, found.get(new)):
            check_equal(prefix + given[new], prefix + name, found[new] == value, new=prefix + new)
        if new not in found or value is not None:
            found[new], given[new] = value, name
    return found


def check_equal(first: str, second: str, equal: bool, new: str) -> None:
    """Refuse two values for one setting that was given by an old name and by its `new` one."""
    if first != second and not equal:
        old = first if second == new else second
        raise SettingError(f"{old} is the earlier name of {new}, and both are given, with different values: set one")


def override(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Settings, of one section or by dotted names, and others that win where both set the same, by whatever names."""
    taken = set(map(_first_name, second))
    return {**{name: value for name, value in first.items() if _first_name(name) not in taken}, **second}


def by_first_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` by their first names: what caches are known by, so that those made before are found again."""
    return {_FIRST.get(name, name): fold_of(value) if name == "lowercase" else value for name, value in values.items()}


def _first_name(key: str) -> str:
    """A dotted name with every part of it as it was called first. In one place stands one part, which has a setting
    under one of its names, so that two keys mean the same if this is the same."""
    return ".".join(_FIRST.get(name, name) for name in key.removeprefix("model.").split("."))


def fold_of(lowercase: Any) -> Any:
    """How vocabularies and the names of caches have the setting `lowercase`."""
    return _FOLDS.get(lowercase, lowercase) if isinstance(lowercase, str) else lowercase


def _current_value(section: str, name: str, value: Any) -> Any:
    if (section, name) != ("data", "fold"):
        return value
    return "casefold" if value is True else "full" if value == "casefold" else value
