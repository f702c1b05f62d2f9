"""A classifier-like task, as small as the hand-over needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from torch import nn

from seqloom.build import Choice, build
from seqloom.data.prepare.texts import PlainTextOptions
from seqloom.models.encoders import ENCODERS


class Standin(nn.Module):
    def __init__(
        self,
        source_size: int,
        label_count: int,
        encoder: Annotated[Choice, ENCODERS] = "lstm",
        embedding: int = 32,
        hidden: int = 4,
    ) -> None:
        super().__init__()
        self.source = nn.Embedding(source_size, embedding)
        self.encoder = build(ENCODERS, encoder, input_dim=embedding)
        self.head = nn.Linear(self.encoder.dim, label_count)


class Spelling(Standin):
    def __init__(
        self,
        source_size: int,
        label_count: int,
        encoder: Annotated[Choice, ENCODERS] = "lstm",
        embedding: int = 32,
        characters: str = "lstm",
    ) -> None:
        super().__init__(source_size, label_count, encoder, embedding)


class Bag(nn.Module):
    def __init__(self, source_size: int, label_count: int, embedding: int = 32) -> None:
        super().__init__()
        self.source = nn.Embedding(source_size, embedding)
        self.head = nn.Linear(embedding, label_count)


class Table(nn.Module):
    def __init__(self, columns: int, dim: int = 8) -> None:
        super().__init__()
        self.head = nn.Linear(columns, dim)


@dataclass(frozen=True, kw_only=True)
class StandinOptions(PlainTextOptions):
    pass


class StandinTask:
    name = "classify"
    models: ClassVar[dict[str, Any]] = {"standin": Standin, "spelling": Spelling, "bag": Bag, "table": Table}
    kind = "standin"
    vocabularies = ("source", "labels")
    options = StandinOptions
