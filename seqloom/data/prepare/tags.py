"""From files of tagged sentences to a `TagReady`: cut, mended, split, numbered, and told about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Any

import numpy as np

from seqloom.data.batches.tags import Tagging, TagOptions, TagReady, Tags
from seqloom.data.batches.words import Lexicon, Types
from seqloom.data.encoding.encode import source_hash
from seqloom.data.encoding.statistics import COMMONEST, overlap, spread, vocabulary
from seqloom.data.encoding.tag_schemes import OUTSIDE, breaks, meant, odd, repaired, scheme_of
from seqloom.data.formats.bad_lines import Skipped
from seqloom.data.formats.conll import LONGEST, Found, Sentence, read
from seqloom.data.splits.holdout import missed
from seqloom.data.splits.split import Fold, Split
from seqloom.data.tokenizers.tokenizers import SPECIALS, UNK, normal
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.errors import SeqloomError
from seqloom.plural import counted


def prepare_tags(
    train: list[str],
    valid: list[str] | float | Fold,
    options: TagOptions,
    *,
    seed: int,
    kept: Mapping[str, Any] | None = None,
) -> TagReady:
    """Read and number tagged sentences; see `Task.prepare`. Words and characters are those of the training sentences,
    tags those of all: a tag that only the validation has is still a tag."""
    files = valid if isinstance(valid, list) else []
    given, held = _read(train, options), _read(files, options)
    every = [sentence.tags for one in (given, held) for sentence in one.sentences]
    scheme = scheme_of(every, most=options.recognise)
    fitting = Fitting(options, scheme, set(chain.from_iterable(every)))
    sentences, apart = fitting(given.sentences[: options.limit]), fitting(held.sentences)
    split = Split.of([], 0.0 if files else valid, seed=seed, reading=options)  # pyright: ignore[reportArgumentType]
    places, away = split.parted([normal(sentence.text, **options.ways) for sentence in sentences])
    inside = [sentences[place] for place in places.tolist()]
    outside = apart if files else [sentences[place] for place in away.tolist()]
    if not inside:
        raise SeqloomError(f"all {len(outside):,} sentences were held out for validation; give a smaller share")
    lexicon, rare = _lexicon(inside, options, kept or {})
    tags = _tags([*inside, *outside], fitting.scheme, kept or {})
    types = Types(lexicon)
    supplies = Tagging(inside, types, tags), Tagging(outside, types, tags) if outside else None
    facts = _facts(inside, outside, options, supplies, tags)
    facts["skipped"] = _left_out(given.skipped, held.skipped)
    notes = [*given.notes, *held.notes, *fitting.notes(), *_notes(facts, options, split, _largest(inside, outside))]
    return TagReady(*supplies, notes, facts | {"notes": notes}, lexicon, tags, rare, outside)


def fitted(sentences: Sequence[Sentence], options: TagOptions, tags: Tags) -> tuple[list[Sentence], list[str]]:
    """Sentences cut and mended as those of the training, and what there is to say about it."""
    fitting = Fitting(options, tags.scheme, {*tags.names, *chain.from_iterable(one.tags for one in sentences)})
    return fitting(sentences), list(fitting.notes())


def hashes(sentences: Sequence[Sentence], options: TagOptions, key: str) -> np.ndarray:
    """[sentences] uint64: sentences that are one to the model go to one side."""
    texts = (normal(sentence.text, **options.ways) for sentence in sentences)
    digests = b"".join(source_hash(text, key.encode()) for text in texts)
    return np.frombuffer(digests, ">u8").astype(np.uint64)


class Fitting:
    """Cuts long sentences and mends tags, and remembers how many."""

    def __init__(self, options: TagOptions, scheme: str | None, tags: Set[str]) -> None:
        """`tags`: all that the sentences have."""
        self.options, self._from = options, scheme
        strange = {tag for tag in tags if scheme is not None and odd(tag, scheme)}
        sound = [*sorted(tags - strange), OUTSIDE]
        self.odd = {tag: meant(tag, sound) for tag in sorted(strange)}  # and what each should probably be
        self.where: dict[str, list[str]] = {tag: [] for tag in self.odd}
        self.scheme = "bio" if scheme == "iob1" and options.repair else scheme
        self.cut = self.mended = self.broken = 0
        self.first = ""

    def __call__(self, sentences: Sequence[Sentence]) -> list[Sentence]:
        return [self._mend(self._cut(sentence)) for sentence in sentences]

    def _cut(self, sentence: Sentence) -> Sentence:
        most = self.options.max_length
        if most is None or len(sentence.words) <= most:
            return sentence
        self.cut += 1
        return Sentence(sentence.words[:most], sentence.tags[:most], sentence.file, sentence.lines[:most])

    def _mend(self, sentence: Sentence) -> Sentence:
        if self._from is None:
            return sentence
        if self.odd and not self.odd.keys().isdisjoint(sentence.tags):
            self._note(sentence)
        if self.options.repair:
            tags = tuple(repaired([self.odd.get(tag) or tag for tag in sentence.tags], self._from))
            self.mended += sum(map(str.__ne__, tags, sentence.tags))
            return sentence._replace(tags=tags)
        for place, reason in breaks(sentence.tags, self._from):
            self.broken += 1
            self.first = self.first or f"{sentence.file}:{sentence.lines[place] if sentence.lines else 0}: {reason}"
        return sentence

    def _note(self, sentence: Sentence) -> None:
        """Where odd tags stand."""
        for place, tag in enumerate(sentence.tags):
            if tag in self.odd:
                self.where[tag].append(f"{sentence.file}:{sentence.lines[place] if sentence.lines else 0}")

    def notes(self) -> Iterator[str]:
        if self.cut:
            yield f"{counted(self.cut, 'sentences')} cut to {self.options.max_length:,} words"
        found = {tag: where for tag, where in self.where.items() if where}
        if found:
            told = "; ".join(_told(tag, where, self.odd[tag]) for tag, where in list(found.items())[:5])
            more = f"; and {len(found) - 5:,} more kinds" if len(found) > 5 else ""
            mends = any(self.odd[tag] for tag in found) and not self.options.repair
            hint = "; data.repair=true mends those that are clear" if mends else ""
            total = counted(sum(map(len, found.values())), "tags")
            yield f"{total} not of the scheme {str(self._from).upper()}: {told}{more}{hint}"
        if self.mended:
            why = "IOB1 became BIO" if self._from == "iob1" else f"they broke the scheme {str(self._from).upper()}"
            yield f"{self.mended:,} tags were mended: {why}"
        if self.broken:
            broken = f"{self.broken:,} tags break the scheme {str(self._from).upper()}, the first at {self.first}"
            yield f"{broken}; data.repair=true mends them"


def _told(tag: str, where: list[str], probably: str | None) -> str:
    """One odd tag, its first places, and what it should be."""
    more = f" and {len(where) - 3:,} more" if len(where) > 3 else ""
    return f"{tag!r} at {', '.join(where[:3])}{more}{f' (did you mean {probably!r}?)' if probably else ''}"


def _read(files: list[str], options: TagOptions) -> Found:
    found = read(files, options, LONGEST if options.max_length is None else None)
    if files and not found.sentences:
        raise SeqloomError(f"{', '.join(files)}: holds no tagged sentences")
    return found


def _lexicon(sentences: list[Sentence], options: TagOptions, kept: Mapping[str, Any]) -> tuple[Lexicon, int]:
    """The vocabularies, and the first number of the words that were seen once."""
    shapes = Counter(normal(word, half_width=options.half_width) for sentence in sentences for word in sentence.words)
    counts = Counter[str]()
    for shape, count in shapes.items():
        counts[normal(shape, **options.ways)] += count
    if "source" in kept:
        words, rare = Codec.from_json(kept["source"]), kept["source"].get("rare")
    else:
        limits = {"max_vocab": options.max_vocab, "min_count": options.min_count}
        words, rare = Codec.of_counts("words", counts, **options.ways, **limits), None
        rare = len(SPECIALS) + sum(counts[token] > 1 for token in words.tokens)
    if "characters" in kept:
        characters = Codec.from_json(kept["characters"])
    else:
        characters = Codec.build("chars", shapes, half_width=options.half_width)
    return Lexicon(words, characters), words.size if rare is None else rare


def _tags(sentences: list[Sentence], scheme: str | None, kept: Mapping[str, Any]) -> Tags:
    if "tags" in kept:
        tags = Tags.from_json(kept["tags"])
        for sentence in sentences:
            for tag, line in zip(sentence.tags, sentence.lines, strict=True):
                if tag not in tags.numbers:
                    where = f"{sentence.file}:{line}: tag {tag!r}"
                    raise SeqloomError(f"{where} is unknown to the run that this one starts from")
        return tags
    counts = Counter(chain.from_iterable(sentence.tags for sentence in sentences))
    return Tags(tuple(sorted(counts, key=lambda tag: (-counts[tag], tag))), scheme)


def _facts(
    train: list[Sentence],
    valid: list[Sentence],
    options: TagOptions,
    supplies: tuple[Tagging, Tagging | None],
    tags: Tags,
) -> dict[str, Any]:
    """What the data is like: the run's data.json."""
    inside, outside = (hashes(sentences, options, "") for sentences in (train, valid))
    words = supplies[0].types.lexicon.words
    counts = np.bincount(supplies[0].numbers, minlength=words.size)
    labels = np.bincount(supplies[0].tags.ids, minlength=len(tags.names))
    common = sorted(zip(tags.names, labels.tolist(), strict=True), key=lambda pair: -pair[1])
    return {
        "train": _side(supplies[0], inside),
        "valid": None if supplies[1] is None else _side(supplies[1], outside),
        "overlap": overlap(inside, outside),
        "scheme": tags.scheme,
        "vocabulary": {
            "source": vocabulary(words, counts),
            "target": {"size": len(tags.names), "commonest": [list(pair) for pair in common[:COMMONEST]]},
        },
        "unseen_tags": [name for name, count in common if not count],
    }


