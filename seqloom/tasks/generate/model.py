"""A trained language model, loaded from its run folder: go on from a prompt, score a text."""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqloom.data.batches.language import Stream, StreamOptions
from seqloom.data.files.columns import Reading, as_trained
from seqloom.data.formats.bad_lines import Skipped
from seqloom.data.formats.pairs import Told, read_asked, read_sources
from seqloom.data.formats.plain_text import pieces
from seqloom.data.prepare.language import line_hash, numbered
from seqloom.data.tokenizers.tokenizers import UNK
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.decoding.batched import Answer
from seqloom.decoding.generation import Continuation, Course
from seqloom.decoding.search import Search
from seqloom.errors import SeqloomError, known
from seqloom.metrics.bootstrap import ratio_interval
from seqloom.tasks.shared.evaluation import Evaluation, examples_of, frame
from seqloom.tasks.shared.predict import Predicting
from seqloom.tasks.shared.unseen_characters import Strange, unknown_pieces
from seqloom.training.objectives.next_token import CHUNK, Surprise, characters, measures, surprise

SAMPLED, PARTS, SHOWN = 200, 20, 12
PROMPT = 48  # tokens of the held-out text that a sample goes on from
SAMPLE = Search(sample=True)
METRICS = ("loss", "perplexity", "bits_per_character")


