"""Tables: read, split, types of columns detected, scales learned, and encoded in memory."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from seqloom.data.batches.class_weights import class_weights
from seqloom.data.batches.table import Schema, TableSource
from seqloom.data.files.columns import ReadOptions, cache_settings
from seqloom.data.files.file_format import detect_format
from seqloom.data.files.lines import local_path
from seqloom.data.formats.bad_lines import Skipped
from seqloom.data.formats.bad_lines import skipped_notes as skip_note
from seqloom.data.formats.column_types import (
    UNSEEN_CATEGORY,
    Column,
    detect_target_type,
    detect_type,
    fit_column,
    is_missing,
    normalize_field,
    parse_number,
)
from seqloom.data.formats.table import (
    NO_HEADER,
    Layout,
    Row,
    TableOptions,
    check_mostly_valid,
    detect_layout,
    valid_rows,
)
from seqloom.data.formats.table import file_notes as notes_of
from seqloom.data.prepare.cache import fingerprint
from seqloom.data.prepare.notes import held_out_notes, overlap_notes
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.splits.sorted_files import MAX_EXAMPLES, sorted_note
from seqloom.data.splits.split import Split
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.errors import SeqloomError
from seqloom.files import sha256

MEANING = 1  # version of the encoding; a change keeps older runs from resuming
CLASSES_SHOWN = 5  # classes that a note names
MIN_ROWS = 20  # fewer rows prove nothing


@dataclass(frozen=True, eq=False)
class PreparedTable:
    """Rows ready for training."""

    schema: Schema
    train: TableSource
    valid: TableSource | None  # None: nothing is held out
    notes: list[str]
    facts: dict[str, Any] = field(repr=False)
    _held: list[Row] = field(repr=False)

    def vocabularies(self) -> dict[str, Any]:
        return self.schema.to_json()

    def validation_examples(self) -> list[Row]:
        return self._held


def prepare_table(request: PrepareRequest[TableOptions]) -> PreparedTable:
    """Rows are held out by a hash of their fields and the seed, so equal rows are on one side. Types, scales,
    categories and tokens come from the training rows, unless vocabularies of another run are given: all, or its tokens
    only."""
    options, train, files, stored = request.options, request.train, request.valid_files, request.vocabularies or {}
    schema = Schema.from_json(stored) if "columns" in stored else None
    codec = Codec.from_json(stored["source"]) if "source" in stored else None
    written = ReadOptions(delimiter=options.delimiter, encoding=options.encoding, detect=options.detect)
    plan = replace(schema.layout, reading=written) if schema else detect_layout(train, options)
    skipped = Skipped() if options.skip_bad else None
    rows = valid_rows(train, plan, skipped, options.limit)
    held = valid_rows(files, plan, skipped)
    if files and not held:
        raise SeqloomError(f"{', '.join(files)}: holds no rows; a validation file needs at least one")
    head = "" if options.limit is None else _sorted_note(train, plan, options)
    split = Split.of([], request.share, seed=request.seed, reading=options)
    texts = ["\0".join(map(normalize_field, row.fields)) for row in rows]
    places = split.split_texts(texts, _classes(rows, plan, options))
    rows, aside = ([rows[place] for place in some.tolist()] for some in places)
    held = held if files else aside
    if not rows:
        aside = f"all {len(held):,} rows were held out; give a smaller share or more data" if held else "holds no rows"
        raise SeqloomError(f"{', '.join(train)}: {aside}")
    drafted = schema or draft_schema(rows, plan, options)
    rows, held = (drop_invalid(part, drafted, skipped) for part in (rows, held))
    schema = schema or _fit_schema(rows, drafted, options, codec)
    ready = _encode_rows(rows, held, schema, skipped or Skipped(), fingerprint(_key(request)))
    notes = [
        *notes_of([*train, *files], options),
        *options.subset_notes("rows"),
        *filter(None, [head]),
        *_held_out_notes(rows, held, split),
        *ready.notes,
        *_row_numbers(rows, schema),
    ]
    weights = _weights(options.class_weights, ready.train)
    return replace(
        ready, train=replace(ready.train, weights=weights), notes=notes, facts=ready.facts | {"notes": notes}
    )


def _held_out_notes(rows: Sequence[Row], held: Sequence[Row], split: Split) -> Iterator[str]:
    if split.share:
        largest = Counter(row.fields for row in (*rows, *held)).most_common(1)[0][1]
        yield from held_out_notes(split, "rows", len(rows), len(held), by="by their fields ", largest=largest)
    else:
        known = {row.fields for row in rows}
        yield from overlap_notes(sum(row.fields in known for row in held), len(held), "rows")


def _row_numbers(rows: Sequence[Row], schema: Schema) -> Iterator[str]:
    """A column of rising whole numbers is probably a row number, useless for new rows."""
    for at, column in enumerate(schema.columns):
        fields = [row.fields[at] for row in rows] if column.kind == "number" and len(rows) >= MIN_ROWS else []
        found = [value for value in map(parse_number, fields) if value is not None and value.is_integer()]
        if fields and len(found) == len(fields) and all(a < b for a, b in pairwise(found)):
            yield f"{column.name} rises from row to row: if it only numbers them, leave it out by data.exclude"


def _weights(way: str, train: TableSource) -> np.ndarray | None:
    classes = train.schema.classes
    counts = np.bincount(train.values[train.values >= 0], minlength=len(classes)) if classes else np.zeros(0)
    return class_weights(way, train.target, counts)


def _sorted_note(files: Sequence[str], plan: Layout, options: TableOptions) -> str:
    """A note where only the first rows are read and they differ from the rest."""
    assert options.limit is not None
    with suppress(SeqloomError):  # rows after the limit may be invalid
        classes = _classes(valid_rows(files, plan, Skipped(), options.limit + MAX_EXAMPLES), plan, options)
        return sorted_note(classes or (), options.limit)
    return ""


def _classes(rows: Sequence[Row], layout: Layout, options: TableOptions) -> list[str] | None:
    """The classes of the rows; None if the target is a number."""
    values = [normalize_field(row.target) for row in rows]
    kind = options.column_types.get(layout.target) or detect_target_type(values)
    return values if kind in ("category", "yes") else None


def _column_types(rows: Sequence[Row], layout: Layout, options: TableOptions) -> dict[str, str]:
    """The type of each column, as given or detected; none for empty columns."""
    columns = zip(layout.columns, zip(*(row.fields for row in rows), strict=True), strict=True)
    found = {name: options.column_types.get(name) or detect_type(fields) for name, fields in columns}
    kinds = {name: kind for name, kind in found.items() if kind is not None}
    if not kinds:
        raise SeqloomError(f"{rows[0].file}: every column but the target is empty")
    kinds[layout.target] = options.column_types.get(layout.target) or str(
        detect_target_type(row.target for row in rows)
    )
    if kinds[layout.target] == "text":
        values = len({normalize_field(row.target) for row in rows})
        raise SeqloomError(
            f"the target {layout.target!r} has {values:,} different values in {len(rows):,} rows, too many for classes "
            "and no numbers; name another column by target, or give it the kind category"
        )
    return kinds


def draft_schema(rows: Sequence[Row], layout: Layout, options: TableOptions) -> Schema:
    """A schema with types only: enough to find invalid rows."""
    kinds = _column_types(rows, layout, options)
    columns = tuple(Column(name, kinds.get(name, "category")) for name in layout.columns)
    codec = Codec.from_counts("words", {})
    target = Column(layout.target, kinds[layout.target])
    return Schema(columns, target, codec, layout.numbered, options.max_length, options.truncate)


def drop_invalid(rows: list[Row], schema: Schema, skipped: Skipped | None) -> list[Row]:
    """The valid rows; invalid ones are left out and counted, or raise."""
    good = []
    for row in rows:
        problem = schema.problem(row)
        if problem is None:
            good.append(row)
        elif skipped is None:
            raise SeqloomError(
                f"{problem}; data.column_types changes the kind of a column, --skip-bad leaves such rows out"
            )
        else:
            skipped.add(problem)
    check_mostly_valid(list({row.file: None for row in rows}), len(rows) - len(good), len(good))
    return good


def _fit_schema(rows: Sequence[Row], draft: Schema, options: TableOptions, codec: Codec | None) -> Schema:
    fields = list(zip(*(row.fields for row in rows), strict=True))
    columns = [fit_column(c.name, c.kind, f, options.flag_missing) for c, f in zip(draft.columns, fields, strict=True)]
    target = fit_column(draft.target.name, draft.target.kind, [row.target for row in rows])
    if target.kind == "category" and len(target.values) < 2:
        raise SeqloomError(
            f"the target {target.name!r} is {rows[0].target!r} in every training row: there is nothing to learn"
        )
    texts = [text for at in draft.texts for text in fields[at]]
    codec = codec or Codec.build(options.tokens, texts, **options.vocabulary)
    return Schema(tuple(columns), target, codec, draft.numbered, options.max_length, options.truncate)


def _encode_rows(rows: list[Row], held: list[Row], schema: Schema, skipped: Skipped, fingerprint: str) -> PreparedTable:
    train = schema.encode(rows, f"{fingerprint}-train")
    if schema.classes and (unknown := int((train.values < 0).sum())):
        classes = ", ".join(schema.classes[:CLASSES_SHOWN])
        raise SeqloomError(f"{unknown:,} rows have a class that the run it starts from lacks; it has {classes}")
    valid = schema.encode(held, f"{fingerprint}-valid")
    notes = [*_notes(valid, schema), *skip_note(skipped.to_json())]
    columns = describe_columns(rows, schema)
    facts = {
        "train": {"rows": len(train)},
        "valid": {"rows": len(held)} if held else None,
        "columns": columns[:-1],
        "target": columns[-1],
        "values": len(schema.labels),
        "skipped": skipped.to_json(),
    }
    return PreparedTable(schema, train, valid if len(valid) else None, notes, facts, held)


def describe_columns(rows: Sequence[Row], schema: Schema) -> list[dict[str, Any]]:
    """Statistics of each column, for data.json and the report; the target comes last."""
    fields = zip(*((*row.fields, row.target) for row in rows), strict=True)
    return [
        _describe(fit_column(c.name, c.kind, f), f)
        for c, f in zip((*schema.columns, schema.target), fields, strict=True)
    ]


def _describe(column: Column, fields: Sequence[str]) -> dict[str, Any]:
    gone = is_missing if column.kind in ("number", "yes") else lambda text: not text.strip()
    description: dict[str, Any] = {"name": column.name, "kind": column.kind, "missing": sum(map(gone, fields))}
    if column.kind in ("number", "yes"):
        description |= {"mean": column.mean, "deviation": column.deviation}
    if column.kind == "category":
        counts = Counter(filter(None, map(normalize_field, fields)))
        description |= {"values": len(counts), "commonest": [list(pair) for pair in counts.most_common(20)]}
    return description


def _notes(held: TableSource, schema: Schema) -> Iterator[str]:
    kinds = ", ".join(f"{column.name} {_kind(column)}" for column in schema.columns)
    yield f"columns: {kinds}; {len(schema.labels):,} values in all. data.column_types.NAME=KIND changes a kind"
    named = [name for name in schema.layout.all if parse_number(name) is not None]
    if named and not schema.numbered:
        yield f"the first line is taken for the names of the columns, among them {named[0]}; {NO_HEADER}"
    target, classes = schema.target, schema.classes
    shown = f"{', '.join(classes[:CLASSES_SHOWN])}{', …' if len(classes) > CLASSES_SHOWN else ''}"
    what = f"one of {len(classes):,} classes ({shown})"
    yield f"target: {target.name}, {what if classes else 'a number'}"
    yield from unseen_category_notes(held)
    if classes and (unknown := int((held.values < 0).sum())):
        yield f"{unknown:,} rows for validation have a class that no training row has: no answer to them can be right"


def unseen_category_notes(rows: TableSource) -> Iterator[str]:
    """Notes on fields with a category that no training row has."""
    for at, column in enumerate(column for column in rows.schema.columns if column.kind != "text"):
        if column.kind == "category" and (count := int((rows.encoded[:, at] == UNSEEN_CATEGORY).sum())):
            of = f"{count:,} of {len(rows):,} rows"
            yield f"{of} have a value of {column.name} that no training row has: it counts as none"


def _kind(column: Column) -> str:
    if column.kind == "category":
        return f"category of {len(column.values):,}" if column.values else "empty"
    return {"yes": "yes/no"}.get(column.kind, column.kind)


def _key(request: PrepareRequest[TableOptions]) -> dict[str, Any]:
    """Everything that determines the encoded rows."""
    options, train, valid = request.options, request.train, request.valid
    key: dict[str, Any] = {"meaning": MEANING, "unicode": unicodedata.unidata_version}
    key["train"] = [sha256(local_path(file)) for file in train]
    key["valid"] = [sha256(local_path(file)) for file in valid] if isinstance(valid, list) else [valid, request.seed]
    key["kept"] = request.vocabularies or {}
    files = [*train, *request.valid_files]
    key["options"] = cache_settings(options) | {"header": options.header}
    non_default = [detect_format(str(file), local_path(file), options).non_default for file in files]
    if any(non_default):
        key["written"] = non_default
    return key
