"""A trained model of rows, loaded from its run: rows of a table in, classes or numbers out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqloom.data.batches.table import Schema, TableSource
from seqloom.data.files.columns import ReadOptions, read_options_of_run
from seqloom.data.files.csv import split_csv
from seqloom.data.files.file_format import detect_format
from seqloom.data.files.lines import STDIN, Line, LineError, decode, local_path, read_lines
from seqloom.data.formats.bad_lines import Skipped, skipped_notes
from seqloom.data.formats.pairs import OnNote, pass_notes, stdin
from seqloom.data.formats.table import Layout, Row, fields_from_json, row_entries, valid_rows
from seqloom.data.formats.table import file_notes as notes_of
from seqloom.data.prepare.table import drop_invalid, unseen_category_notes
from seqloom.decoding.batched import Answer
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError
from seqloom.metrics.classification import LabelPredictions, NumberPredictions, score_labels
from seqloom.tasks.classify.model import EMPTY_ANSWER
from seqloom.tasks.shared.evaluation import Evaluation, examples_of
from seqloom.tasks.shared.label_predictions import label_answers, with_references
from seqloom.tasks.shared.predictor import LoadedRun, Predictor
from seqloom.tasks.table.evaluation import evaluation_details

Asked = str | Mapping[str, Any]  # a row: fields with commas between, JSON, or a dict


class TableModel(Predictor[Asked]):
    """What `seqloom.load` gives for a run of `table`. Remembers nothing between calls."""

    single_types = item_types = (str, Mapping)

    def __init__(self, run: LoadedRun) -> None:
        super().__init__(run)
        self.schema = Schema.from_json(run.vocabularies)

    def reading(self, columns: str | None = None, skip_bad: bool | None = None) -> ReadOptions:
        """How files are read: as those of the training, but for what is given. Columns have their names."""
        if columns is not None:
            names = ", ".join(self.schema.layout.columns)
            raise SeqloomError(f"--columns {columns!r}: the columns of a table are found by their names: {names}")
        data = {**self.config["data"], "columns": None, "header": None}
        return read_options_of_run(data, None, data.get("skip_bad", False) if skip_bad is None else skip_bad)

    def read(self, files: list[str], reading: ReadOptions) -> tuple[list[Row], list[str]]:
        """The rows of some files, and what there is to say about them."""
        skipped = Skipped() if reading.skip_bad else None
        rows = drop_invalid(valid_rows(files, self._layout(reading), skipped), self.schema, skipped)
        return rows, [
            *notes_of(files, reading),
            *unseen_category_notes(self.schema.encode(rows)),
            *(skipped_notes(skipped.to_json()) if skipped else ()),
        ]

    def _layout(self, reading: ReadOptions) -> Layout:
        layout = self.schema.layout
        if reading.header == layout.numbered:  # given, and otherwise than for the training
            option, found_by = (
                ("--header", "numbers") if layout.numbered else ("--no-header", "names in the first line")
            )
            raise SeqloomError(
                f"{option}: this run finds its columns by their {found_by}, as its training did; leave it out"
            )
        return replace(layout, reading=reading)

    def sources(self, file: str, reading: ReadOptions | None = None, on_note: OnNote | None = None) -> Iterator[str]:
        """The rows of a file as `answers` takes them, one JSON object each; the target need not be there.

        What is no table, as standard input ("-"), is read as it comes: its lines are rows already.
        """
        reading = reading or ReadOptions()
        layout = self._layout(reading)
        if file == STDIN:
            one, lines = stdin(reading)
            pass_notes(one.notes, on_note)
            yield from self._lines("stdin", lines)
            return
        found = detect_format(file, local_path(file), reading)
        pass_notes(found.notes, on_note)
        if found.kind == "parallel":
            yield from self._lines(file, read_lines(file, local_path(file), found.encoding))
            return
        for entry in row_entries(file, layout, need_target=False):
            if not isinstance(entry, Row):
                raise SeqloomError(str(entry))
            if problem := self.schema.problem(entry, need_target=False):
                raise SeqloomError(str(problem))
            yield json.dumps(dict(zip(self.schema.layout.columns, entry.fields, strict=True)), ensure_ascii=False)

    def _lines(self, file: str, lines: Iterator[Line]) -> Iterator[str]:
        for line, raw in lines:
            try:
                if isinstance(raw, LineError):
                    raise raw
                yield decode(raw)
            except LineError as error:
                raise SeqloomError(f"{file}:{line}: {error}") from None

    def answers(
        self, sources: Iterable[Asked], search: Search | None = None, rows: int = 64, ahead: int = 16
    ) -> Iterator[list[Answer]]:
        """The likeliest classes of each row, `search.n_best` of them, in order, as a stream; `confidence` is the
        probability. A number comes with none: its confidence is 1.

        A row is a JSON object or a dict by the names of the columns, or its fields in their order with commas between.
        """
        search = search or Search()
        search.check_auto("table")
        if search.sample:
            raise SeqloomError("a table's model says the likeliest classes and draws none: leave sampling out")
        turns = enumerate(sources, 1)
        while chunk := list(islice(turns, ahead * rows)):
            asked = [self._row(source, turn) for turn, source in chunk]
            logits = iter(self.logits(self.schema.encode([row for row in asked if row is not None]), rows))
            for row in asked:
                yield (
                    [EMPTY_ANSWER]
                    if row is None
                    else label_answers(self.schema.prediction, next(logits), search.n_best)
                )

    def _row(self, source: Asked, turn: int) -> Row | None:
        """None: an empty line, whose answer is empty."""
        layout = self.schema.layout
        try:
            if isinstance(source, Mapping):
                source = json.dumps({str(name): value for name, value in source.items()}, default=str)
            if not source.strip():
                return None
            if source.lstrip().startswith("{"):
                fields = fields_from_json(source, layout)[:-1]
            elif (cut := split_csv(source)) is None:
                raise LineError("the quote is never closed", "quote")
            else:
                fields = tuple(cut)
            if len(fields) != len(layout.columns):
                names = ",".join(layout.columns)
                raise LineError(f"{len(fields)} fields, expected {len(layout.columns)}: {names}", "columns")
        except LineError as error:
            raise SeqloomError(f"row {turn}: {error}") from None
        row = Row(fields, "", "", 0)
        if problem := self.schema.problem(row, need_target=False):
            raise SeqloomError(f"row {turn}: {problem.reason}")
        return row

    def dummy_forward(self, length: int) -> None:
        """One example of `length` words in each text column through the model: what `seqloom info` counts."""
        columns = self.schema.layout.columns
        text = {column.name for column in self.schema.columns if column.kind == "text"}
        fields = tuple(" ".join(["word"] * length) if name in text else "" for name in columns)
        self.model(self.schema.encode([Row(fields, "", "", 0)]).batch(np.zeros(1, np.int64)).source)

    @torch.inference_mode()
    def logits(self, rows: TableSource, size: int = 256) -> np.ndarray:
        """[N, outputs], in batches of rows with texts of like length."""
        self.model.eval()
        found = np.zeros((len(rows), self.schema.prediction.size), np.float32)
        order = np.argsort(rows.lengths, kind="stable")
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            found[chosen] = self.model(rows.batch(chosen).source.to(self.device)).float().cpu().numpy()
        return found

    def evaluate(
        self,
        files: str | Path | Iterable[Any],
        search: Search | None = None,
        *,
        metrics: Sequence[str] | None = None,
        reading: ReadOptions | None = None,
    ) -> Evaluation:
        """Scores on tables, or on the test split of a dataset by name."""
        rows, notes = examples_of(self, files, reading, "rows")
        numbered = self.schema.encode(rows)
        scored = self.score(numbered, self.logits(numbered), metrics)
        return replace(scored, notes=(*notes, *scored.notes))

    def score(self, rows: TableSource, logits: np.ndarray, metrics: Sequence[str] | None = None) -> Evaluation:
        """Scores of outputs that were computed already, [N, outputs], one for each row."""
        answer, found = self.schema.prediction, self.found(rows, logits)
        if metrics is None and answer.kind == "label":
            metrics = ["accuracy", "macro_f1", "calibration_error"]  # the micro F1 is the accuracy
        scores = score_labels(found, metrics=metrics)
        texts = [label_answers(answer, row)[0].text for row in logits]
        unknown = int((rows.values < 0).sum()) if answer.kind == "label" else 0
        notes = (f"{unknown:,} of {len(rows):,} rows have a class that no training row has",) if unknown else ()
        return Evaluation(scores.metrics, scores.intervals, scores.signature, scores.count, texts, notes)

    def found(self, rows: TableSource, logits: np.ndarray) -> LabelPredictions | NumberPredictions:
        """Predictions beside their references."""
        return with_references(self.schema.prediction, logits, rows.values)

    def evaluation_details(
        self, examples: Sequence[Row], search: Search | None = None, *, most: int = 1000
    ) -> dict[str, Any]:
        """What an evaluation found, as values for a report; fit for `json.dump`."""
        return evaluation_details(self, examples, most=most)

    def weights(self) -> dict[str, Any] | None:
        """What a linear model adds to its answer for each value of a row; None of any other.

        `weights`: by deviation of a number, which makes columns comparable; `per_unit`: as the table has it, of a
        number in the units of the target too; `bias` goes with `per_unit`. Of two classes all speak for the second.
        """
        found = getattr(self.model, "weights", lambda: None)()
        if found is None:
            return None
        scaled, bias = (tensor.double().cpu().numpy() for tensor in found)
        means, scales = self._scales()
        answer = self.schema.prediction
        per_unit, start = scaled / scales, bias - (scaled * means / scales).sum(1)
        if answer.kind == "number":
            scaled, per_unit = scaled * answer.deviation, per_unit * answer.deviation
            start = start * answer.deviation + answer.mean
        outputs = [self.schema.target.name] if answer.kind == "number" else list(answer.names[-len(bias) :])
        numbers = {"weights": scaled, "per_unit": per_unit, "bias": start}
        return {"outputs": outputs, "values": self.schema.labels, **{name: v.tolist() for name, v in numbers.items()}}

    def _scales(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each value of a row the mean that is taken off, and what it is divided by."""
        columns = [(column, place) for column in self.schema.columns for place in range(column.width)]
        numbers = [column if column.kind == "number" and place == 0 else None for column, place in columns]
        means = np.array([0.0 if column is None else column.mean for column in numbers])
        return means, np.array([1.0 if column is None else column.deviation for column in numbers])
