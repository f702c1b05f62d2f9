"""Tagged sentences: read, truncated, repaired, split, and encoded in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Any

import numpy as np

from seqloom.data.batches.tags import PreparedTags, TagOptions, Tags, TagSource
from seqloom.data.batches.words import Lexicon, WordTable
from seqloom.data.encoding.encode import source_hash
from seqloom.data.encoding.statistics import MOST_COMMON, count_shared, length_statistics, vocabulary_facts
from seqloom.data.encoding.tag_schemes import (
    OUTSIDE,
    detect_scheme,
    not_in_scheme,
    repair_tags,
    suggest_tag,
    violations,
)
from seqloom.data.formats.bad_lines import Skipped
from seqloom.data.formats.conll import LONGEST, Sentence, TaggedSentences, read
from seqloom.data.prepare.notes import held_out_notes, overlap_notes
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.splits.split import Split
from seqloom.data.tokenizers.tokenizers import SPECIALS, UNK, normalize
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.errors import SeqloomError
from seqloom.plural import counted


def prepare_tags(request: PrepareRequest[TagOptions]) -> PreparedTags:
    """Words and characters come from the training sentences, tags from all sentences."""
    options, files, stored = request.options, request.valid_files, request.vocabularies or {}
    given, held = _read(request.train, options), _read(files, options)
    every = [sentence.tags for one in (given, held) for sentence in one.sentences]
    scheme = detect_scheme(every, majority=options.detect)
    cleaner = TagCleaner(options, scheme, set(chain.from_iterable(every)))
    sentences, apart = cleaner(given.sentences[: options.limit]), cleaner(held.sentences)
    split = Split.of([], request.share, seed=request.seed, reading=options)
    places, away = split.split_texts([normalize(sentence.text, **options.normalization) for sentence in sentences])
    inside = [sentences[place] for place in places.tolist()]
    outside = apart if files else [sentences[place] for place in away.tolist()]
    if not inside:
        raise SeqloomError(f"all {len(outside):,} sentences were held out for validation; give a smaller share")
    lexicon, rare = _lexicon(inside, options, stored)
    tags = _tags([*inside, *outside], cleaner.scheme, stored)
    types = WordTable(lexicon)
    sources = TagSource(inside, types, tags), TagSource(outside, types, tags) if outside else None
    facts = _facts(inside, outside, options, sources, tags)
    skipped = [given.skipped, held.skipped]
    reasons = sum((one.reasons for one in skipped), Counter[str]())
    facts["skipped"] = Skipped(reasons, [problem for one in skipped for problem in one.first]).to_json()
    largest = Counter(sentence.words for sentence in (*inside, *outside)).most_common(1)[0][1]
    notes = [*given.notes, *held.notes, *cleaner.notes(), *_notes(facts, options, split, largest)]
    return PreparedTags(*sources, notes, facts | {"notes": notes}, lexicon, tags, rare, outside)


def clean_tags(sentences: Sequence[Sentence], options: TagOptions, tags: Tags) -> tuple[list[Sentence], list[str]]:
    """Sentences truncated and repaired as in the training, and notes."""
    cleaner = TagCleaner(options, tags.scheme, {*tags.names, *chain.from_iterable(one.tags for one in sentences)})
    return cleaner(sentences), list(cleaner.notes())


def sentence_hashes(sentences: Sequence[Sentence], options: TagOptions, key: str) -> np.ndarray:
    """[sentences] uint64: hashes of normalized sentences."""
    texts = (normalize(sentence.text, **options.normalization) for sentence in sentences)
    digests = b"".join(source_hash(text, key.encode()) for text in texts)
    return np.frombuffer(digests, ">u8").astype(np.uint64)


class TagCleaner:
    """Truncates long sentences and repairs tags, and counts both."""

    def __init__(self, options: TagOptions, scheme: str | None, tags: Set[str]) -> None:
        """`tags`: all that the sentences have."""
        self.options, self._from = options, scheme
        odd_tags = {tag for tag in tags if scheme is not None and not_in_scheme(tag, scheme)}
        sound = [*sorted(tags - odd_tags), OUTSIDE]
        self.invalid = {tag: suggest_tag(tag, sound) for tag in sorted(odd_tags)}  # with suggestions
        self.where: dict[str, list[str]] = {tag: [] for tag in self.invalid}
        self.scheme = "bio" if scheme == "iob1" and options.repair_tags else scheme
        self.cut = self.repaired = self.broken = 0
        self.first = ""

    def __call__(self, sentences: Sequence[Sentence]) -> list[Sentence]:
        return [self._repair(self._cut(sentence)) for sentence in sentences]

    def _cut(self, sentence: Sentence) -> Sentence:
        most = self.options.max_length
        if most is None or len(sentence.words) <= most:
            return sentence
        self.cut += 1
        return Sentence(sentence.words[:most], sentence.tags[:most], sentence.file, sentence.lines[:most])

    def _repair(self, sentence: Sentence) -> Sentence:
        if self._from is None:
            return sentence
        if self.invalid and not self.invalid.keys().isdisjoint(sentence.tags):
            self._note(sentence)
        if self.options.repair_tags:
            tags = tuple(repair_tags([self.invalid.get(tag) or tag for tag in sentence.tags], self._from))
            self.repaired += sum(map(str.__ne__, tags, sentence.tags))
            return sentence._replace(tags=tags)
        for place, reason in violations(sentence.tags, self._from):
            self.broken += 1
            self.first = self.first or f"{sentence.file}:{sentence.lines[place] if sentence.lines else 0}: {reason}"
        return sentence

    def _note(self, sentence: Sentence) -> None:
        """Record the positions of invalid tags."""
        for place, tag in enumerate(sentence.tags):
            if tag in self.invalid:
                self.where[tag].append(f"{sentence.file}:{sentence.lines[place] if sentence.lines else 0}")

    def notes(self) -> Iterator[str]:
        if self.cut:
            yield f"{counted(self.cut, 'sentences')} cut to {self.options.max_length:,} words"
        found = {tag: where for tag, where in self.where.items() if where}
        if found:
            shown = "; ".join(_describe(tag, where, self.invalid[tag]) for tag, where in list(found.items())[:5])
            more = f"; and {len(found) - 5:,} more kinds" if len(found) > 5 else ""
            repairable = any(self.invalid[tag] for tag in found) and not self.options.repair_tags
            hint = "; data.repair_tags=true repairs those that are clear" if repairable else ""
            total = counted(sum(map(len, found.values())), "tags")
            yield f"{total} not of the scheme {str(self._from).upper()}: {shown}{more}{hint}"
        if self.repaired:
            why = "IOB1 became BIO" if self._from == "iob1" else f"they broke the scheme {str(self._from).upper()}"
            yield f"{self.repaired:,} tags were repaired: {why}"
        if self.broken:
            broken = f"{self.broken:,} tags break the scheme {str(self._from).upper()}, the first at {self.first}"
            yield f"{broken}; data.repair_tags=true repairs them"


def _describe(tag: str, where: list[str], suggestion: str | None) -> str:
    """An invalid tag, its first positions, and a suggestion."""
    more = f" and {len(where) - 3:,} more" if len(where) > 3 else ""
    return f"{tag!r} at {', '.join(where[:3])}{more}{f' (did you mean {suggestion!r}?)' if suggestion else ''}"


def _read(files: list[str], options: TagOptions) -> TaggedSentences:
    found = read(files, options, LONGEST if options.max_length is None else None)
    if files and not found.sentences:
        raise SeqloomError(f"{', '.join(files)}: holds no tagged sentences")
    return found


def _lexicon(sentences: list[Sentence], options: TagOptions, kept: Mapping[str, Any]) -> tuple[Lexicon, int]:
    """The vocabularies, and the first id of the words that were seen once."""
    shapes = Counter(
        normalize(word, half_width=options.half_width) for sentence in sentences for word in sentence.words
    )
    counts = Counter[str]()
    for shape, count in shapes.items():
        counts[normalize(shape, **options.normalization)] += count
    if "source" in kept:
        words, rare = Codec.from_json(kept["source"]), kept["source"].get("rare")
    else:
        limits = {"max_vocab": options.max_vocab, "min_count": options.min_count}
        words, rare = Codec.from_counts("words", counts, **options.normalization, **limits), None
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
    sources: tuple[TagSource, TagSource | None],
    tags: Tags,
) -> dict[str, Any]:
    """Statistics for data.json."""
    inside, outside = (sentence_hashes(sentences, options, "") for sentences in (train, valid))
    words = sources[0].types.lexicon.words
    counts = np.bincount(sources[0].numbers, minlength=words.size)
    labels = np.bincount(sources[0].tags.ids, minlength=len(tags.names))
    common = sorted(zip(tags.names, labels.tolist(), strict=True), key=lambda pair: -pair[1])
    return {
        "train": _side(sources[0], inside),
        "valid": None if sources[1] is None else _side(sources[1], outside),
        "overlap": count_shared(inside, outside),
        "scheme": tags.scheme,
        "vocabulary": {
            "source": vocabulary_facts(words, counts),
            "target": {"size": len(tags.names), "commonest": [list(pair) for pair in common[:MOST_COMMON]]},
        },
        "unseen_tags": [name for name, count in common if not count],
    }


def _side(source: TagSource, found: np.ndarray) -> dict[str, Any]:
    numbers = source.numbers
    unknown, lengths = int((numbers == UNK).sum()), length_statistics(np.bincount(source.words.lengths))
    share = {"unknown_tokens": unknown, "unknown": round(unknown / max(len(numbers), 1), 6)}
    return {
        "pairs": len(source),
        "distinct_sources": len(np.unique(found)),
        "source": {"tokens": len(numbers), "lengths": lengths, **share},
        "target": {"tokens": len(numbers), "lengths": lengths},
    }


def _notes(facts: dict[str, Any], options: TagOptions, split: Split, largest: int) -> Iterator[str]:
    """`largest`: count of the most frequent sentence."""
    train, held = facts["train"]["pairs"], facts["valid"]
    yield from options.subset_notes("sentences")
    valid = held["pairs"] if held else 0
    yield from held_out_notes(split, "sentences", train, valid, largest=largest)
    if not split.share:
        yield from overlap_notes(facts["overlap"], valid, "sentences")
    if facts["scheme"]:
        yield f"the tags mark spans ({facts['scheme'].upper()})"
    if unseen := facts["unseen_tags"]:
        yield f"tags that only the validation data has: {', '.join(unseen[:5])}{' …' if len(unseen) > 5 else ''}"
    if held and (unknown := held["source"]["unknown_tokens"]):
        words, part = held["source"]["tokens"], held["source"]["unknown"]
        yield f"{unknown:,} of {words:,} words for validation ({part:.1%}) are unknown"
