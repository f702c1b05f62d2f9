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
from seqloom.data.encoding.mmap_store import PairWriter
from seqloom.data.encoding.statistics import count_shared, pair_facts, vocabulary_facts
from seqloom.data.encoding.text_options import TwoSideOptions
from seqloom.data.files.columns import LATER_DEFAULTS, cache_settings
from seqloom.data.files.file_groups import FOLDER, labelled_files
from seqloom.data.formats.bad_lines import Skipped
from seqloom.data.formats.bad_lines import skipped_notes as skip_note
from seqloom.data.formats.pairs import Example, Group
from seqloom.data.prepare.cache import cached, fingerprint, tokenizer_versions
from seqloom.data.prepare.count_tokens import Codecs, EncodedPairs, encode_pairs
from seqloom.data.prepare.notes import held_out_notes, overlap_notes
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.splits.split import Split
from seqloom.data.tokenizers.tokenizers import make_tokenizer
from seqloom.data.tokenizers.vocabulary import Codec, Vocabularies
from seqloom.errors import SeqloomError, setting_errors
from seqloom.files import MANIFEST, damage, sha256, write_json
from seqloom.plural import counted

__all__ = ["DataOptions", "PairSource", "PreparedPairs", "prepare_pairs"]

MEANING = 2  # version of the ids; a change invalidates caches and keeps older runs from resuming
LAYOUT = 3  # version of the cache folder; a change invalidates caches
HELD = "valid.jsonl"
SIDES = ("source", "target")
# Settings that came later, by their first names; left out of the fingerprint where unset, so that older runs go on.
LATER = {"half_width": False, "columns": None, "skip_bad": False, "limit": None, **LATER_DEFAULTS}


@dataclass(frozen=True, kw_only=True)
class DataOptions(TwoSideOptions):
    """The `data` section of the configuration: what is read, and how text is encoded.

    `source_tokens`, `target_tokens`: chars, words, terms, jieba, bytes or bpe:N. The others are those of
    `CutTextOptions`.
    """

    source_tokens: str = "chars"
    target_tokens: str = "chars"

    def __post_init__(self) -> None:
        for name in ("source_tokens", "target_tokens"):
            with setting_errors(f"data.{name}"):
                make_tokenizer(getattr(self, name))
        super().__post_init__()

    def tokens_of(self, side: str) -> str:
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

    def vocabularies(self) -> Vocabularies:
        return Vocabularies(source=self.source, target=self.target)

    def validation_examples(self) -> list[Example]:
        """The held-out examples as text: predictions are scored against them."""
        if self.valid is None:
            return []
        files = self.split.files
        with (self.valid.folder / HELD).open(encoding="utf-8") as lines:
            found = (json.loads(line) for line in lines)
            return [Example(source, tuple(targets), files[file], line) for file, line, source, targets in found]


def prepare_pairs(request: PrepareRequest[TwoSideOptions], codecs: Codecs | None = None) -> PreparedPairs:
    """Vocabularies come from the training examples, unless `codecs` of another run are given (None for a side without
    one). Tasks turn the vocabularies of the request into codecs."""
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
    """Everything that determines the ids."""
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
    if clean := options.cleaning_of("source"):  # stop words may come from a file
        key["clean"] = clean
    key |= tokenizer_versions(map(options.tokens_of, SIDES))
    key["options"] = {
        name: value for name, value in cache_settings(options).items() if (name, value) not in LATER.items()
    }
    if not split.share:  # nothing is held out by a split version
        key["options"].pop("rules", None)
    return key


def _content(group: Group) -> list[str]:
    try:
        if group.form == FOLDER:
            texts = (f"{label}/{path.name} {sha256(path)}" for label, path in labelled_files(group.paths[0]))
            return [FOLDER, *texts, *group.non_default]
        found = (f"{sha256(path)}{path.suffix if path.suffix == '.gz' else ''}" for path in group.paths)
        return [group.form, *found, *group.non_default]
    except OSError as error:
        raise SeqloomError(f"{group}: cannot be read: {error.strerror or error}") from error


