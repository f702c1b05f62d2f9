"""Evaluates a tagger: scores, errors in context and examples as values for a report."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from seqloom.data.formats.conll import Sentence
from seqloom.decoding.batched import Answer
from seqloom.errors import SeqloomError
from seqloom.metrics.bootstrap import ratio_interval
from seqloom.metrics.span_f1 import TagSequences, by_type
from seqloom.tasks.shared.evaluation import common_details, error_by_length, finite

if TYPE_CHECKING:
    from seqloom.tasks.tag.model import TagModel

BUCKETS, SHOWN, CONFUSED, INVOLVED, CONTEXTS, AROUND = 6, 10, 20, 20, 30, 3


@dataclass(frozen=True, eq=False)
class ScoredExample:
    """One sentence: its true tags, and those that were written."""

    sentence: Sentence
    answer: Answer
    written: tuple[str, ...]
    unknown: tuple[bool, ...]  # words that were not seen in training

    @property
    def length(self) -> int:
        return len(self.written)

    @property
    def errors(self) -> int:
        return sum(map(str.__ne__, self.written, self.sentence.tags))

    def right(self, unknown: bool) -> tuple[int, int]:
        """Right tags, and all, of the unknown words or of the known ones."""
        pairs = zip(self.written, self.sentence.tags, self.unknown, strict=True)
        hits = [written == wanted for written, wanted, new in pairs if new == unknown]
        return sum(hits), len(hits)

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.sentence.text,
            "references": [" ".join(self.sentence.tags)],
            "prediction": self.answer.text,
            "log_probability": finite(round(self.answer.log_probability, 4)),
            "confidence": finite(round(self.answer.confidence, 4)),
            "edits": self.errors,
            "words": list(self.sentence.words),
            "pairs": [list(pair) for pair in zip(self.sentence.tags, self.written, strict=True)],
        }


def evaluation_details(runner: TagModel, examples: Sequence[Sentence], most: int = 1000) -> dict[str, Any]:
    """Evaluate on at most `most` sentences. Fit for `json.dump`.

    Sentences, if there are more, are chosen by a hash, so that other models are asked the same ones.
    """
    if not examples:
        raise SeqloomError("no sentences to evaluate on")
    asked = sorted(examples, key=lambda one: _hash(one, b""))[:most]
    started = time.monotonic()
    scored = runner.scored(asked)
    seconds = time.monotonic() - started
    known = [[one.sentence.words, one.sentence.tags] for one in scored]
    return {
        **common_details(runner, runner.score(scored), known, seconds, len(examples)),
        "lengths": by_length(scored),
        "examples": chosen(scored),
        "confusion": confusion(scored),
        "kinds": _kinds(scored, runner.tags.scheme),
        "spans": runner.tags.scheme is not None,
        "known_words": _share([one.right(unknown=False) for one in scored]),
        "unknown_words": _share([one.right(unknown=True) for one in scored]),
        "contexts": sorted(contexts(scored), key=lambda one: -(one["confidence"] or 0.0))[:CONTEXTS],
    }


def _kinds(scored: Sequence[ScoredExample], scheme: str | None) -> list[dict[str, Any]]:
    """Scores of each tag, or type of spans."""
    found = by_type(TagSequences([one.written for one in scored], [one.sentence.tags for one in scored], scheme))
    return [{name: round(v, 3) if isinstance(v, float) else v for name, v in asdict(one).items()} for one in found]


def _share(pairs: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Right of all, with its interval over sentences."""
    right, words = zip(*pairs, strict=True)
    low, high = ratio_interval(right, words)
    accuracy = 100 * sum(right) / sum(words) if sum(words) else None
    return {
        "words": sum(words),
        "accuracy": None if accuracy is None else round(accuracy, 3),
        "interval": [round(100 * low, 3), round(100 * high, 3)],
    }


def by_length(scored: Sequence[ScoredExample], buckets: int = BUCKETS) -> list[dict[str, Any]]:
    """The share of wrong tags by the length of the sentence."""
    return error_by_length([(one.length, one.errors, one.length) for one in scored], buckets)


def chosen(scored: Sequence[ScoredExample], count: int = SHOWN) -> dict[str, list[dict[str, Any]]]:
    """Some at random, by a hash of the sentence, the same for every model; and the worst, of equals the surest."""
    wrong = sorted(
        (one for one in scored if one.errors), key=lambda one: (-one.errors / one.length, -one.answer.confidence)
    )
    drawn = sorted(scored, key=lambda one: _hash(one.sentence, b"random"))
    picked = {"worst": wrong[:count], "random": drawn[:count]}
    return {name: [one.to_json() for one in several] for name, several in picked.items()}


def confusion(scored: Sequence[ScoredExample]) -> dict[str, Any]:
    """The commonest unlike pairs [wanted, written, count], and a table: `table[i][j]` counts how often `tokens[j]` was
    written where `tokens[i]` was wanted. The last row and column stand for no tag at all, as where texts are compared;
    here they are empty."""
    pairs = Counter(pair for one in scored for pair in zip(one.sentence.tags, one.written, strict=True))
    unlike = Counter({pair: count for pair, count in pairs.items() if pair[0] != pair[1]})
    involved = Counter[str]()
    for pair, count in unlike.items():
        involved.update(dict.fromkeys(pair, count))
    tokens = sorted(token for token, _ in involved.most_common(INVOLVED))
    places = [*tokens, None]
    return {
        "right": pairs.total() - unlike.total(),
        "substituted": unlike.total(),
        "pairs": [[*pair, count] for pair, count in unlike.most_common(CONFUSED)],
        "tokens": tokens,
        "table": [[unlike[(wanted, written)] for written in places] for wanted in places],
    }


def contexts(scored: Sequence[ScoredExample]) -> Iterator[dict[str, Any]]:
    """Every wrong tag with the words around it; of one sentence the first."""
    for one in scored:
        words = one.sentence.words
        pairs = zip(one.sentence.tags, one.written, strict=True)
        place = next((place for place, (wanted, written) in enumerate(pairs) if wanted != written), None)
        if place is None:
            continue
        yield {
            "before": list(words[max(place - AROUND, 0) : place]),
            "word": words[place],
            "after": list(words[place + 1 : place + 1 + AROUND]),
            "wanted": one.sentence.tags[place],
            "written": one.written[place],
            "unknown": one.unknown[place],
            "confidence": finite(round(one.answer.confidence, 4)),
        }


def _hash(sentence: Sentence, key: bytes) -> bytes:
    return hashlib.blake2b(sentence.text.encode(), key=key).digest()
