"""Language models: the next token as objective, and validation on the whole held-out text."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.data.batches.language import LanguageBatch, Stream
from seqloom.data.tokenizers.tokenizers import UNK
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.metrics.perplexity import perplexity
from seqloom.parts.state import State
from seqloom.training.distributed.processes import ALONE, Ranks
from seqloom.training.distributed.sharding import rank_batch
from seqloom.training.objectives.objective import Loss, Objective, unwrap

VALIDATION_STREAMS = 8  # parallel streams of held-out text, where the state is carried
CHUNK = 1024  # steps of a stream at a time
MAX_LOGITS = 1 << 26  # logits at a time, whatever the vocabulary


class NextToken(Objective):
    """−Σ log p(x_t | x_<t) (Bengio et al. 2003, section 2). Where batches continue one another, the state is
    carried on, without its gradient: truncated back-propagation (Williams & Peng 1990)."""

    tasks = ("generate",)

    def __init__(self, model: nn.Module, label_smoothing: float = 0.0) -> None:
        super().__init__(model)
        self.smoothing = label_smoothing

    def forward(self, batch: LanguageBatch, carried: State = None) -> Loss:
        # A validation loss is a likelihood: smoothing and penalties belong to training alone.
        smoothing = self.smoothing if self.training else 0.0
        losses = self.model(batch.tokens[:, :-1], batch.tokens[:, 1:], batch.index, carried, smoothing, True)
        total = losses.nats
        if losses.penalty is not None:
            total = total + batch.count * losses.penalty
        goes_on = batch.continues and self.model.carries
        return Loss(total, batch.count, detach(losses.state) if goes_on else None)


def detach(state: State) -> State:
    if isinstance(state, Tensor):
        return state.detach()
    return None if state is None else tuple(map(detach, state))


class TokenLosses(NamedTuple):
    """−log p of every token but the first of each row, in nats, with its position in the row."""

    nats: np.ndarray  # [N] float64
    ids: np.ndarray  # [N]: the tokens
    position: np.ndarray  # [N]: from 0, in its line or block; of a stream, in its batch


@torch.inference_mode()
def token_losses(model: Any, stream: Stream, length: int, device: torch.device) -> TokenLosses:
    """Losses of all tokens. A model that carries its state reads running text as one stream; others read independent
    blocks of `length`."""
    losses = _token_losses(model, stream, length, device, 1)
    parts = [(nats.double().cpu().numpy(), *_labels(batch)) for batch, nats in losses]
    return TokenLosses(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _labels(batch: LanguageBatch) -> tuple[np.ndarray, np.ndarray]:
    """The labels of a batch, and their positions."""
    labels = batch.tokens[:, 1:].cpu().numpy()
    place = np.broadcast_to(np.arange(labels.shape[1]), labels.shape).ravel()
    chosen = slice(None) if batch.index is None else batch.index.cpu().numpy()
    return labels.ravel()[chosen], place[chosen]


@torch.inference_mode()
def validation_loss(
    objective: nn.Module, stream: Stream, length: int, device: torch.device, ranks: Ranks = ALONE
) -> dict[str, float]:
    """Mean nats a token (`loss`) and `perplexity` of the held-out text, to select the best model: the state is
    carried in a few streams. Each rank takes its rows of every batch; sums are over all ranks."""
    model: Any = unwrap(objective).model
    total, count = torch.zeros((), dtype=torch.float64, device=device), 0
    for batch, nats in _token_losses(model, stream, length, device, max(VALIDATION_STREAMS, ranks.world), ranks):
        total, count = total + nats.double().sum(), count + batch.count
    nats = float(total)
    if ranks.distributed:
        nats, count = ranks.all_reduce(torch.tensor([nats, count], dtype=torch.float64, device=device)).tolist()
    return {"loss": nats / max(count, 1), "perplexity": perplexity(nats, count)}


def _token_losses(
    model: Any, stream: Stream, length: int, device: torch.device, streams: int, ranks: Ranks = ALONE
) -> Iterator[tuple[LanguageBatch, Tensor]]:
    """The batches of a whole text with the losses of their labels in nats."""
    carry, training, state = model.carries and stream.offsets is None, model.training, None
    model.eval()
    for rows in stream.full_plan(*_batch_size(model, length, carry, streams), carry):
        batch: LanguageBatch = rank_batch(stream, rows, ranks).to(device)
        losses = model(batch.tokens[:, :-1], batch.tokens[:, 1:], batch.index, state)
        state = losses.state if carry else None
        yield batch, losses.nats
    model.train(training)


def _batch_size(model: Any, length: int, carry: bool, streams: int) -> tuple[int, int]:
    """Steps and rows of a batch."""
    positions = max(1, MAX_LOGITS // model.size)
    if carry:
        return max(1, min(CHUNK, positions // streams)), streams
    return length, max(1, min(64, positions // length))


def language_metrics(losses: TokenLosses, stream: Stream, codec: Codec) -> dict[str, float]:
    """Perplexity a token, nats a token (`loss`) and bits a character."""
    nats, count, written = float(losses.nats.sum()), len(losses.nats), characters(stream, codec)
    bits = nats / math.log(2) / written if written > 0 else math.nan
    return {"loss": nats / max(count, 1), "perplexity": perplexity(nats, count), "bits_per_character": bits}


def characters(stream: Stream, codec: Codec) -> int:
    """The number of predicted characters: in running text all but the first token. An unknown token counts as one."""
    if stream.offsets is not None:
        return stream.characters
    first = int(stream.ids[0])
    given = 1 if first == UNK else len(codec.decode([first]))
    return stream.characters - given - (codec.kind == "words")  # a word is followed by a blank or a line end
