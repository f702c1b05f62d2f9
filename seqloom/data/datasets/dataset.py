"""What a dataset with a name is: the facts about it, and its examples. Nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from seqloom.errors import known

HUB = "https://raw.githubusercontent.com/"  # then owner/repository/commit/path


class File(NamedTuple):
    path: str  # below a mirror; a mirror may hold it packed, with .gz behind the name
    address: str | None  # the file itself or a .zip that holds it; None: to be put in place by hand


@dataclass(frozen=True)
class Dataset:
    """A dataset by name. `examples(split)` gives what its task works on:

    translate (source, targets); classify (text, label); tag [(word, tag), …]; generate one text; speech (samples, rate,
    label); pictures (image, label); graph a dict of arrays; vectors (word, vector); regress (numbers, number); table a
    dict by column.
    """

    name: str
    task: str
    about: str
    sizes: Mapping[str, int]  # examples of each split
    licence: str
    citation: str
    home: str
    reader: str  # a name in `readers.READERS`
    files: Mapping[str, tuple[File, ...]] = field(default_factory=dict)  # of each split
    package: str | None = None  # the installed package that it comes with
    unit: str = "examples"  # what the sizes count
    data: Mapping[str, Any] = field(default_factory=dict)  # keywords of DataOptions that suit it

    def examples(self, split: str) -> Iterator[Any]:
        from seqloom.data.datasets.parsers import READERS

        known(split, self.sizes, f"split of {self.name}")
        return iter(READERS[self.reader](self, split))

    def all_files(self) -> list[File]:
        return list(dict.fromkeys(file for files in self.files.values() for file in files))


def files_of(folder: str, address: str | None, *names: str) -> tuple[File, ...]:
    return tuple(File(folder + name, address and address + name) for name in names)


def files_by_split(folder: str, address: str | None, **names: str) -> dict[str, tuple[File, ...]]:
    """Files of each split, blanks between."""
    return {split: files_of(folder, address, *each.split()) for split, each in names.items()}