def _side(supply: Tagging, found: np.ndarray) -> dict[str, Any]:
    numbers = supply.numbers
    unknown, lengths = int((numbers == UNK).sum()), spread(np.bincount(supply.words.lengths))
    share = {"unknown_tokens": unknown, "unknown": round(unknown / max(len(numbers), 1), 6)}
    return {
        "pairs": len(supply),
        "distinct_sources": len(np.unique(found)),
        "source": {"tokens": len(numbers), "lengths": lengths, **share},
        "target": {"tokens": len(numbers), "lengths": lengths},
    }


def _left_out(*several: Skipped) -> dict[str, Any]:
    both = Skipped(sum((one.reasons for one in several), Counter[str]()), [p for one in several for p in one.first])
    return both.to_json()


def _largest(*parts: list[Sentence]) -> int:
    """How often the commonest sentence stands."""
    return Counter(sentence.words for part in parts for sentence in part).most_common(1)[0][1]


def _notes(facts: dict[str, Any], options: TagOptions, split: Split, largest: int) -> Iterator[str]:
    train, held = facts["train"]["pairs"], facts["valid"]
    yield from options.part_told("sentences")
    if split.share and held:
        whole = train + held["pairs"]
        of = f"{held['pairs']:,} of {whole:,} sentences ({held['pairs'] / whole:.1%}) for validation"
        why = missed(held["pairs"], whole, split.share, largest) if options.rules > 1 else ""
        yield f"held out {of}, {why}" if why else f"held out {of}"
    elif split.share:
        yield f"no sentence was held out: {split.share:.1%} of {train:,} is too little; give a larger share or a file"
    elif shared := facts["overlap"]:
        yield f"{shared:,} of {held['pairs']:,} validation sentences stand in the training data too"
    if facts["scheme"]:
        yield f"the tags mark spans ({facts['scheme'].upper()})"
    if unseen := facts["unseen_tags"]:
        yield f"tags that only the validation data has: {', '.join(unseen[:5])}{' …' if len(unseen) > 5 else ''}"
    if held and (unknown := held["source"]["unknown_tokens"]):
        words, part = held["source"]["tokens"], held["source"]["unknown"]
        yield f"{unknown:,} of {words:,} words for validation ({part:.1%}) are unknown"
