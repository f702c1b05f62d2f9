"""From the user's files to numbered examples, kept in a cache: the second run on the same data starts at once."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import shutil
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from seqloom.data.batch import cut
from seqloom.data.codec import Codec
from seqloom.data.read import Example, Group
from seqloom.data.split import Split
from seqloom.data.store import Corpus, Writer
from seqloom.data.tokens import SPECIALS, UNK, make
from seqloom.errors import SeqloomError, known
from seqloom.files import MANIFEST, default_cache, new_folder, sha256, write_json

__all__ = ["Corpus", "DataOptions", "Prepared", "prepare"]

LAYOUT = 2  # of the cache folder and of what encoding means; a change here makes every cache new


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """How text becomes numbers: the `data` section of a run's configuration.

    `source_tokens`, `target_tokens`: chars, words, jieba, bytes or bpe:N. `fold`: lose the difference of upper and
    lower case. `half_width`: full-width letters, digits and signs become plain ones. `max_vocab`: ids a side at most,
    the four specials included. `min_count`: rarer tokens become <unk>. `max_length`: tokens a side at most, specials
    not counted; of longer texts `cut` says which end is dropped: "tail" (the beginning stays) or "head" (the end
    stays).
    """

    source_tokens: str = "chars"
    target_tokens: str = "chars"
    fold: bool = False
    half_width: bool = False
    max_vocab: int | None = None
    min_count: int = 1
    max_length: int | None = None
    cut: str = "tail"

    def __post_init__(self):
        make(self.source_tokens)
        make(self.target_tokens)
        known(self.cut, ("head", "tail"), "end to cut")
        _at_least("max_vocab", self.max_vocab, len(SPECIALS) + 1)
        _at_least("min_count", self.min_count, 1)
        _at_least("max_length", self.max_length, 1)


@dataclass(frozen=True, eq=False)
class Prepared:
    """Data ready for training."""

    source: Codec
    target: Codec
    train: Corpus
    valid: Corpus | None  # None: nothing is held out
    notes: list[str]  # what the user should know, in sentences
    split: Split = field(repr=False)

    def valid_examples(self) -> list[Example]:
        """The held-out examples as text, read again from the files: predictions are scored against them."""
        return list(self.split.held_out())


def prepare(
    train: list[str],
    valid: list[str] | float,
    options: DataOptions | None = None,
    *,
    seed: int,
    cache: Path | None = None,
) -> Prepared:
    """Read, number and cache the data.

    `train`: files (see `read.group`). `valid`: files, or the share of the training data to hold out (0: none). The
    vocabularies come from the training examples alone. `cache`: a folder; else $SEQLOOM_CACHE or ~/.cache/seqloom.
    """
    options = options or DataOptions()
    split = Split.of(train, valid, seed=seed, fold=options.fold, half_width=options.half_width)
    if not split.train:
        raise SeqloomError("no training files were given")
    fingerprint = _fingerprint(split, options)
    folder = (cache or default_cache()) / fingerprint
    if not _intact(folder):
        _build(folder, split, options)
    return _open(folder, split, fingerprint)


def _at_least(name: str, value: int | None, least: int) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
        raise SeqloomError(f"{name} must be a whole number of {least} or more, not {value!r}")


def _fingerprint(split: Split, options: DataOptions) -> str:
    """SHA-256 over all that decides the numbers: contents, not names or dates of files."""
    key: dict[str, Any] = {"layout": LAYOUT, "unicode": unicodedata.unidata_version, "options": asdict(options)}
    key["train"] = [_content(group) for group in split.train]
    key["valid"] = [_content(group) for group in split.valid]
    if split.share:
        key["share"], key["seed"] = split.share, split.seed
    if "bpe" in options.source_tokens + options.target_tokens:
        key["tokenizers"] = importlib.metadata.version("tokenizers")
    if "jieba" in (options.source_tokens, options.target_tokens):
        make("jieba").split("")  # says which package is missing before its version is asked for
        key["rjieba"] = importlib.metadata.version("rjieba")
    if not options.half_width:
        del key["options"]["half_width"]  # caches and runs made before it was an option stay good
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


def _content(group: Group) -> list[str]:
    try:
        return [group.form, *(f"{sha256(path)}{path.suffix if path.suffix == '.gz' else ''}" for path in group.paths)]
    except OSError as error:
        raise SeqloomError(f"{group}: cannot be read: {error.strerror or error}") from error


def _intact(folder: Path) -> bool:
    """Small files by checksum, large ones by size: a full check would cost as much as a rebuild."""
    try:
        sums = json.loads((folder / MANIFEST).read_bytes())
        small = ("meta.json", "source.json", "target.json")
        if any(sha256(folder / name) != sums[name] for name in small):
            return False
        sizes = json.loads((folder / "meta.json").read_bytes())["sizes"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _build(folder: Path, split: Split, options: DataOptions) -> None:
    if folder.exists():  # damaged; a whole one that somebody else finishes meanwhile is left alone
        shutil.rmtree(folder, ignore_errors=True)
    with new_folder(folder, keep_existing=True) as fresh:
        source, target = _learn(split, options)
        with Writer(fresh, "train") as train, Writer(fresh, "valid") as valid:
            counts = _encode(split, source, target, options, (train, valid))
        if not train.rows:
            raise SeqloomError(_nothing(split, valid.rows))
        if not valid.rows:
            for file in fresh.glob("valid_*.npy"):
                file.unlink()
        write_json(fresh / "source.json", source.to_json())
        write_json(fresh / "target.json", target.to_json())
        sizes = {file.name: file.stat().st_size for file in sorted(fresh.glob("*.npy"))}
        notes = list(_notes(split, options, counts, train.rows, valid.rows))
        write_json(fresh / "meta.json", {"sizes": sizes, "valid": valid.rows > 0, "notes": notes})


def _open(folder: Path, split: Split, fingerprint: str) -> Prepared:
    meta, source, target = (json.loads((folder / f"{name}.json").read_bytes()) for name in ("meta", "source", "target"))
    return Prepared(
        source=Codec.from_json(source),
        target=Codec.from_json(target),
        train=Corpus(folder, "train", f"{fingerprint}-train"),
        valid=Corpus(folder, "valid", f"{fingerprint}-valid") if meta["valid"] else None,
        notes=meta["notes"],
        split=split,
    )


def _learn(split: Split, options: DataOptions) -> tuple[Codec, Codec]:
    """The vocabularies of both sides, from the training examples."""
    limits = {name: getattr(options, name) for name in ("fold", "half_width", "max_vocab", "min_count")}
    sources = (example.source for example in split.training())
    targets = (target for example in split.training() for target in example.targets)
    source = Codec.build(options.source_tokens, sources, **limits)
    return source, Codec.build(options.target_tokens, targets, **limits)


def _encode(
    split: Split, source: Codec, target: Codec, options: DataOptions, writers: tuple[Writer, Writer]
) -> Counter[str]:
    """Write every row; count what the notes tell."""
    counts: Counter[str] = Counter()
    for example, held in split.entries():
        whole = source.encode(example.source)
        left = cut(whole, options.max_length, options.cut)
        for number, text in enumerate(example.targets):
            full = target.encode(text)
            right = cut(full, options.max_length, options.cut)
            writers[held].add(left, right)
            counts["further"] += number > 0
            counts["cut"] += len(left) < len(whole) or len(right) < len(full)
            if held:
                for side, ids in (("source", left), ("target", right)):
                    counts[f"{side} unknown"] += ids.count(UNK)
                    counts[f"{side} tokens"] += len(ids)
    return counts


def _notes(split: Split, options: DataOptions, counts: Counter[str], train: int, valid: int) -> Iterator[str]:
    total = train + valid
    if split.share and valid:
        yield f"held out {valid:,} of {total:,} pairs ({valid / total:.1%}) by source for validation"
    elif split.share:
        yield f"no pair was held out: {split.share:.1%} of {total:,} is too little; give a larger share or a file"
    if counts["further"]:
        yield f"{counts['further']:,} of the pairs come from further columns or references of a line"
    if counts["cut"]:
        pairs = "pair" if counts["cut"] == 1 else "pairs"
        yield f"{counts['cut']:,} {pairs} cut to {options.max_length:,} tokens (the {options.cut} was dropped)"
    for side in ("source", "target"):
        if unknown := counts[f"{side} unknown"]:
            tokens = counts[f"{side} tokens"]
            yield f"{unknown:,} of {tokens:,} {side} tokens for validation ({unknown / tokens:.2%}) are unknown"


def _nothing(split: Split, valid: int) -> str:
    files = ", ".join(str(group) for group in split.train)
    if valid and split.share:
        return f"{files}: all {valid:,} pairs were held out for validation; give a smaller share or more data"
    return f"{files}: holds no pairs"
