"""A trained language model, loaded from its run folder: go on from a prompt, score a text."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from seqloom.data.batches.language import Stream, StreamOptions
from seqloom.data.files.columns import ReadOptions, read_options_of_run
from seqloom.data.formats.bad_lines import Skipped
from seqloom.data.formats.pairs import OnNote, read_sources, read_with_targets
from seqloom.data.formats.plain_text import text_chunks
from seqloom.data.prepare.language import encode_files
from seqloom.data.tokenizers.tokenizers import UNK
from seqloom.data.tokenizers.vocabulary import Codec, opened
from seqloom.decoding.batched import Answer
from seqloom.decoding.generation import GenerationOptions, TextGenerator
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError, known
from seqloom.metrics.metric_table import task_metrics
from seqloom.tasks.generate import evaluation
from seqloom.tasks.shared.evaluation import Evaluation, examples_of
from seqloom.tasks.shared.predictor import LoadedRun, Predictor
from seqloom.tasks.shared.unseen_characters import UnseenTokens, unknown_tokens
from seqloom.training.objectives.next_token import TokenLosses, characters, language_metrics, token_losses

SAMPLE = Search(sample=True)
METRICS = task_metrics("generate")


class GenerateModel(Predictor[str]):
    """What `seqloom.load` gives for a language model. Remembers nothing between calls.

    It predicts what follows a prompt; of a model with labels a prompt is `label TAB text`.
    """

    def __init__(self, run: LoadedRun) -> None:
        super().__init__(run)
        self.options = StreamOptions(**run.config["data"])
        codec, lines = opened(run.vocabularies, "source", Codec), run.vocabularies["lines"]
        self.seen_lines = base64.b64decode(lines["seen"])
        room = run.config["decoding"]["room"]
        self.texts = TextGenerator(run.model, codec, list(lines["labels"]), self.options.lines, room, run.device)

    def reading(self, columns: str | None = None, skip_bad: bool | None = None) -> ReadOptions:
        """How files are read: as those of the training, but for what is given."""
        bad = self.options.skip_bad if skip_bad is None else skip_bad
        return read_options_of_run(self.config["data"], columns, bad)

    def read(self, files: list[str], reading: ReadOptions) -> tuple[list[Stream], list[str]]:
        """The text of the files, encoded, and notes on it."""
        whole = {"columns": reading.columns, "skip_bad": reading.skip_bad, "limit": None, "sample": None}
        options = replace(self.options, **whole, **reading.file_options)
        stream, notes = encode_files(files, options, self.texts.codec, list(self.texts.labels))
        return [stream], [*notes, *self._unseen_notes(files, options, stream)]

    def _unseen_notes(self, files: list[str], reading: ReadOptions, stream: Stream) -> Iterator[str]:
        """What in the text the model has never seen; the files are read again if there is anything."""
        codec = self.texts.codec
        if codec.kind == "chars" and not self.texts.labels and (stream.ids == UNK).any():
            texts = (text for file in files for text in text_chunks(file, reading, Skipped()))
            lines = (line for text in texts for line in text.removesuffix("\n").split("\n"))
            yield from UnseenTokens.of(unknown_tokens(codec, line) for line in lines).notes()

    def sources(self, file: str, reading: ReadOptions | None = None, on_note: OnNote | None = None) -> Iterator[str]:
        """Prompts as `answers` takes them, one a line; of a model with labels the label comes first, in files too, and
        the prompt may be missing. The columns are those of the training unless `reading` has others."""
        if not self.texts.labels:
            yield from read_sources(file, reading, on_note)
            return
        for one in read_with_targets(file, reading, on_note=on_note):
            where = f"{one.file}:{one.line}"
            if len(one.targets) > 1:
                raise SeqloomError(f"{where}: {len(one.targets) + 1} columns where label and prompt are expected")
            try:
                label = known(one.source, self.texts.labels, "label")
            except SeqloomError as error:
                raise SeqloomError(f"{where}: {error}") from None
            yield "\t".join([label, *one.targets])

    def generate(
        self, prompt: str = "", search: Search = SAMPLE, course: GenerationOptions | None = None, number: int = 0
    ) -> Iterator[str]:
        """What follows the prompt, in pieces as they are written. `number` tells samples of one seed apart."""
        self.model.eval()
        return self.texts.stream(prompt, search, course or self.default_course(), number)

    def dummy_forward(self, length: int) -> None:
        """One example of `length` tokens through the model: what `seqloom info` counts."""
        tokens = torch.full((1, length), UNK)
        self.model(tokens, tokens)

    def unknown(self, source: str) -> list[str]:
        return unknown_tokens(self.texts.codec, self._asked(source)[1]) if self.texts.codec.kind == "chars" else []

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
            found = self.texts.answers(prompts, search, self.default_course(), labels, streams)
            done += len(chunk)
            yield from (found[i : i + search.n_best] for i in range(0, len(found), search.n_best))

    def _asked(self, source: str) -> tuple[str | None, str]:
        if not self.texts.labels:
            return None, source
        label, _, prompt = source.partition("\t")
        return known(label, self.texts.labels, "label"), prompt

    def default_course(self) -> GenerationOptions:
        return GenerationOptions(length=self.config["decoding"]["longest"])

    def evaluate(
        self,
        files: str | Path | Iterable[Any],
        search: Search | None = None,
        *,
        metrics: Sequence[str] | None = None,
        reading: ReadOptions | None = None,
    ) -> Evaluation:
        """Perplexity, nats a token and bits a character of a text, or of the test split of a dataset by name."""
        streams, notes = examples_of(self, files, reading, "text")
        scored, _ = self.score(streams[0], metrics)
        novelty = [evaluation.novelty(self)["text"]] if self.seen_lines else []
        return replace(scored, notes=(*notes, *novelty))

    def score(self, stream: Stream, metrics: Sequence[str] | None = None) -> tuple[Evaluation, TokenLosses]:
        """The scores of an encoded text, and what they are made of."""
        for name in metrics or ():
            known(name, METRICS, "metric of generate")
        found = token_losses(self.model, stream, self.config["decoding"]["room"], self.device)
        values = language_metrics(found, stream, self.texts.codec)
        spread = evaluation.intervals(found, characters(stream, self.texts.codec))
        chosen = list(metrics or values)
        scores = {name: values[name] for name in chosen}, {name: spread[name] for name in chosen}
        signature = dict.fromkeys(chosen, f"tokens:{self.texts.codec.kind}|{evaluation.protocol(self, stream)}")
        return Evaluation(*scores, signature, len(found.nats), [], unit="tokens"), found

    def evaluation_details(
        self, examples: Sequence[Stream], search: Search | None = None, *, most: int = 1000
    ) -> dict[str, Any]:
        """What an evaluation found, as values for a report: scores, where they are good and bad, samples."""
        return evaluation.evaluation_details(self, examples[0])
