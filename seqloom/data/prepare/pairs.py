"""From the user's files to numbered examples, kept in a cache: the second run on the same data starts at once."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.data.batches.pairs import Corpus
from seqloom.data.encoding import cache_check
from seqloom.data.encoding.mmap_store import Writer
from seqloom.data.encoding.statistics import facts_of, overlap, vocabulary
from seqloom.data.encoding.text_options import Numbering
from seqloom.data.files.columns import LATEST, since
from seqloom.data.files.file_groups import FOLDER, inside
from seqloom.data.formats.bad_lines import Skipped
from seqloom.data.formats.bad_lines import note as skip_note
from seqloom.data.formats.pairs import Example, Group
from seqloom.data.prepare.count_tokens import Codecs, Filled, fill
from seqloom.data.splits.holdout import missed
from seqloom.data.splits.split import Fold, Split
from seqloom.data.tokenizers.tokenizers import make
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.errors import SeqloomError, setting
from seqloom.files import MANIFEST, damage, default_cache, new_folder, sha256, write_json
from seqloom.plural import counted

__all__ = ["Corpus", "DataOptions", "Prepared", "prepare"]

MEANING = 2  # of the numbers; a change here makes every cache new and lets no older run resume
LAYOUT = 3  # of the cache folder; a change here makes every cache new
HELD = "valid.jsonl"
SIDES = ("source", "target")
# Settings that came later; left out of the fingerprint where unset, so that runs from before can go on.
LATER = {"half_width": False, "columns": None, "skip_bad": False, "limit": None, **LATEST}


@dataclass(frozen=True, kw_only=True)
class DataOptions(Numbering):
    """What is read, and how text becomes numbers: the `data` section of a run's configuration.

    `source_tokens`, `target_tokens`: chars, words, terms, jieba, bytes or bpe:N. The others are those of `Numbering`.
    """

    source_tokens: str = "chars"
    target_tokens: str = "chars"

    def __post_init__(self) -> None:
        for name in ("source_tokens", "target_tokens"):
            with setting(f"data.{name}"):
                make(getattr(self, name))
        super().__post_init__()

    def kind(self, side: str) -> str:
        return self.source_tokens if side == "source" else self.target_tokens


@dataclass(frozen=True, eq=False)
class Prepared:
    """Data ready for training."""

    source: Codec
    target: Codec
    train: Corpus
    valid: Corpus | None  # None: nothing is held out
    notes: list[str]  # what the user should know, in sentences
    facts: dict[str, Any] = field(repr=False)  # what the data is like, as JSON can hold it; see `facts`
    split: Split = field(repr=False)

    def vocabularies(self) -> dict[str, Any]:
        return {"source": self.source.to_json(), "target": self.target.to_json()}

    def held(self) -> list[Example]:
        """The held-out examples as text: predictions are scored against them."""
        if self.valid is None:
            return []
        files = self.split.files
        with (self.valid.folder / HELD).open(encoding="utf-8") as lines:
            found = (json.loads(line) for line in lines)
            return [Example(source, tuple(targets), files[file], line) for file, line, source, targets in found]


def prepare(
    train: list[str],
    valid: list[str] | float | Fold,
    options: Numbering | None = None,
    *,
    seed: int,
    cache: Path | None = None,
    codecs: Codecs | None = None,
) -> Prepared:
    """Read, number and cache the data.

    `train`: files (see `read.group`). `valid`: files, the share of the training data to hold out (0: none), or a fold.
    The vocabularies come from the training examples alone, unless `codecs` of another run are given (None for a side
    that has none). `cache`: a folder; else $SEQLOOM_CACHE or ~/.cache/seqloom.
    """
    options = options or DataOptions()
    split = Split.of(train, valid, seed=seed, reading=options, **options.ways)
    if not split.train:
        raise SeqloomError("no training files were given")
    fingerprint = _fingerprint(split, options, codecs)
    cache = cache or default_cache()
    folder = cache / f"{fingerprint}-{LAYOUT}"
    if not _intact(folder):
        _make(cache)
        _build(folder, split, options, codecs)
    return _open(folder, split, fingerprint)


def _make(cache: Path) -> None:
    """Says that it is the cache that cannot be written, before any work is done for it."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        writable, why = os.access(cache, os.W_OK), "no permission"
    except OSError as error:
        writable, why = False, str(error.strerror or error)
    if not writable:
        raise SeqloomError(f"{cache}: the cache of data cannot be written: {why}; set $SEQLOOM_CACHE elsewhere")


