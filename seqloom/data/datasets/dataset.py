"""What a dataset with a name is: the facts about it, and its examples. Nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from seqloom.errors import known

HUB = "https://raw.githubusercontent.com/"  # then owner/repository/commit/path


class File(NamedTuple):
    path: str  # below a mirror; a mirror may hold it packed, with .gz behind the name
    address: str | None  # the file itself or a .zip that holds it; None: to be put in place by hand
    sha256: str
    size: int | None = None  # bytes, if it is known


class Folder:
    """Files side by side. `content` has a line for each: its SHA-256, its bytes, its name."""

    def __init__(self, path: str, address: str | None, content: str) -> None:
        rows = [line.split(maxsplit=2) for line in content.strip().splitlines()]
        self._files = {
            name: File(path + name, address and address + name, total, int(size)) for total, size, name in rows
        }

    def files(self, *names: str) -> tuple[File, ...]:
        return tuple(self._files[name] for name in names)

    def by_split(self, **names: str) -> dict[str, tuple[File, ...]]:
        """Files of each split, blanks between."""
        return {split: self.files(*each.split()) for split, each in names.items()}


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
    reader: str | Callable[[Dataset, str], Iterable[Any]]  # a name in `parsers.READERS`, or a function of its own
    files: Mapping[str, tuple[File, ...]] = field(default_factory=dict)  # of each split
    package: str | None = None  # the installed package that it comes with
    unit: str = "examples"  # what the sizes count
    data: Mapping[str, Any] = field(default_factory=dict)  # keywords of DataOptions that suit it

    def examples(self, split: str) -> Iterator[Any]:
        from seqloom.data.datasets.parsers import READERS

        known(split, self.sizes, f"split of {self.name}")
        read = READERS[self.reader] if isinstance(self.reader, str) else self.reader
        return iter(read(self, split))

    def all_files(self) -> list[File]:
        return list(dict.fromkeys(file for files in self.files.values() for file in files))
