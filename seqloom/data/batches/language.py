"""Text for language models: options and batches.

Running text is one long row of ids; a row of a batch is a segment of it. Lines are rows of their own, from <bos> (or
the id of a label, after all tokens) to <eos>.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from seqloom.data.batches.bucketing import Plan, plan
from seqloom.data.batches.collate import send
from seqloom.data.encoding.text_options import TextOptions, TokenOptions
from seqloom.data.tokenizers.tokenizers import PAD
from seqloom.errors import SeqloomError, known

BATCHES = ("segments", "random", "stream", "blocks", "lines")
_BITS = 20  # low bits of a number in a plan are the length of a segment, the others its start
MAX_LENGTH = (1 << _BITS) - 1


@dataclass(frozen=True, kw_only=True)
class StreamOptions(TextOptions, TokenOptions):
    """The `data` section of the configuration of a language model.

    `tokens`: chars, words (line ends become <eos>), bytes, bpe:N or jieba; see `TextOptions` for the others.

    `batches`: `stream` (as many contiguous streams as a batch has rows; a recurrent state is carried on: truncated
    back-propagation, Williams & Peng 1990; default), `segments` (of `length` tokens, one every `stride`, shuffled),
    `blocks` (the same, side by side), `random` (as many, anywhere) or `lines` (each line by itself, cut to `length`).
    `vary_length`: streams advance by random lengths (Merity et al. 2018, section 5). `condition`: lines are label TAB
    text, and the label stands in the place of <bos>; `columns` names or numbers the two if they stand elsewhere, or the
    one column of the text.
    """

    tokens: str = "chars"
    batches: str | None = None
    length: int = 128
    stride: int | None = None
    vary_length: bool = False
    condition: bool = False

    def __post_init__(self):
        if self.batches is not None:
            known(self.batches, BATCHES, "kind of batches")
        super().__post_init__()
        if self.length > MAX_LENGTH:
            raise SeqloomError(f"length is at most {MAX_LENGTH:,}, not {self.length:,}")
        if self.stride is not None and self.batches != "segments":
            raise SeqloomError("stride goes with batches: segments")
        if self.vary_length and self.batching != "stream":
            raise SeqloomError("vary_length goes with batches: stream")
        if self.condition and self.batching != "lines":
            raise SeqloomError(f"condition needs batches: lines, not {self.batches}")

    @property
    def batching(self) -> str:
        """The kind of batches."""
        return self.batches or ("lines" if self.condition else "stream")

    @property
    def lines(self) -> bool:
        return self.batching == "lines"


@dataclass(frozen=True, eq=False)
class LanguageBatch:
    """A batch: rows of ids, each predicted from those before it. Padded after."""

    tokens: Tensor  # [B, T + 1] int64: inputs are [:, :-1], labels [:, 1:]
    index: Tensor | None  # [N] flat places of the real labels in the [B, T] matrix tokens[:, 1:]; None: all of them
    rows: tuple[int, ...]
    count: int  # N, on the host
    continues: bool = False  # the next batch continues this one, row by row

    def to(self, device: torch.device | str) -> LanguageBatch:
        index = None if self.index is None else send(self.index, device)
        return LanguageBatch(send(self.tokens, device), index, self.rows, self.count, self.continues)

    def pad_to_bucket(self, most: int | None = None) -> LanguageBatch | None:
        """Itself if nothing is padded: such batches have few shapes. Others depend on their count."""
        return self if self.index is None else None

    def micro_batches(self, n: int) -> list[LanguageBatch]:
        """Its rows cut into at most `n` nearly equal parts."""
        if n < 1:
            raise ValueError(f"a batch can be cut into 1 or more pieces, not {n}")
        rows = self.tokens.size(0)
        n = min(n, rows)
        if n <= 1:
            return [self]
        return [
            _make_batch(self.tokens[a:b], self._lengths()[a:b], self.rows[a:b], self.continues)
            for a, b in pairwise(rows * piece // n for piece in range(n + 1))
        ]

    def zero_weight_row(self) -> LanguageBatch:
        """A row without a label."""
        return LanguageBatch(self.tokens[:1, :2], self.tokens.new_zeros(0), (), 0, False)

    def _lengths(self) -> Tensor:
        """[B] real labels of each row."""
        rows, steps = self.tokens.size(0), self.tokens.size(1) - 1
        if self.index is None:
            return torch.full((rows,), steps)
        return torch.bincount(self.index.cpu() // steps, minlength=rows)


def _make_batch(tokens: Tensor, lengths: Tensor, rows: tuple[int, ...], goes_on: bool = False) -> LanguageBatch:
    steps, count = tokens.size(1) - 1, int(lengths.sum())
    if count == lengths.numel() * steps:
        return LanguageBatch(tokens, None, rows, count, goes_on)
    keep = torch.arange(steps) < lengths[:, None]
    index = torch.from_numpy(np.flatnonzero(keep.numpy())).to(tokens.device)
    return LanguageBatch(tokens, index, rows, count, goes_on)


class Stream:
    """Encoded text. `offsets`: the beginning of each line, and the end; None: running text. `characters`: of the text,
    with a line end after every whole line."""

    def __init__(
        self,
        ids: np.ndarray,
        offsets: np.ndarray | None,
        options: StreamOptions,
        fingerprint: str = "",
        folder: Path | None = None,
        characters: int = 0,
    ) -> None:
        self.ids, self.offsets, self.options = ids, offsets, options
        self.fingerprint, self.folder, self.characters = fingerprint, folder, characters
        if len(ids) < 2:
            raise SeqloomError("the text is too short: a language model needs two tokens at least")
        self.length = min(options.length, len(ids) - 1)

    def __len__(self) -> int:
        """Lines; of running text segments of the full length, the last perhaps shorter."""
        return -(-self.labels // self.length) if self.offsets is None else len(self.offsets) - 1

    @property
    def by_rows(self) -> bool:
        """Whether examples are lines; running text gives batches of any shape."""
        return self.offsets is not None

    @property
    def labels(self) -> int:
        """Tokens that are predicted: all but the first of each row."""
        return len(self.ids) - (1 if self.offsets is None else len(self.offsets) - 1)

    @cached_property
    def lengths(self) -> np.ndarray:
        """[lines] int32: tokens, from <bos> to <eos>."""
        return np.diff(self.offsets if self.offsets is not None else [0, len(self.ids)]).astype(np.int32)

    def plan(self, *, seed: int, epoch: int, batch_tokens: int | None, batch_rows: int | None) -> Plan:
        if self.offsets is not None:
            lengths = self.lengths
            return plan(lengths, lengths, seed=seed, epoch=epoch, batch_tokens=batch_tokens, batch_rows=batch_rows)
        rows = batch_rows or max(1, (batch_tokens or 0) // self.length)
        random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed % (1 << 64), epoch])))
        if self.options.batching == "stream":
            return _streams_plan(self.labels, self.length, rows, random if self.options.vary_length else None)
        if self.options.batching == "random":
            starts = random.integers(0, self.labels - self.length + 1, len(self))
        else:
            starts = random.permutation(np.arange(0, self.labels, self.options.stride or self.length))
        return _rows_plan(starts, np.minimum(self.length, self.labels - starts), rows)

    def full_plan(self, length: int, rows: int, carry: bool) -> Plan:
        """Every token predicted once. `carry`: in `rows` contiguous streams, stepping `length`; else in blocks."""
        if self.offsets is not None:
            return self.plan(seed=0, epoch=0, batch_tokens=None, batch_rows=rows)
        if carry:
            return _streams_plan(self.labels, min(length, MAX_LENGTH), rows, None, all_of_it=True)
        starts = np.arange(0, self.labels, length)
        return _rows_plan(starts, np.minimum(length, self.labels - starts), rows)

    def batch(self, rows: np.ndarray) -> LanguageBatch:
        starts, lengths = self._positions(rows)
        at = starts[:, None] + np.arange(int(lengths.max(initial=1)) + 1)
        tokens = self.ids[np.minimum(at, len(self.ids) - 1)].astype(np.int64)
        if int(lengths.min(initial=1)) < tokens.shape[1] - 1:
            tokens[np.arange(tokens.shape[1]) > lengths[:, None]] = PAD
        goes_on = self.offsets is None and self.options.batching == "stream"
        return _make_batch(torch.from_numpy(tokens), torch.from_numpy(lengths), tuple(rows.tolist()), goes_on)

    def count(self, rows: np.ndarray) -> int:
        return int(self._positions(rows)[1].sum())

    def costs(self, plan: Plan) -> np.ndarray:
        sizes = np.diff(plan.ends, prepend=0)
        return np.maximum.reduceat(self._positions(plan.order)[1], plan.ends - sizes) * sizes

    def _positions(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Start and number of labels of each row of a plan."""
        rows = np.asarray(rows, np.int64)
        if self.offsets is None:
            return rows >> _BITS, rows & MAX_LENGTH
        return self.offsets[rows].astype(np.int64), self.lengths[rows].astype(np.int64) - 1


