"""Vectors of words from a file, a dataset or another run, for a model's embedding to begin with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from seqloom.data.datasets import catalog
from seqloom.data.formats.word_vectors import Vectors, from_pairs, read_vectors, write_vectors
from seqloom.data.tokenizers.tokenizers import SPECIALS
from seqloom.data.tokenizers.vocabulary import Codec, opened
from seqloom.documents import read_json
from seqloom.errors import SeqloomError
from seqloom.training.checkpoint import read_tensors


@dataclass(frozen=True)
class Coverage:
    """How many tokens of a vocabulary got a vector."""

    found: int
    folded: int  # of these, by their lower case
    total: int

    def __str__(self) -> str:
        folded = f" ({self.folded:,} by their lower case)" if self.folded else ""
        return f"{self.found:,} of {self.total:,} tokens{folded}, {self.found / max(self.total, 1):.1%}, have a vector"


def load_into_model(model: nn.Module, stored: Mapping[str, Any], vectors: str) -> Coverage:
    """Begin a model's embedding with `vectors`. `stored`: its vocabularies, as a run keeps them."""
    if not hasattr(model, "source") or "source" not in stored:
        raise SeqloomError(f"vectors {vectors}: this model has no embedding of words to begin with them")
    codec = opened(stored, "source", Codec)
    return initialize(model, codec, load(vectors, codec))


def load(name: str, codec: Codec) -> Vectors:
    """Vectors for the tokens of a codec: from a run folder, a dataset by name (`glove`), or a text file."""
    wanted = {*codec.tokens, *map(str.lower, codec.tokens)}
    path = Path(name)
    if path.is_dir():
        return of_run(path)
    if name in catalog.DATASETS and not path.exists():
        dataset = catalog.find(name)
        if dataset.task != "vectors":
            raise SeqloomError(f"{name}: is a dataset for the task {dataset.task}, it holds no vectors")
        return from_pairs(name, dataset.examples("all"), wanted)
    return read_vectors(name, wanted)


def of_run(run: Path) -> Vectors:
    """The embedding of any run whose model reads text."""
    codec, tensors = Codec.from_json(read_json(run / "source.json")), read_tensors(run / "model.safetensors")
    if "source.weight" not in tensors:
        raise SeqloomError(f"{run}: has no embedding called source")
    table = tensors["source.weight"].float().numpy()[len(SPECIALS) :]
    return Vectors(str(run), {token: row for row, token in enumerate(codec.tokens)}, table)


def initialize(model: nn.Module, codec: Codec, vectors: Vectors) -> Coverage:
    """Fill the rows of `model.source` whose tokens have a vector, by themselves or by their lower case; the others stay
    as they are."""
    table: nn.Embedding = model.source  # pyright: ignore[reportAssignmentType]
    if not vectors.words:
        raise SeqloomError(
            f"{vectors.name}: none of the {len(codec.tokens):,} tokens ({codec.kind}) has a vector there"
        )
    if table.embedding_dim != vectors.dim:
        raise SeqloomError(
            f"{vectors.name}: its vectors have {vectors.dim} numbers, the model's embedding {table.embedding_dim}; "
            f"add --set embedding={vectors.dim}"
        )
    plain = [vectors.words.get(token) for token in codec.tokens]
    folded = [vectors.words.get(token.lower()) for token in codec.tokens]
    rows = [other if row is None else row for row, other in zip(plain, folded, strict=True)]
    places = [place for place, row in enumerate(rows, len(SPECIALS)) if row is not None]
    if not places:
        raise SeqloomError(
            f"{vectors.name}: none of the {len(codec.tokens):,} tokens ({codec.kind}) has a vector there"
        )
    chosen = torch.from_numpy(np.ascontiguousarray(vectors.table[[row for row in rows if row is not None]]))
    with torch.no_grad():
        table.weight[places] = chosen.to(table.weight)
    exact = sum(row is not None for row in plain)
    return Coverage(len(places), len(places) - exact, len(codec.tokens))


def export_vectors(run: Path, path: Path) -> int:
    """Write a run's embedding in word2vec's text form; gives how many words it has."""
    vectors = of_run(run)
    write_vectors(path, list(vectors.words), vectors.table)
    return len(vectors.words)
