"""Validation: the likelihood of held-out targets, and the scores of greedy predictions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from typing import Any

import torch
from torch import nn

from seqloom.data.batches.batch_source import AnyBatch, BatchSource
from seqloom.data.batches.collate import Batch, pad
from seqloom.data.formats.pairs import Example
from seqloom.decoding.batched import TextPredictor
from seqloom.decoding.search import release
from seqloom.decoding.search_options import Search
from seqloom.metrics.perplexity import perplexity
from seqloom.metrics.text.text_metrics import score
from seqloom.training.distributed.processes import ALONE, Ranks
from seqloom.training.distributed.sharding import is_shard, rank_batch
from seqloom.training.settings import Training


@torch.inference_mode()
def validation_loss(
    objective: nn.Module, batches: Iterable[AnyBatch], device: torch.device, ranks: Ranks = ALONE
) -> dict[str, float]:
    """Mean negative log-likelihood of a target token in nats (`loss`), and its exponential (`perplexity`).

    Each rank takes its rows of every batch; the sums are over all ranks.
    """
    training = objective.training
    objective.eval()
    total, count = torch.zeros((), dtype=torch.float64, device=device), 0
    for batch in batches:
        loss = objective(batch.to(device))
        total, count = total + loss.total, count + loss.count
    objective.train(training)
    nats = float(total)
    if ranks.distributed:
        nats, count = ranks.all_reduce(torch.tensor([nats, count], dtype=torch.float64, device=device)).tolist()
    return {"loss": nats / max(count, 1), "perplexity": perplexity(nats, count) if count else float("nan")}


def all_batches(source: BatchSource, settings: Training, ranks: Ranks = ALONE) -> Iterator[Any]:
    """Every example once, in batches of the training size, which are known to fit into memory; of each only
    the rows of this rank."""
    batches = source.plan(seed=0, epoch=0, batch_rows=settings.batch_rows, batch_tokens=settings.batch_tokens)
    return (rank_batch(source, rows, ranks) for rows in batches)


def paired_batches(pairs: Sequence[tuple[list[int], list[int]]], rows: int = 128) -> Iterator[Batch]:
    """Batches of encoded pairs in memory, specials included."""
    ordered = sorted(pairs, key=lambda pair: (len(pair[0]), len(pair[1])))
    for start in range(0, len(ordered), rows):
        sources, targets = zip(*ordered[start : start + rows], strict=True)
        yield Batch.of(pad(sources), pad(targets))


def greedy_scores(
    texts: TextPredictor, examples: Sequence[Example], metrics: Sequence[str], most: int, ranks: Ranks = ALONE
) -> dict[str, float]:
    """Scores of greedy predictions for at most `most` distinct sources; all targets of one are its references."""
    training = texts.model.training
    grouped = subsample(group_by_source(examples), most)
    predictions = _predictions(texts, list(grouped), ranks)
    texts.model.train(training)
    release(texts.model)  # training needs the memory
    references = [tuple(map(texts.target.normalize, targets)) for targets in grouped.values()]
    return score(predictions, references, split=texts.target.display_tokens, metrics=metrics, samples=0).metrics


def _predictions(texts: TextPredictor, sources: list[str], ranks: Ranks) -> list[str]:
    """Each rank predicts its part. With a sharded model all ranks predict everything: a rank that finished early would
    leave the others waiting for its shards."""
    if any(map(is_shard, texts.model.parameters())):
        return [answers[0].text for answers in texts.answers(sources, Search())]
    mine = [answers[0].text for answers in texts.answers(sources[ranks.rank :: ranks.world], Search())]
    interleaved = zip_longest(*ranks.all_gather(mine))
    return [text for text in chain.from_iterable(interleaved) if text is not None]


def group_by_source(examples: Sequence[Example]) -> dict[str, list[str]]:
    """Targets by source: examples with the same source are one question with several references."""
    grouped: dict[str, list[str]] = {}
    for example in examples:
        grouped.setdefault(example.source, []).extend(example.targets)
    return grouped


def subsample(grouped: dict[str, list[str]], most: int) -> dict[str, list[str]]:
    """At most so many, chosen by a hash, since files are often sorted."""
    if len(grouped) <= most:
        return grouped
    chosen = sorted(grouped, key=lambda source: hashlib.blake2b(source.encode()).digest())[:most]
    return {source: grouped[source] for source in chosen}