def _fingerprint(split: Split, options: Numbering, codecs: Codecs | None) -> str:
    """SHA-256 over all that decides the numbers: contents, not names or dates of files."""
    key: dict[str, Any] = {
        "layout": MEANING,
        "unicode": unicodedata.unidata_version,
    }
    key["train"] = [_content(group) for group in split.train]
    key["valid"] = [_content(group) for group in split.valid]
    if split.share:
        key["share"], key["seed"] = split.share, split.seed
    if split.start:
        key["start"] = split.start
    if codecs:
        key["codecs"] = [codec and codec.to_json() for codec in codecs]
    if clean := options.clean("source"):  # stop words may come from a file
        key["clean"] = clean
    kinds = [options.kind(side) for side in SIDES]
    if "bpe" in "".join(kinds):
        key["tokenizers"] = importlib.metadata.version("tokenizers")
    if "jieba" in kinds:
        make("jieba").split("")  # says which package is missing before its version is asked for
        key["rjieba"] = importlib.metadata.version("rjieba")
    key["options"] = {name: value for name, value in since(options).items() if (name, value) not in LATER.items()}
    if not split.share:  # nothing is held out by any rules
        key["options"].pop("rules", None)
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


def _content(group: Group) -> list[str]:
    try:
        if group.form == FOLDER:
            texts = (f"{label}/{path.name} {sha256(path)}" for label, path in inside(group.paths[0]))
            return [FOLDER, *texts, *group.unusual]
        found = (f"{sha256(path)}{path.suffix if path.suffix == '.gz' else ''}" for path in group.paths)
        return [group.form, *found, *group.unusual]
    except OSError as error:
        raise SeqloomError(f"{group}: cannot be read: {error.strerror or error}") from error


def _intact(folder: Path) -> bool:
    """Small caches by checksum; of large ones small files, and sizes: the rest is compared beside the training."""
    try:
        sums = json.loads((folder / MANIFEST).read_bytes())
        small = ("meta.json", "source.json", "target.json")
        if any(sha256(folder / name) != sums[name] for name in small):
            return False
        sizes = json.loads((folder / "meta.json").read_bytes())["sizes"]
        if sum(sizes.values()) <= cache_check.AT_ONCE:
            return damage(folder) is None
        for name in {"train", "valid"} if "valid_source_ids.npy" in sizes else {"train"}:
            Corpus(folder, name, "")  # its headers can be read
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SyntaxError, RecursionError):
        return False


def _build(folder: Path, split: Split, options: Numbering, codecs: Codecs | None) -> None:
    if folder.exists() and not _intact(folder):  # a whole one that somebody else finishes meanwhile is left alone
        shutil.rmtree(folder, ignore_errors=True)
    skipped = Skipped() if options.skip_bad else None
    split = split.decided(lambda: split.parts(Skipped() if options.skip_bad else None, options.longest))
    with new_folder(folder, keep_existing=True) as fresh:
        with (
            Writer(fresh, "train") as train,
            Writer(fresh, "valid") as valid,
            (fresh / HELD).open("w", encoding="utf-8") as held,
        ):
            filled = fill(split, options, (train, valid), held, skipped, codecs)
        if not train.rows:
            raise SeqloomError(_nothing(split, valid.rows))
        facts = _settle(fresh, filled, {"train": train, "valid": valid})
        facts["skipped"] = _left_out(skipped or Skipped())
        write_json(fresh / "source.json", filled.source.to_json())
        write_json(fresh / "target.json", filled.target.to_json())
        sizes = {file.name: file.stat().st_size for file in sorted(fresh.iterdir()) if file.suffix != ".json"}
        notes = list(_notes(split, options, filled, facts))
        write_json(fresh / "meta.json", {"sizes": sizes, "facts": facts, "notes": notes, "files": split.files})


