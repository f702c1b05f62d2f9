"""What papers have on the same data, what we must reach and what we aim for: a row for each, by recipe.

A figure is that of models trained from scratch on the same split; "≈" is quoted from memory of the paper.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Goal:
    """One score of a row. `errors`: what is shown is 100 − the metric, as papers on pronunciation have it."""

    name: str
    metric: str
    must: float
    aim: float | None = None
    published: str = "–"
    rises: bool = False  # more is better
    errors: bool = False

    def shown(self, value: float) -> float:
        return 100 - value if self.errors else value

    def verdict(self, value: float) -> str:
        """Of a value as it is shown."""
        sign = -1 if self.rises else 1
        if self.aim is not None and sign * value <= sign * self.aim:
            return "aim"
        return "must" if sign * value <= sign * self.must else "short"


@dataclass(frozen=True)
class Row:
    """`settings`: besides the recipe's, as `--set` takes them. `share`: of the time that others get."""

    key: str
    recipe: str
    goals: tuple[Goal, ...]
    seeds: tuple[int, ...] = (7,)
    settings: dict[str, Any] = field(default_factory=dict)
    share: float = 1.0


def _sounds(published: str, per: tuple[float, float], wer: tuple[float, float]) -> tuple[Goal, ...]:
    left, _, right = published.partition("/")
    return Goal("PER", "per", *per, left), Goal("WER", "exact_match", *wer, right, errors=True)


def _words(must: float, aim: float) -> tuple[Goal, ...]:
    return (Goal("WER, mean of 10 languages", "exact_match", must, aim, "10.64", errors=True),)


def _bleu(must: float, aim: float, published: str) -> tuple[Goal, ...]:
    return (Goal("BLEU, lower-cased Moses tokens", "bleu", must, aim, published, rises=True),)


def _right(must: float, aim: float | None, published: str) -> tuple[Goal, ...]:
    return (Goal("accuracy", "accuracy", must, aim, published, rises=True),)


CASED = {"data.lowercase": False}
THREE = (7, 8, 9)
ROWS = [
    Row("wikitext2", "wikitext2", (Goal("perplexity", "perplexity", 75, 66, "65.8"),), share=2.2),
    Row("cmudict-lstm", "cmudict-lstm", _sounds("≈7.6/≈28.6", (7.0, 6.0), (27, 25)), THREE),
    Row("cmudict-attention", "cmudict-attention", _sounds("≈5.04/≈21.69", (5.2, 4.9), (22, 20.8)), THREE),
    Row("cmudict-transformer", "cmudict-transformer", _sounds("≈5.23/≈22.1", (5.2, 4.8), (21.8, 20.3)), THREE),
    Row("cmudict-ensemble", "cmudict-ensemble", _sounds("4.69/20.24", (4.7, 4.4), (20.3, 19.5))),
    Row("sigmorphon", "sigmorphon", _words(12, 10.6)),
    Row("sigmorphon-transformer", "sigmorphon-transformer", _words(12, 10.6), THREE),
    Row("sigmorphon-ensemble", "sigmorphon-ensemble", _words(11, 10)),
    Row("multi30k-gru", "multi30k-gru", _bleu(36, 39, "≈38.1")),
    Row("multi30k-transformer", "multi30k-transformer", _bleu(39.5, 41.5, "41.02")),
    Row("multi30k-fixed", "multi30k-fixed", ()),  # to be compared with attention, by lengths.py
    Row("multi30k-gru, cased", "multi30k-gru", _bleu(36, 39, "≈38.1"), settings=CASED),
    Row("multi30k-transformer, cased", "multi30k-transformer", _bleu(39.5, 41.5, "41.02"), settings=CASED),
    Row("multi30k-de-en-gru", "multi30k-de-en-gru", _bleu(29, 33, "28.11")),
    Row("multi30k-de-en-transformer", "multi30k-de-en-transformer", _bleu(36.5, 39, "36.52")),
    Row("tinyshakespeare-lstm", "tinyshakespeare-lstm", (Goal("nats", "loss", 1.55, 1.50, "1.548"),)),
    Row("tinyshakespeare", "tinyshakespeare", (Goal("nats", "loss", 1.475, 1.45, "1.4697"),)),
    Row("tinyshakespeare-annealed", "tinyshakespeare-annealed", (Goal("nats", "loss", 1.475, 1.45, "1.4697"),)),
    Row("pixels", "pixels", _right(98.5, 99.2, "≈98.9; 99.0 convolutions")),
    Row("pixels-permuted", "pixels-permuted", _right(97, 98.3, "≈95.1 LSTM, ≈97.9 Transformer; 97.2 convolutions")),
    Row("imdb", "imdb", _right(88.5, 91.5, "≈86.5")),
    Row("imdb-attention", "imdb-attention", _right(88.5, 91.5, "86.8")),
    Row("imdb-bag", "imdb-bag", _right(88.5, 91.5, "≈91.2, linear with pairs of words")),
    Row("trec", "trec", _right(91, 93, "≈91.2")),
    Row("sst2", "sst2", _right(80, 82, "≈82.7")),
    Row("ewt", "ewt", _right(94.5, 95.4, "≈95.4 with pretrained vectors")),
]