class Author(Predicting[str]):
    """What `seqloom.load` gives for a language model. Remembers nothing between calls.

    It predicts what follows a prompt; of a model with labels a prompt is `label TAB text`.
    """

    def __init__(
        self, folder: Path, config: dict[str, Any], model: Any, vocabularies: Mapping[str, Any], device: torch.device
    ) -> None:
        self.folder, self.config, self.device = folder, config, device
        self.options = StreamOptions(**config["data"])
        codec, labels = Codec.from_json(vocabularies["source"]), list(vocabularies["lines"]["labels"])
        self._seen = base64.b64decode(vocabularies["lines"]["seen"])
        self.texts = Continuation(model, codec, labels, self.options.lines, config["decoding"]["room"], device)

    @property
    def model(self) -> Any:
        return self.texts.model

    def reading(self, columns: str | None = None, skip_bad: bool | None = None) -> Reading:
        """How files are read: as those of the training, but for what is given."""
        bad = self.options.skip_bad if skip_bad is None else skip_bad
        return as_trained(self.config["data"], columns, bad)

    def read(self, files: list[str], reading: Reading) -> tuple[list[Stream], list[str]]:
        """The text of the files, numbered, and what there is to say about it."""
        whole = {"columns": reading.columns, "skip_bad": reading.skip_bad, "limit": None, "sample": None}
        options = replace(self.options, **whole, **reading.written)
        stream, notes = numbered(files, options, self.texts.codec, list(self.texts.labels))
        return [stream], [*notes, *self._strange(files, options, stream)]

    def _strange(self, files: list[str], reading: Reading, stream: Stream) -> Iterator[str]:
        """What in the text the model has never seen; the files are read again if there is anything."""
        codec = self.texts.codec
        if codec.kind == "chars" and not self.texts.labels and (stream.ids == UNK).any():
            texts = (text for file in files for text in pieces(file, reading, Skipped()))
            lines = (line for text in texts for line in text.removesuffix("\n").split("\n"))
            yield from Strange.of(unknown_pieces(codec, line) for line in lines).notes()

    def sources(self, file: str, reading: Reading | None = None, told: Told | None = None) -> Iterator[str]:
        """Prompts as `answers` takes them, one a line; of a model with labels the label comes first, in files too, and
        the prompt may be missing. The columns are those of the training unless `reading` has others."""
        if not self.texts.labels:
            yield from read_sources(file, reading, told)
            return
        for one in read_asked(file, reading, told=told):
            where = f"{one.file}:{one.line}"
            if len(one.targets) > 1:
                raise SeqloomError(f"{where}: {len(one.targets) + 1} columns where label and prompt are expected")
            try:
                label = known(one.source, self.texts.labels, "label")
            except SeqloomError as error:
                raise SeqloomError(f"{where}: {error}") from None
            yield "\t".join([label, *one.targets])

    def generate(
        self, prompt: str = "", search: Search = SAMPLE, course: Course | None = None, number: int = 0
    ) -> Iterator[str]:
        """What follows the prompt, in pieces as they are written. `number` tells samples of one seed apart."""
        self.model.eval()
        return self.texts.pieces(prompt, search, course or self._course(), number)

    def once(self, length: int) -> None:
        """One example of `length` tokens through the model: what `seqloom info` counts."""
        tokens = torch.full((1, length), UNK)
        self.model(tokens, tokens)

    def unknown(self, source: str) -> list[str]:
        return unknown_pieces(self.texts.codec, self._asked(source)[1]) if self.texts.codec.kind == "chars" else []

    def answers(
        self, sources: Iterable[str], search: Search | None = None, rows: int = 64, ahead: int = 16
    ) -> Iterator[list[Answer]]:
        """`search.n_best` continuations of each prompt, in order, as a stream."""
        search, sources, done = search or Search(), iter(sources), 0
        if search.n_best > 1 and not search.sample:
            raise SeqloomError("several continuations of one prompt must be drawn: add --sample")
        self.model.eval()
        while chunk := list(islice(sources, rows)):
            each = [source for source in chunk for _ in range(search.n_best)]
            labels, prompts = zip(*map(self._asked, each), strict=True)
            streams = [(done + row, sample) for row in range(len(chunk)) for sample in range(search.n_best)]
            found = self.texts.answers(prompts, search, self._course(), labels, streams)
            done += len(chunk)
            yield from (found[i : i + search.n_best] for i in range(0, len(found), search.n_best))

    def _asked(self, source: str) -> tuple[str | None, str]:
        if not self.texts.labels:
            return None, source
        label, _, prompt = source.partition("\t")
        return known(label, self.texts.labels, "label"), prompt

    def _course(self) -> Course:
        return Course(length=self.config["decoding"]["longest"])

    def evaluate(
        self,
        files: str | Path | Iterable[Any],
        search: Search | None = None,
        *,
        metrics: Sequence[str] | None = None,
        reading: Reading | None = None,
    ) -> Evaluation:
        """Perplexity, nats a token and bits a character of a text, or of the test split of a dataset by name."""
        streams, notes = examples_of(self, files, reading, "text")
        judged, _ = self.judge(streams[0], metrics)
        novelty = [self._novelty()["text"]] if self._seen else []
        return replace(judged, notes=(*notes, *novelty))

    def judge(self, stream: Stream, metrics: Sequence[str] | None = None) -> tuple[Evaluation, Surprise]:
        """The scores of a numbered text, and what they are made of."""
        for name in metrics or ():
            known(name, METRICS, "metric of generate")
        found = surprise(self.model, stream, self.config["decoding"]["room"], self.device)
        values = measures(found, stream, self.texts.codec)
        spread = self._intervals(found, characters(stream, self.texts.codec))
        chosen = list(metrics or values)
        scores = {name: values[name] for name in chosen}, {name: spread[name] for name in chosen}
        signature = dict.fromkeys(chosen, f"tokens:{self.texts.codec.kind}|{self._protocol(stream)}")
        return Evaluation(*scores, signature, len(found.nats), [], unit="tokens"), found

    def _protocol(self, stream: Stream) -> str:
        """What was seen before each token."""
        if stream.offsets is not None:
            return "whole lines"
        if self.model.carries:
            return "state carried over the whole text|first token given"
        return f"blocks of {self.config['decoding']['room']}|first token given"

    def _intervals(self, found: Surprise, written: int) -> dict[str, tuple[float, float]]:
        """Resampled over stretches of the text."""
        each = max(1, min(CHUNK, len(found.nats) // 50))
        starts = np.arange(0, len(found.nats), each)
        nats = np.add.reduceat(found.nats, starts)
        low, high = ratio_interval(nats, np.diff(starts, append=len(found.nats)))
        bits = len(found.nats) / math.log(2) / written if written > 0 else math.nan
        return {
            "loss": (low, high),
            "perplexity": (math.exp(min(low, 700)), math.exp(min(high, 700))),
            "bits_per_character": (bits * low, bits * high),
        }

    def record(self, examples: Sequence[Stream], search: Search | None = None, *, most: int = 1000) -> dict[str, Any]:
        """What an evaluation found, as values for a report: scores, where they are good and bad, samples."""
        stream = examples[0]
        started = time.monotonic()
        scores, found = self.judge(stream)
        seconds = time.monotonic() - started
        return {
            **frame(self, scores, np.asarray(stream.ids, np.int64).tobytes(), seconds, stream.labels),
            "unit": scores.unit,
            "places": self._places(found, stream),
            "samples": self.samples(stream),
            "novelty": self._novelty() if self._seen else None,
        }

    def _places(self, found: Surprise, stream: Stream) -> dict[str, Any]:
        """Nats a token along a line or block; of a text that is read in one go, along the text."""
        along = self.model.carries and stream.offsets is None
        place = np.arange(len(found.nats)) if along else found.place
        edges = np.unique(np.linspace(0, int(place.max()) + 1, PARTS + 1).astype(np.int64))
        part = np.searchsorted(edges, place, side="right") - 1
        counts, sums = np.bincount(part), np.bincount(part, weights=found.nats)
        rows = [
            {"from": int(edges[i]), "to": int(edges[i + 1]) - 1, "nats": round(float(sums[i] / n), 4), "count": int(n)}
            for i, n in enumerate(counts)
            if n
        ]
        return {"along": "text" if along else "line" if stream.offsets is not None else "block", "parts": rows}

    def samples(self, stream: Stream) -> list[dict[str, Any]]:
        """Some texts the model writes: one greedily, others drawn."""
        labels = list(self.texts.labels)[:SHOWN] or [None]
        if self.texts.lines:
            chosen = [labels[i % len(labels)] for i in range(SHOWN)]
            prompts, ways = [""] * SHOWN, [Search(sample=True)]
        else:
            start = self.texts.codec.decode(stream.ids[:PROMPT].tolist())
            prompts, chosen = ["", start], [None, None]
            ways = [Search(), Search(sample=True, temperature=0.7), Search(sample=True)]
        course = Course(length=min(300, self._course().length))
        found = []
        for search in ways:
            answers = self.texts.answers(prompts, search, course, chosen)
            temperature = search.temperature if search.sample else 0.0
            for prompt, label, answer in zip(prompts, chosen, answers, strict=True):
                found.append({"prompt": prompt, "label": label, "temperature": temperature, "text": answer.text})
        return found

    def _novelty(self) -> dict[str, Any]:
        """How many of some sampled lines stand in the training data."""
        labels = list(self.texts.labels) or [None]
        chosen = [labels[i % len(labels)] for i in range(SAMPLED)]
        answers = self.texts.answers([""] * SAMPLED, SAMPLE, self._course(), chosen)
        known_lines = {self._seen[i : i + 8] for i in range(0, len(self._seen), 8)}
        new = sum(line_hash(answer.tokens) not in known_lines for answer in answers)
        distinct = len({answer.text for answer in answers})
        text = f"of {SAMPLED} sampled lines {new} are not in the training data, and {distinct} are distinct"
        return {"sampled": SAMPLED, "new": new, "distinct": distinct, "text": text}
