"""Pairs of source and target: read, split, encoded, and kept in a cache."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.data.batches.pairs import PairSource
from seqloom.data.encoding import cache_check
from seqloom.data.encoding.mmap_store import Writer
from seqloom.data.encoding.statistics import facts_of, overlap, vocabulary
from seqloom.data.encoding.text_options import TwoSideOptions
from seqloom.data.files.columns import LATEST, since
from seqloom.data.files.file_groups import FOLDER, inside
from seqloom.data.formats.bad_lines import Skipped
from seqloom.data.formats.bad_lines import note as skip_note
from seqloom.data.formats.pairs import Example, Group
from seqloom.data.prepare.cache import cached, fingerprint, tokenizer_versions
from seqloom.data.prepare.count_tokens import Codecs, EncodedPairs, encode_pairs
from seqloom.data.prepare.notes import held_out, in_both
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.splits.split import Split
from seqloom.data.tokenizers.tokenizers import make
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.errors import SeqloomError, setting_errors
from seqloom.files import MANIFEST, damage, sha256, write_json
from seqloom.plural import counted

__all__ = ["DataOptions", "PairSource", "PreparedPairs", "prepare_pairs"]

MEANING = 2  # of the numbers; a change here makes every cache new and lets no older run resume
LAYOUT = 3  # of the cache folder; a change here makes every cache new
HELD = "valid.jsonl"
SIDES = ("source", "target")
# Settings that came later, by their first names; left out of the fingerprint where unset, so that older runs go on.
LATER = {"half_width": False, "columns": None, "skip_bad": False, "limit": None, **LATEST}


@dataclass(frozen=True, kw_only=True)
class DataOptions(TwoSideOptions):
    """What is read, and how text becomes numbers: the `data` section of a run's configuration.

    `source_tokens`, `target_tokens`: chars, words, terms, jieba, bytes or bpe:N. The others are those of
    `CutTextOptions`.
    """

    source_tokens: str = "chars"
    target_tokens: str = "chars"

    def __post_init__(self) -> None:
        for name in ("source_tokens", "target_tokens"):
            with setting_errors(f"data.{name}"):
                make(getattr(self, name))
        super().__post_init__()

    def kind(self, side: str) -> str:
        return self.source_tokens if side == "source" else self.target_tokens


@dataclass(frozen=True, eq=False)
class PreparedPairs:
    """Data ready for training."""

    source: Codec
    target: Codec
    train: PairSource
    valid: PairSource | None  # None: nothing is held out
    notes: list[str]  # what the user should know, in sentences
    facts: dict[str, Any] = field(repr=False)  # what the data is like, as JSON can hold it; see `facts`
    split: Split = field(repr=False)

    def vocabularies(self) -> dict[str, Any]:
        return {"source": self.source.to_json(), "target": self.target.to_json()}

    def validation_examples(self) -> list[Example]:
        """The held-out examples as text: predictions are scored against them."""
        if self.valid is None:
            return []
        files = self.split.files
        with (self.valid.folder / HELD).open(encoding="utf-8") as lines:
            found = (json.loads(line) for line in lines)
            return [Example(source, tuple(targets), files[file], line) for file, line, source, targets in found]


def prepare_pairs(request: PrepareRequest[TwoSideOptions], codecs: Codecs | None = None) -> PreparedPairs:
    """The vocabularies come from the training examples alone, unless `codecs` of another run are given (None for a side
    that has none); those of the request are for the tasks to open."""
    options = request.options
    split = Split.of(request.train, request.valid, seed=request.seed, reading=options, **options.normalization)
    if not split.train:
        raise SeqloomError("no training files were given")
    name = fingerprint(_key(split, options, codecs))
    folder, made = cached(
        f"{name}-{LAYOUT}", request.cache, lambda fresh: _build(fresh, split, options, codecs), _intact
    )
    return _open(folder, split, name, made)


def _key(split: Split, options: TwoSideOptions, codecs: Codecs | None) -> dict[str, Any]:
    """All that decides the ids."""
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
    key |= tokenizer_versions(map(options.kind, SIDES))
    key["options"] = {name: value for name, value in since(options).items() if (name, value) not in LATER.items()}
    if not split.share:  # nothing is held out by any rules
        key["options"].pop("rules", None)
    return key


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
            PairSource(folder, name, "")  # its headers can be read
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SyntaxError, RecursionError):
        return False


def _build(folder: Path, split: Split, options: TwoSideOptions, codecs: Codecs | None) -> tuple[Codec, Codec]:
    """Fills the folder; returns the vocabularies of both sides."""
    skipped = Skipped() if options.skip_bad else None
    split = split.decided(lambda: split.parts(Skipped() if options.skip_bad else None, options.longest))
    with (
        Writer(folder, "train") as train,
        Writer(folder, "valid") as valid,
        (folder / HELD).open("w", encoding="utf-8") as held,
    ):
        encoded = encode_pairs(split, options, (train, valid), held, skipped, codecs)
    if not train.rows:
        raise SeqloomError(_nothing(split, valid.rows))
    facts = _settle(folder, encoded, {"train": train, "valid": valid})
    skipped = skipped or Skipped()
    first = [[problem.file, problem.line, problem.reason] for problem in skipped.first]
    facts["skipped"] = skipped.to_json() | {"first": first}
    write_json(folder / "source.json", encoded.source.to_json())
    write_json(folder / "target.json", encoded.target.to_json())
    sizes = {file.name: file.stat().st_size for file in sorted(folder.iterdir()) if file.suffix != ".json"}
    notes = list(_notes(split, options, encoded, facts))
    write_json(folder / "meta.json", {"sizes": sizes, "facts": facts, "notes": notes, "files": split.files})
    return encoded.source, encoded.target


def _settle(folder: Path, encoded: EncodedPairs, writers: dict[str, Writer]) -> dict[str, Any]:
    """Give all ids their final values, and describe the data."""
    facts: dict[str, Any] = {}
    for name, writer in writers.items():
        counts = writer.settle(*encoded.tables)
        hashes = encoded.hashes[name == "valid"]
        facts[name] = facts_of(PairSource(folder, name, ""), counts, hashes) if writer.rows else None
        if name == "train":
            codecs = zip(SIDES, (encoded.source, encoded.target), counts, strict=True)
            facts["vocabulary"] = {side: vocabulary(codec, seen) for side, codec, seen in codecs}
        if not writer.rows:
            for file in folder.glob(f"{name}[_.]*"):
                file.unlink()
    return facts


def _open(folder: Path, split: Split, name: str, made: tuple[Codec, Codec] | None) -> PreparedPairs:
    """`made`: the vocabularies, if they were just built; else they are read."""
    meta = json.loads((folder / "meta.json").read_bytes())
    source, target = made or (Codec.from_json(json.loads((folder / f"{side}.json").read_bytes())) for side in SIDES)
    facts, notes = meta["facts"], [note for group in (*split.train, *split.valid) for note in group.notes]
    if sum(meta["sizes"].values()) > cache_check.AT_ONCE:
        cache_check.begin(folder)
    # The same contents may have had other names when they were encoded.
    names = dict(zip(meta["files"], split.files, strict=True))
    first = facts["skipped"]["first"]
    facts["skipped"]["first"] = [f"{names.get(file, file)}:{line}: {reason}" for file, line, reason in first]
    notes += [*meta["notes"], *skip_note(facts["skipped"])]
    return PreparedPairs(
        source=source,
        target=target,
        train=PairSource(folder, "train", f"{name}-train"),
        valid=PairSource(folder, "valid", f"{name}-valid") if facts["valid"] else None,
        notes=notes,
        facts=facts | {"notes": notes},
        split=split,
    )


def _notes(split: Split, options: TwoSideOptions, encoded: EncodedPairs, facts: dict[str, Any]) -> Iterator[str]:
    counts, train, held = encoded.counts, facts["train"]["pairs"], facts["valid"]
    valid = held["pairs"] if held else 0
    yield from options.subset_notes("examples")
    hashes = encoded.hashes[False], encoded.hashes[True]
    if split.share:
        largest = int(np.unique(np.concatenate(hashes), return_counts=True)[1].max())
        yield from held_out(split, "pairs", train, valid, by="by source ", largest=largest)
    else:
        yield from in_both(overlap(*hashes), len(hashes[1]), "sources")
    if counts["further"]:
        yield f"{counts['further']:,} of the pairs come from further columns or references of a line"
    if counts["cut"]:
        pairs = counted(counts["cut"], "pairs")
        yield f"{pairs} cut to {options.most('source'):,} tokens (the {options.truncate} was dropped)"
    for side in SIDES if held else ():
        if unknown := held[side]["unknown_tokens"]:
            tokens = held[side]["tokens"]
            yield f"{unknown:,} of {tokens:,} {side} tokens for validation ({unknown / tokens:.2%}) are unknown"


def _nothing(split: Split, valid: int) -> str:
    files = ", ".join(str(group) for group in split.train)
    if valid and split.share:
        return f"{files}: all {valid:,} pairs were held out for validation; give a smaller share or more data"
    return f"{files}: holds no pairs"