def changed(recipe: str, also: dict[str, Any], seeds: tuple[int, ...] = (7,), **settings: dict[str, Any]) -> list[Row]:
    """A row of a recipe again and again, each time with one thing changed; `also`: settings of all."""
    whole = next(row for row in ROWS if row.key == recipe)
    named = {name.replace("_", " "): {**also, **values} for name, values in settings.items()}
    return [Row(f"{recipe}, {name}", whole.recipe, whole.goals, seeds, values) for name, values in named.items()]


# What each ingredient gave.
AGREEMENT = {"training.r_drop": 2.0}
ROWS += changed(
    "multi30k-gru",
    {"embedding": 320, "encoder.dim": 320, "decoder.dim": 320, **AGREEMENT},
    narrow_asked_before={"decoder.query": "previous"},
    narrow={},
    narrow_more_agreement={"training.r_drop": 5.0},
    narrow_deeper={"encoder.layers": 2, "encoder.dropout": 0.3, "training.epochs": 60},
)
ROWS += changed(
    "sigmorphon",
    {"encoder.dim": 128, "decoder.dim": 256},
    narrow={},
    narrow_less_dropout={"encoder.dropout": 0.2, "decoder.dropout": 0.2, "dropout": 0.2},
)
ROWS += changed(
    "trec", {}, THREE, agreement=AGREEMENT, folded={"data.lowercase": "casefold"}, pieces={"data.tokens": "bpe:4000"}
)
ROWS += changed("trec", {}, THREE, pairs_of_words={"ngrams": 2, "buckets": 65536})
ROWS += changed("ewt", {}, no_agreement={"training.r_drop": 0.0, "training.epochs": 20})
ROTARY = {"encoder.position": "rotary", "decoder.position": "rotary"}
ROWS += changed(
    "multi30k-transformer",
    # Without what the recipe took from here, and half as long: differences show, in a quarter of the time.
    {
        "training.epochs": 45,
        "training.r_drop": 0.0,
        "encoder.position": "sinusoidal",
        "decoder.position": "sinusoidal",
    },
    plain={},
    agreement=AGREEMENT,
    no_smoothing={"training.label_smoothing": 0.0},
    no_mean_of_weights={"training.ema": 0.0},
    little_dropout={"encoder.dropout": 0.1, "decoder.dropout": 0.1},
    words={"data.source_tokens": "terms", "data.target_tokens": "terms", "data.min_count": 2},
    norm_after={"encoder.norm": "after", "decoder.norm": "after"},
    rotary=ROTARY,
    rotary_in_90_epochs={**ROTARY, "training.epochs": 90},
)
# With agreement every word is guessed twice: as many guesses without it are twice as many epochs.
ROWS += changed("cmudict-transformer", {}, no_agreement={"training.r_drop": 0.0, "training.epochs": 200})
DROPPED = {"encoder.dropout": 0.4, "decoder.dropout": 0.4, "dropout": 0.3, "training.ema": 0.999}
ROWS += changed("cmudict-attention", DROPPED, THREE, more_dropout_and_a_mean={})
ROWS += changed(
    "cmudict-attention",
    # Without what the recipe took from here, in a third of its time.
    {**DROPPED, "training.r_drop": 0.0, "training.epochs": 22},
    no_agreement={},
    no_smoothing={"training.label_smoothing": 0.0},
    no_mean_of_weights={"training.ema": 0.0},
    little_dropout={"encoder.dropout": 0.1, "decoder.dropout": 0.1, "dropout": 0.1},
    with_feeding={"decoder.input_feeding": True},
    one_layer={"encoder.layers": 1, "decoder.layers": 1},
    in_fp32={"training.precision": "fp32"},
)
