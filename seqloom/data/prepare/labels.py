"""The `data` section of a task whose targets are labels or numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from seqloom.data.batches.labels import TARGETS
from seqloom.data.encoding.text_options import TwoSideOptions
from seqloom.data.files.lines import LineError, decode, read_lines
from seqloom.data.tokenizers.stopwords import ENGLISH
from seqloom.data.tokenizers.tokenizers import make_tokenizer
from seqloom.errors import SeqloomError, known


def looks_swapped(lines: int, texts: int, labels: int) -> bool:
    """Whether labels and texts seem to be swapped. `texts`, `labels`: distinct ones."""
    return lines >= 10 and 5 * texts <= labels


def label_warning(lines: int, texts: int, labels: int) -> str | None:
    """A warning about suspiciously many labels, or None. `texts`, `labels`: distinct ones."""
    swapped = looks_swapped(lines, texts, labels)
    if lines < 10 or (2 * labels < lines and not swapped):
        return None
    message = f"{labels:,} labels in {lines:,} lines"
    if swapped:
        return f"{message}, but only {texts:,} texts: the columns seem to be swapped; --columns 2,1 turns them"
    hint = "with a label for nearly every text there is little to learn; is another column the label (--columns)?"
    return f"{message}: {hint}"


@dataclass(frozen=True, kw_only=True)
class LabelOptions(TwoSideOptions):
    """The `data` section of the configuration: what is read, and how texts and labels are encoded.

    `target`: one label, several labels with `separator` between them, or a number. `tokens` of the text: words, terms,
    chars, jieba, bytes or bpe:N. `stop_words` are left out: none, english, or a file with a word a line.
    `shorten_repeats`: three and more of a letter become two, of words also one if the vocabulary has that: "gooood" is
    "good", "baaad" is "bad". `class_weights` of labels in the loss: none, balanced (equal weight of all labels), or as
    in "spam=3,ham=1". The others are those of `CutTextOptions`, for the text only.
    """

    target: str = "label"
    separator: str = "|"
    tokens: str = "words"
    stop_words: str = "none"
    shorten_repeats: bool = False
    class_weights: str = "none"

    def __post_init__(self) -> None:
        make_tokenizer(self.tokens)
        known(self.target, TARGETS, "kind of target")
        if not self.separator.strip():
            raise SeqloomError("separator, the sign between several labels, must be a visible one, as | or ,")
        if self._cleans and self.tokens.partition(":")[0] in ("bytes", "bpe"):
            raise SeqloomError(
                f"stop_words and shorten_repeats go with tokens words, terms, jieba or chars, not {self.tokens}"
            )
        super().__post_init__()

    @property
    def target_kind(self) -> str:
        return f"labels:{self.separator}" if self.target == "labels" else self.target

    def tokens_of(self, side: str) -> str:
        # Numbers are stored as bytes, none of which is unknown in the validation data.
        return self.tokens if side == "source" else "bytes" if self.target == "number" else self.target_kind

    def vocabulary_of(self, side: str) -> dict[str, Any]:
        """No label is too rare."""
        return self.vocabulary if side == "source" else {}

    def max_length_of(self, side: str) -> int | None:
        return self.max_length if side == "source" else None

    def cleaning_of(self, side: str) -> dict[str, Any] | None:
        words = self.split_version > 1 and self.tokens in ("words", "terms")
        both = {
            "stop_words": self._stop_words,
            "repair": "known" if self.shorten_repeats and words else self.shorten_repeats,
        }
        return both if side == "source" and self._cleans else None

    @property
    def _cleans(self) -> bool:
        return self.shorten_repeats or self.stop_words != "none"

    @cached_property
    def _stop_words(self) -> list[str]:
        if self.stop_words in ("none", "english"):
            return [] if self.stop_words == "none" else list(ENGLISH.split())
        if not Path(self.stop_words).is_file():
            raise SeqloomError(
                f"stop_words {self.stop_words!r}: no such file; choose none, english, or a file of words"
            )
        return sorted({word for word in _read_words(self.stop_words) if word})


def _read_words(file: str) -> list[str]:
    found = []
    for line, raw in read_lines(file, Path(file)):
        try:
            if isinstance(raw, LineError):
                raise raw
            found.append(decode(raw).strip())
        except LineError as broken:
            raise SeqloomError(f"{file}:{line}: {broken}") from broken
    return found
