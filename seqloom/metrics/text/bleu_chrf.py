"""BLEU and chrF, by sacreBLEU, on plain (detokenised) strings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from seqloom.errors import SeqloomError, known
from seqloom.metrics.metric import CorpusScore
from seqloom.metrics.text.error_rates import check_pairs
from seqloom.metrics.text.moses_tokenizer import MOSES, language_of, moses

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
# Those of sacreBLEU without further packages or downloads, and those of `moses`, in lower case.
TOKENIZERS = ("13a", "intl", "zh", "char", "none", *MOSES)


def tokenizer(name: str) -> str:
    """`name` itself if it is one of `TOKENIZERS`, or "moses" alone, which older recipes have and is moses:en."""
    return name if language_of(name) else known(name, TOKENIZERS, "tokenizer")


def bleu(predictions: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str = "13a") -> CorpusScore:
    """BLEU = min(1, exp(1 − r/c)) · (p₁ p₂ p₃ p₄)^¼ in percent, with clipped n-gram precisions over the whole corpus.

    Papineni et al. 2002, section 2.3; signature after Post 2018. It is made for sentences: where no
    prediction has four tokens there is no 4-gram, and it is 0.
    """
    from sacrebleu.metrics.bleu import BLEU

    # `force` only silences a warning about tokenized full stops.
    language = language_of(tokenizer(tokenize))
    if language is None:
        metric = BLEU(tokenize=tokenize, force=True)
        return _corpus_score(metric, "BLEU", 2 + 2 * metric.max_ngram_order, predictions, references)
    check_texts(predictions, references)
    metric = BLEU(tokenize="none", lowercase=True, force=True)
    wanted = [[" ".join(moses(text, language)) for text in several] for several in references]
    written = [" ".join(moses(text, language)) for text in predictions]
    found = _corpus_score(metric, "BLEU", 2 + 2 * metric.max_ngram_order, written, wanted)
    return replace(found, signature=found.signature.replace("tok:none", f"tok:moses-{language}"))


def chrf(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> CorpusScore:
    """chrF2 = 5 · P · R / (4 P + R) in percent, with P and R averaged over character n-grams, n = 1 … 6.

    Popović 2015, equation 1 with β = 2; blanks do not count, and of several references the best one does.
    """
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    return _corpus_score(metric, "chrF2", 3 * metric.order, predictions, references)


def tokenizer_advice(references: Sequence[Sequence[str]], tokenize: str) -> str | None:
    """A note if Chinese is scored by words between blanks, or if `moses` is given without a language."""
    if tokenize == "moses":
        others = ", ".join(name for name in MOSES if name != "moses:en")
        return f"--tokenize moses is moses:en, with English apostrophes; of other languages name theirs: {others}"
    letters = "".join(text for several in references for text in several[:1])
    if tokenize != "13a" or 2 * len(_HAN.findall(letters)) <= sum(not letter.isspace() for letter in letters):
        return None
    return "the references are mostly Chinese characters: BLEU by words (13a) says little; add --tokenize zh"


def reference_streams(references: Sequence[Sequence[str]]) -> list[list[str | None]]:
    """References per example → the k-th references of all examples, the format of sacreBLEU.

    A missing one is None: sacreBLEU leaves it out, whereas it counts "" as a reference of no words.
    """
    width = max((len(several) for several in references), default=0)
    return [[several[k] if k < len(several) else None for several in references] for k in range(width)]


def _corpus_score(
    metric: Metric, name: str, columns: int, predictions: Sequence[str], references: Sequence[Sequence[str]]
) -> CorpusScore:
    check_texts(predictions, references)
    if predictions:
        # Not public, but used by sacreBLEU's own bootstrap; a test compares it with `corpus_score`.
        rows = metric._extract_corpus_statistics(predictions, reference_streams(references))  # pyright: ignore[reportArgumentType]
    else:
        rows, metric.num_refs = [], -1  # −1: "varies"; the signature refuses to be written without it

    def finish(sums: np.ndarray) -> float:
        return float(metric._compute_score_from_stats([round(value) for value in sums]).score)

    table = np.array(rows, dtype=np.float64).reshape(-1, columns)
    return CorpusScore(table, finish, f"{name}|{metric.get_signature().format()}")


def check_texts(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """`check_pairs`, and refuse a bare string as references: its letters would be taken for them."""
    check_pairs(predictions, references)
    for row, several in enumerate(references):
        if isinstance(several, str):
            raise SeqloomError(
                f"the references of prediction {row + 1} are one text; put it into a tuple: ({several!r},)"
            )
