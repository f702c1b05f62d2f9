"""Damage by a seed: what disks, copies, editors and strangers do to the files of a folder."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

MANIFEST = "manifest.json"
Files = dict[str, bytes]


def flipped(raw: bytes, draw: random.Random, first: int = 0) -> bytes:
    """One bit of it, from byte `first` on, is the other."""
    changed = bytearray(raw)
    bit = draw.randrange(8 * first, 8 * len(raw))
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def put(folder: Path, files: Mapping[str, bytes | None]) -> None:
    """A folder of these files and no others; None: a folder stands in the place of a file."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, raw in files.items():
        if raw is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(raw)


def taken(folder: Path) -> Files:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def damaged(files: Files, others: Files, draw: random.Random) -> tuple[str, dict[str, bytes | None]]:
    """A kind of damage and what it makes of the files; `others` are those of another such folder."""
    kind = draw.choice(list(KINDS))
    return kind, KINDS[kind](dict(files), others, draw)


def _one(change: Callable[[bytes, random.Random], bytes | None]) -> Callable[..., dict[str, bytes | None]]:
    def of(files: Files, others: Files, draw: random.Random) -> dict[str, bytes | None]:
        name = draw.choice(list(files))
        return files | {name: change(files[name], draw)}

    return of


def _zeros(raw: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(raw))
    return raw[:start] + bytes(len(raw[start : start + 512])) + raw[start + 512 :]


def _missing(files: Files, others: Files, draw: random.Random) -> Files:
    files.pop(draw.choice(list(files)))
    return files


def _unnamed(files: Files, others: Files, draw: random.Random) -> Files:
    """Neither the file nor the manifest knows of it any more."""
    sums = json.loads(files[MANIFEST])
    name = draw.choice(list(sums))
    sums.pop(name)
    files.pop(name)
    return files | {MANIFEST: json.dumps(sums).encode()}


def _exchanged(files: Files, others: Files, draw: random.Random) -> Files:
    """Two files have each other's names."""
    one, other = draw.sample(list(files), 2)
    return files | {one: files[other], other: files[one]}


def _elsewhere(files: Files, others: Files, draw: random.Random) -> Files:
    """A file of another folder."""
    name = draw.choice(list(files))
    return files | {name: others[name]}


def _renamed(files: Files, others: Files, draw: random.Random) -> Files:
    name = draw.choice(list(files))
    return files | {f"{name} (1)": files.pop(name)}


def _partial(files: Files, others: Files, draw: random.Random) -> Files:
    """The manifest names only some of the files, and one that it does not name is damaged."""
    sums = json.loads(files[MANIFEST])
    names = draw.sample(list(sums), draw.randrange(1, len(sums)))
    for name in names:
        sums.pop(name)
    return files | {MANIFEST: json.dumps(sums).encode(), names[0]: flipped(files[names[0]], draw)}


def _mistyped(files: Files, others: Files, draw: random.Random) -> Files:
    """A manifest that is JSON and no manifest."""
    sums = json.loads(files[MANIFEST])
    name = draw.choice(list(sums))
    wrong = [None, [], {}, 5, "sums", [1], 1e300, True, {name: 5}, {name: sums}, dict.fromkeys(sums), {"": ""}]
    wrong += [sums | {other: "0" * 64} for other in ("/etc/passwd", "../../x", "a\0b", "\ud800", ".", "", "x" * 5000)]
    wrong += [sums | {name: other} for other in (None, 5, [sums[name]], sums[name].upper(), sums[name][:-1], "")]
    return files | {MANIFEST: json.dumps(draw.choice(wrong)).encode()}


def _deep(files: Files, others: Files, draw: random.Random) -> Files:
    text = draw.choice(["[", '{"a":', "[" * 10]) * 100_000
    return files | {MANIFEST: text.encode()}


KINDS: dict[str, Callable[[Files, Files, random.Random], dict[str, bytes | None]]] = {
    "flip": _one(flipped),
    "another flip": _one(flipped),
    "flip in the manifest": lambda files, others, draw: files | {MANIFEST: flipped(files[MANIFEST], draw)},
    "cut": _one(lambda raw, draw: raw[: draw.randrange(len(raw))]),
    "emptied": _one(lambda raw, draw: b""),
    "longer": _one(lambda raw, draw: raw + draw.randbytes(draw.randrange(1, 9))),
    "random": _one(lambda raw, draw: draw.randbytes(len(raw))),
    "zeros": _one(_zeros),
    "a folder": _one(lambda raw, draw: None),
    "missing": _missing,
    "unnamed": _unnamed,
    "exchanged": _exchanged,
    "elsewhere": _elsewhere,
    "renamed": _renamed,
    "manifest of some": _partial,
    "manifest of another type": _mistyped,
    "deep manifest": _deep,
}