def _intact(folder: Path) -> bool:
    """Small caches by checksum; of large ones small files and sizes, the rest is verified during the training."""
    try:
        sums = json.loads((folder / MANIFEST).read_bytes())
        small = ("meta.json", "source.json", "target.json")
        if any(sha256(folder / name) != sums[name] for name in small):
            return False
        sizes = json.loads((folder / "meta.json").read_bytes())["sizes"]
        if sum(sizes.values()) <= cache_check.SMALL_CACHE:
            return damage(folder) is None
        for name in {"train", "valid"} if "valid_source_ids.npy" in sizes else {"train"}:
            PairSource(folder, name, "")  # reads its headers
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SyntaxError, RecursionError):
        return False


def _build(folder: Path, split: Split, options: TwoSideOptions, codecs: Codecs | None) -> tuple[Codec, Codec]:
    """Fills the folder; returns the vocabularies of both sides."""
    skipped = Skipped() if options.skip_bad else None
    split = split.decide(lambda: split.training_parts(Skipped() if options.skip_bad else None, options.max_characters))
    with (
        PairWriter(folder, "train") as train,
        PairWriter(folder, "valid") as valid,
        (folder / HELD).open("w", encoding="utf-8") as held,
    ):
        encoded = encode_pairs(split, options, (train, valid), held, skipped, codecs)
    if not train.rows:
        raise SeqloomError(_no_pairs_message(split, valid.rows))
    facts = _finalize(folder, encoded, {"train": train, "valid": valid})
    skipped = skipped or Skipped()
    first = [[problem.file, problem.line, problem.reason] for problem in skipped.first]
    facts["skipped"] = skipped.to_json() | {"first": first}
    write_json(folder / "source.json", encoded.source.to_json())
    write_json(folder / "target.json", encoded.target.to_json())
    sizes = {file.name: file.stat().st_size for file in sorted(folder.iterdir()) if file.suffix != ".json"}
    notes = list(_notes(split, options, encoded, facts))
    write_json(folder / "meta.json", {"sizes": sizes, "facts": facts, "notes": notes, "files": split.files})
    return encoded.source, encoded.target


def _finalize(folder: Path, encoded: EncodedPairs, writers: dict[str, PairWriter]) -> dict[str, Any]:
    """Map all ids to final ones, and collect statistics."""
    facts: dict[str, Any] = {}
    for name, writer in writers.items():
        counts = writer.finalize(*encoded.tables)
        hashes = encoded.hashes[name == "valid"]
        facts[name] = pair_facts(PairSource(folder, name, ""), counts, hashes) if writer.rows else None
        if name == "train":
            codecs = zip(SIDES, (encoded.source, encoded.target), counts, strict=True)
            facts["vocabulary"] = {side: vocabulary_facts(codec, seen) for side, codec, seen in codecs}
        if not writer.rows:
            for file in folder.glob(f"{name}[_.]*"):
                file.unlink()
    return facts


def _open(folder: Path, split: Split, name: str, made: tuple[Codec, Codec] | None) -> PreparedPairs:
    """Open the cache. `made`: the vocabularies, if just built."""
    meta = json.loads((folder / "meta.json").read_bytes())
    source, target = made or (Codec.from_json(json.loads((folder / f"{side}.json").read_bytes())) for side in SIDES)
    facts, notes = meta["facts"], [note for group in (*split.train, *split.valid) for note in group.notes]
    if sum(meta["sizes"].values()) > cache_check.SMALL_CACHE:
        cache_check.start_check(folder)
    # The same contents may have been encoded under other file names.
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
        yield from held_out_notes(split, "pairs", train, valid, by="by source ", largest=largest)
    else:
        yield from overlap_notes(count_shared(*hashes), len(hashes[1]), "sources")
    if counts["further"]:
        yield f"{counts['further']:,} of the pairs come from further columns or references of a line"
    if counts["cut"]:
        pairs = counted(counts["cut"], "pairs")
        yield f"{pairs} cut to {options.max_length_of('source'):,} tokens (the {options.truncate} was dropped)"
    for side in SIDES if held else ():
        if unknown := held[side]["unknown_tokens"]:
            tokens = held[side]["tokens"]
            yield f"{unknown:,} of {tokens:,} {side} tokens for validation ({unknown / tokens:.2%}) are unknown"


def _no_pairs_message(split: Split, valid: int) -> str:
    files = ", ".join(str(group) for group in split.train)
    if valid and split.share:
        return f"{files}: all {valid:,} pairs were held out for validation; give a smaller share or more data"
    return f"{files}: holds no pairs"
