"""Evaluates a translation model: scores, errors, examples and an attention map as values for a report."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from seqloom.data.formats.pairs import Example
from seqloom.decoding.batched import Answer
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError
from seqloom.inspection.attention_maps import attention_maps
from seqloom.metrics.text.bleu_chrf import tokenizer
from seqloom.metrics.text.edit_alignment import Pair, align, closest
from seqloom.tasks.shared.evaluation import common_details, error_by_length, finite
from seqloom.tasks.translate.model import Translator
from seqloom.training.validation import group_by_source, subsample

BUCKETS, SHOWN, CONFUSED, INVOLVED = 6, 10, 20, 15
LONGEST_PICTURE = 40  # tokens a side of the attention picture: more would not be readable


@dataclass(frozen=True, eq=False)
class ScoredExample:
    """One held-out source: what was wanted, what was written, and how the two differ."""

    source: str
    references: list[str]  # the closest first
    answer: Answer
    length: int  # tokens of the source
    pairs: list[Pair]  # of the closest reference

    @property
    def edits(self) -> int:
        return sum(wanted != written for wanted, written in self.pairs)

    @property
    def wanted(self) -> int:
        return sum(wanted is not None for wanted, _ in self.pairs)

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "references": self.references,
            "prediction": self.answer.text,
            "log_probability": finite(round(self.answer.log_probability, 4)),
            "confidence": finite(round(self.answer.confidence, 4)),
            "edits": self.edits,
            "pairs": self.pairs,
        }


def evaluation_details(
    translator: Translator,
    examples: Sequence[Example],
    search: Search | None = None,
    *,
    most: int = 1000,
    tokenize: str = "13a",
) -> dict[str, Any]:
    """Evaluate on at most `most` distinct sources; all targets of one are its references. Fit for `json.dump`.

    `tokenize` is BLEU's tokenizer. Sources, if there are more, are chosen by a hash, so that other models are asked
    the same ones.
    """
    search = search or Search()
    every = group_by_source(examples)
    tokenizer(tokenize)  # else it would be refused when all is decoded
    grouped = subsample(every, most)
    if not grouped:
        raise SeqloomError("no examples to evaluate on")
    started = time.monotonic()
    answers = [found[0] for found in translator.answers(grouped, search)]
    seconds = time.monotonic() - started
    asked = [Example(source, tuple(targets), "", 0) for source, targets in grouped.items()]
    scores = translator.score(asked, [answer.text for answer in answers], tokenize=tokenize)
    scored = [_compare(translator, *one) for one in zip(grouped.items(), answers, strict=True)]
    return {
        **common_details(translator, scores, sorted(grouped.items()), seconds, len(every)),
        "search": asdict(search),
        "lengths": by_length(scored),
        "examples": chosen(scored),
        "confusion": confusion(scored),
        "attention": attention(translator, scored),
    }


def _compare(translator: Translator, asked: tuple[str, list[str]], answer: Answer) -> ScoredExample:
    source, targets = asked
    codec = translator.texts.target
    written = codec.display_tokens(answer.text)
    pieces = {text: codec.display_tokens(text) for text in map(codec.normalize, targets)}
    wanted = closest(list(pieces.values()), written)
    references = sorted(pieces, key=lambda text: pieces[text] is not wanted)
    return ScoredExample(
        source, references, answer, len(translator.texts.source.display_tokens(source)), align(wanted, written)
    )


def by_length(scored: Sequence[ScoredExample], buckets: int = BUCKETS) -> list[dict[str, Any]]:
    """The error rate by the length of the source."""
    return error_by_length([(one.length, one.edits, one.wanted) for one in scored], buckets)


def chosen(scored: Sequence[ScoredExample], count: int = SHOWN) -> dict[str, list[dict[str, Any]]]:
    """The best (of those all right the longest), the worst (of equals the surest), and some at random.

    `random` goes by a hash of the source: two models asked the same show the same.
    """
    right = sorted((one for one in scored if not one.edits), key=lambda one: (-one.length, -one.answer.confidence))
    wrong = sorted(
        (one for one in scored if one.edits),
        key=lambda one: (-one.edits / max(one.wanted, 1), -one.answer.confidence),
    )
    drawn = sorted(scored, key=lambda one: hashlib.blake2b(one.source.encode(), key=b"random").digest())
    best = [*right, *reversed(wrong)][:count]
    picked = {"best": best, "worst": wrong[:count], "random": drawn[:count]}
    return {name: [one.to_json() for one in several] for name, several in picked.items()}


def confusion(scored: Iterable[ScoredExample]) -> dict[str, Any]:
    """The commonest unlike pairs [wanted, written, count], null for what is missing, and a table of tokens.

    `table[i][j]` counts how often `tokens[j]` was written where `tokens[i]` was wanted; the last row and column stand
    for no token at all: what was put in, and what was left out.
    """
    pairs = Counter(pair for one in scored for pair in one.pairs)
    unlike = Counter({pair: count for pair, count in pairs.items() if pair[0] != pair[1]})
    involved: Counter[str] = Counter()
    for pair, count in unlike.items():
        for token in pair:
            if token is not None:
                involved[token] += count
    tokens = sorted(token for token, _ in involved.most_common(INVOLVED))
    places = [*tokens, None]
    return {
        "right": sum(count for (wanted, written), count in pairs.items() if wanted == written),
        "substituted": sum(count for pair, count in unlike.items() if None not in pair),
        "inserted": sum(count for (wanted, _), count in unlike.items() if wanted is None),
        "deleted": sum(count for (_, written), count in unlike.items() if written is None),
        "pairs": [[*pair, count] for pair, count in unlike.most_common(CONFUSED)],
        "tokens": tokens,
        "table": [[unlike[(wanted, written)] for written in places] for wanted in places],
    }


def attention(translator: Translator, scored: Sequence[ScoredExample]) -> dict[str, Any] | None:
    """Where the model looked in one example of middle length, right if possible; None where there is no attention."""
    fitting = [
        one
        for one in scored
        if one.source.strip() and max(one.length, len(one.answer.tokens)) < LONGEST_PICTURE and one.answer.tokens
    ]
    if not fitting:
        return None
    middle = sorted(one.length for one in fitting)[len(fitting) // 2]
    one = min(fitting, key=lambda one: (one.edits > 0, abs(one.length - middle), one.source))
    try:
        maps = attention_maps(translator.texts, one.source, one.answer.tokens)
    except SeqloomError:  # it has none
        return None
    last = maps[list(maps)[-1]]
    return {
        "source": last.source,
        "target": last.target,
        "layer": last.layer,
        "heads": len(last.weights),
        "weights": [[finite(round(float(weight), 3)) for weight in row] for row in last.mean()],
    }