def _rows_plan(starts: np.ndarray, lengths: np.ndarray, rows: int) -> Plan:
    order = (starts.astype(np.int64) << _BITS) | lengths
    return Plan(order, np.minimum(np.arange(rows, len(order) + rows, rows, dtype=np.int64), len(order)))


def _streams_plan(
    labels: int, length: int, rows: int, random: np.random.Generator | None, all_of_it: bool = False
) -> Plan:
    """`rows` streams of equal length in parallel; the remainder, fewer tokens than rows, is dropped; with `all_of_it`
    the last stream is shorter."""
    rows = min(rows, labels)
    each = -(-labels // rows) if all_of_it else labels // rows
    ends = [0]
    while ends[-1] < each:
        ends.append(min(each, ends[-1] + (length if random is None else _varied(length, random))))
    first = np.arange(rows) * each
    order = []
    for start, end in pairwise(ends):
        lengths = np.clip(np.minimum(first + end, labels) - (first + start), 0, None)
        order.append((np.minimum(first + start, labels) << _BITS) | lengths)
    sizes = np.arange(rows, rows * (len(ends) - 1) + 1, rows, dtype=np.int64)
    return Plan(np.concatenate(order).astype(np.int64), sizes)


def _varied(length: int, random: np.random.Generator) -> int:
    """Merity et al. 2018, section 5: mostly about `length`, one time in twenty about half of it."""
    about = length if random.random() < 0.95 else length / 2
    return max(min(5, length), int(random.normal(about, 5)))