def _left_out(skipped: Skipped) -> dict[str, Any]:
    return skipped.to_json() | {"first": [[problem.file, problem.line, problem.reason] for problem in skipped.first]}


def _settle(folder: Path, filled: Filled, writers: dict[str, Writer]) -> dict[str, Any]:
    """Give all ids their final numbers, and say what the data is like."""
    facts: dict[str, Any] = {}
    for name, writer in writers.items():
        counts = writer.settle(*filled.tables)
        hashes = filled.hashes[name == "valid"]
        facts[name] = facts_of(Corpus(folder, name, ""), counts, hashes) if writer.rows else None
        if name == "train":
            codecs = zip(SIDES, (filled.source, filled.target), counts, strict=True)
            facts["vocabulary"] = {side: vocabulary(codec, seen) for side, codec, seen in codecs}
        if not writer.rows:
            for file in folder.glob(f"{name}[_.]*"):
                file.unlink()
    return facts


def _open(folder: Path, split: Split, fingerprint: str) -> Prepared:
    meta, source, target = (json.loads((folder / f"{name}.json").read_bytes()) for name in ("meta", "source", "target"))
    facts, notes = meta["facts"], [note for group in (*split.train, *split.valid) for note in group.notes]
    if sum(meta["sizes"].values()) > cache_check.AT_ONCE:
        cache_check.begin(folder)
    # The same contents may have had other names when they were numbered.
    names = dict(zip(meta["files"], split.files, strict=True))
    first = facts["skipped"]["first"]
    facts["skipped"]["first"] = [f"{names.get(file, file)}:{line}: {reason}" for file, line, reason in first]
    notes += [*meta["notes"], *skip_note(facts["skipped"])]
    return Prepared(
        source=Codec.from_json(source),
        target=Codec.from_json(target),
        train=Corpus(folder, "train", f"{fingerprint}-train"),
        valid=Corpus(folder, "valid", f"{fingerprint}-valid") if facts["valid"] else None,
        notes=notes,
        facts=facts | {"notes": notes},
        split=split,
    )


def _notes(split: Split, options: Numbering, filled: Filled, facts: dict[str, Any]) -> Iterator[str]:
    counts, train, held = filled.counts, facts["train"]["pairs"], facts["valid"]
    valid = held["pairs"] if held else 0
    yield from options.part_told("examples")
    if split.share and valid:
        largest = int(np.unique(np.concatenate(list(filled.hashes.values())), return_counts=True)[1].max())
        why = missed(valid, train + valid, split.share, largest) if options.rules > 1 else ""
        share = (
            f"held out {valid:,} of {train + valid:,} pairs ({valid / (train + valid):.1%}) by source for validation"
        )
        yield f"{share}, {why}" if why else share
    elif split.share:
        yield f"no pair was held out: {split.share:.1%} of {train:,} is too little; give a larger share or a file"
    elif shared := overlap(filled.hashes[False], filled.hashes[True]):
        of = f"{shared:,} of {len(filled.hashes[True]):,} validation sources"
        yield f"{of} stand in the training data too: scores on them say little about new ones"
    if counts["further"]:
        yield f"{counts['further']:,} of the pairs come from further columns or references of a line"
    if counts["cut"]:
        pairs = counted(counts["cut"], "pairs")
        yield f"{pairs} cut to {options.most('source'):,} tokens (the {options.cut} was dropped)"
    for side in SIDES if held else ():
        if unknown := held[side]["unknown_tokens"]:
            tokens = held[side]["tokens"]
            yield f"{unknown:,} of {tokens:,} {side} tokens for validation ({unknown / tokens:.2%}) are unknown"


def _nothing(split: Split, valid: int) -> str:
    files = ", ".join(str(group) for group in split.train)
    if valid and split.share:
        return f"{files}: all {valid:,} pairs were held out for validation; give a smaller share or more data"
    return f"{files}: holds no pairs"
