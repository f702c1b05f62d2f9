"""Formats of Python examples by task, and writing them as lines of a file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from seqloom.errors import SeqloomError, known
from seqloom.plural import counted

# Column names that are recognized by default, likeliest first.
SOURCES = ("source", "src", "input", "question", "prompt", "word", "text", "sentence")
TARGETS = ("target", "tgt", "output", "answer", "completion", "pronunciation", "translation")
TEXTS = ("text", "sentence", "content", "review", "question", "utterance", "source", "input")
LABELS = ("label", "labels", "class", "category", "intent", "target")
WORDS = ("tokens", "words", "sentence", "text")
TAGS = ("tags", "ner_tags", "pos_tags", "upos", "labels", "ner", "pos")
_NAMES = {
    "translate": (SOURCES, TARGETS),
    "classify": (TEXTS, LABELS),
    "tag": (WORDS, TAGS),
    "condition": (LABELS, TEXTS),
    "text": (TEXTS,),
}
_KINDS = {"translate": "source and target", "classify": "text and label", "tag": "words and tags"}
_KINDS |= {"condition": "label and text", "text": "text"}


class ColumnNames(NamedTuple):
    """Column names, and the label names of columns with numbered labels."""

    names: tuple[str, ...]
    labels: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, names: Any, features: Any = None) -> ColumnNames:
        found = {str(name): _label_names(features[name]) for name in names if features and name in features}
        return cls(tuple(map(str, names)), {name: labels for name, labels in found.items() if labels})

    def record(self, example: Any) -> dict[str, Any]:
        """A row as a dict, with label names."""
        values = example if isinstance(example, Mapping) else dict(zip(self.names, example, strict=True))
        return {str(name): _label_name(value, self.labels.get(str(name))) for name, value in values.items()}


def _label_names(feature: Any) -> Sequence[str] | None:
    """The names of a ClassLabel, or of a list of them, of Hugging Face features."""
    inner = feature[0] if isinstance(feature, list) and feature else getattr(feature, "feature", feature)
    names = getattr(inner, "names", None)
    return list(names) if isinstance(names, list | tuple) else None


def _label_name(value: Any, labels: Sequence[str] | None) -> Any:
    if labels is None:
        return value
    if isinstance(value, list | tuple):
        return [_label_name(one, labels) for one in value]
    value = python_value(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    return labels[value] if 0 <= value < len(labels) else None  # -1: test split with hidden labels


@dataclass
class ExampleFormat:
    """How the examples of a task are written: `write` formats the parts of one."""

    ending: str
    write: Callable[[Sequence[Any]], str]
    kind: str  # a key of `_NAMES`; "table" keeps all columns
    chosen: str | None = None  # the user's `columns`
    loose: bool = False  # broken examples are left to the reader, which counts them
    _keys: tuple[str, ...] | None = field(default=None, init=False)

    def line(self, example: Any, columns: ColumnNames | None, number: int) -> bytes:
        try:
            return self.write(self.parts(example, columns)).encode()
        except SeqloomError as error:
            raise SeqloomError(f"example {number:,}: {error}") from None
        except UnicodeEncodeError:
            raise SeqloomError(f"example {number:,}: holds half a surrogate pair, which is no character") from None

    def parts(self, example: Any, columns: ColumnNames | None) -> Sequence[Any]:
        """Source and targets of an example in any supported form; of a table the whole row."""
        example = example.tolist() if hasattr(example, "tolist") else example  # a row of numpy's
        if columns is not None or isinstance(example, Mapping):
            record = (columns or ColumnNames((), {})).record(example)
            return [record] if self.kind == "table" else self._of_record(record)
        if self.kind == "table":
            self._list(example, "values of a row or a dict")
            return [{str(place): value for place, value in enumerate(example, 1)}]
        if self.kind == "text":
            if isinstance(example, list | tuple) and len(example) == 1:
                return example
            return [example]
        if self.kind == "tag":
            return _words_and_tags(example)
        self._list(example, f"({_KINDS[self.kind].replace(' and ', ', ')}) or a dict")
        if len(example) < 2:
            raise SeqloomError(f"{counted(len(example), 'values')} where {_KINDS[self.kind]} are expected")
        return example

    def _list(self, example: Any, expected: str) -> None:
        if isinstance(example, str) or not isinstance(example, Sequence):
            raise SeqloomError(f"expected {expected}, here {_short(example)}")

    def _of_record(self, record: Mapping[str, Any]) -> Sequence[Any]:
        pair = record.get("translation")
        if self.kind == "translate" and isinstance(pair, Mapping) and (self.chosen or len(pair) == 2):
            record = pair  # {"translation": {"en": …, "de": …}}, as Hugging Face has it
        if self._keys is None:
            self._keys = self._choose(list(record))
        for key in self._keys[:2]:
            if key not in record:
                raise SeqloomError(f"has no {key!r}")
        return [record.get(key) for key in self._keys]

    def _choose(self, names: list[str]) -> tuple[str, ...]:
        """The columns: as chosen, by known names, or the only ones."""
        wanted = _NAMES[self.kind]
        if self.chosen is not None:
            keys = tuple(name.strip() for name in self.chosen.split(","))
            keys = tuple(names[int(key) - 1] if key.isdigit() and 0 < int(key) <= len(names) else key for key in keys)
            if len(keys) < len(wanted):
                raise SeqloomError(f"columns={self.chosen!r}: name the columns of {_KINDS[self.kind]}")
            return tuple(known(key, names, "column") for key in keys)
        lower = {name.lower(): name for name in reversed(names)}
        found = [[lower[name] for name in some if name in lower] for some in wanted]
        if all(found) and not (self.kind == "tag" and len(found[1]) > 1):
            return tuple(some[0] for some in found)
        if len(names) == len(wanted):
            return tuple(names)
        example = ",".join(names[: len(wanted)])
        message = f"its columns are {', '.join(names)}; say which are {_KINDS[self.kind]}, as in columns={example!r}"
        raise SeqloomError(message)


def format_of_task(task: str, data: Mapping[str, Any]) -> ExampleFormat:
    """`data`: the settings that describe an example."""
    loose, chosen = bool(data.get("skip_bad")), data.get("columns")
    if chosen is not None and (isinstance(chosen, bool) or not isinstance(chosen, str | int)):
        raise SeqloomError(f"columns takes names or numbers with commas between, as in 'text,label', not {chosen!r}")
    chosen = None if chosen is None else str(chosen)
    if task == "table":
        return ExampleFormat(".jsonl", _row, "table")
    if task == "tag":
        return ExampleFormat(".conllu", partial(_tagged_sentence, loose=loose), "tag", chosen)
    if task == "classify":
        kind = str(data.get("target") or "label")
        return ExampleFormat(".jsonl", partial(_labelled, kind=kind, loose=loose), "classify", chosen, loose)
    if task == "translate":
        return ExampleFormat(".jsonl", partial(_pair, loose=loose), "translate", chosen, loose)
    if task == "generate" and data.get("condition"):
        return ExampleFormat(".jsonl", partial(_pair, loose=loose), "condition", chosen, loose)
    if task == "generate":
        return ExampleFormat(".txt", partial(_text_line, lines=data.get("batches") == "lines"), "text", chosen)
    return ExampleFormat(".jsonl", partial(_text_only, loose=loose), "text", chosen, loose)


def python_value(value: Any) -> Any:
    """Numbers of numpy and pandas as Python numbers; missing values as None."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if not isinstance(value, float) and callable(getattr(value, "item", None)) and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if isinstance(value, float) and math.isnan(value):
        return None
    return None if type(value).__name__ in ("NAType", "NaTType") else value


def _text(value: Any, what: str, loose: bool = False) -> str:
    """A value as text."""
    value = python_value(value)
    if isinstance(value, bool):
        value = "true" if value else "false"
    if isinstance(value, int | float):
        value = str(value)
    if value is None:
        value = ""
    if not isinstance(value, str):
        raise SeqloomError(f"the {what} must be text, here {_short(value)}")
    if not loose and (not value or value.isspace()):
        raise SeqloomError(f"the {what} is empty; skip_bad=True leaves such examples out")
    if not loose and "\0" in value:
        raise SeqloomError(f"NUL character in the {what}; skip_bad=True leaves such examples out")
    return str(value)


def _one_or_many(value: Any, what: str, loose: bool) -> str | list[str]:
    if hasattr(value, "tolist"):
        value = value.tolist()  # an array of numpy's
    if isinstance(value, list | tuple | set | frozenset):
        some = sorted(value) if isinstance(value, set | frozenset) else value
        return [_text(one, what, loose) for one in some]
    return _text(value, what, loose)


def _json(**values: Any) -> str:
    return json.dumps(values, ensure_ascii=False) + "\n"


def _pair(parts: Sequence[Any], loose: bool) -> str:
    """Source and target; further values, or a list of targets, are further references."""
    source, first, *more = parts
    target = _one_or_many(first, "target", loose)
    others = [_text(one, "target", True) for one in more if python_value(one) is not None]
    if others:
        target = [*([target] if isinstance(target, str) else target), *others]
    return _json(source=_text(source, "source", loose), target=target)


def _labelled(parts: Sequence[Any], kind: str, loose: bool) -> str:
    if len(parts) > 2:
        raise SeqloomError(f"{len(parts)} values where a text and its label are expected")
    text, label = parts
    found = _one_or_many(label, "label", loose)
    if isinstance(found, list) and kind != "labels":
        raise SeqloomError("the label is a list; target='labels' takes several")
    return _json(text=_text(text, "text", loose), label=found)


def _text_only(parts: Sequence[Any], loose: bool) -> str:
    return _json(source=_text(parts[0], "text", loose))


def _text_line(parts: Sequence[Any], lines: bool) -> str:
    text = _text(parts[0], "text", True)
    if "\0" in text:
        raise SeqloomError("NUL character in the text")
    if lines and "\n" in text.rstrip("\n"):
        raise SeqloomError("the text holds a line end; with batches='lines' each text is one line")
    return text if text.endswith("\n") else f"{text}\n"


def _row(parts: Sequence[Any]) -> str:
    values = {name: python_value(value) for name, value in parts[0].items()}
    for name, value in values.items():
        if isinstance(value, list | tuple | dict | set):
            raise SeqloomError(f"the column {name!r} holds {_short(value)}; a table has numbers and texts")
    return json.dumps(values, ensure_ascii=False, default=str) + "\n"


def _words_and_tags(example: Any) -> Sequence[Any]:
    """(words, tags), or a list of (word, tag)."""
    if isinstance(example, str) or not isinstance(example, Sequence):
        raise SeqloomError(f"expected (words, tags) or a list of (word, tag), here {_short(example)}")
    pairs = all(isinstance(one, list | tuple) and len(one) == 2 for one in example)
    if pairs and (len(example) != 2 or (isinstance(example, list) and isinstance(example[0], tuple))):
        return [[word for word, _ in example], [tag for _, tag in example]]
    if len(example) != 2:
        raise SeqloomError(f"expected (words, tags) or a list of (word, tag), here {_short(example)}")
    return example


REST = "\t_" * 6  # unused columns of CoNLL-U, a format without header


def _tagged_sentence(parts: Sequence[Any], loose: bool) -> str:
    words, tags = (_words(part, what) for part, what in zip(parts, ("words", "tags"), strict=False))
    if len(words) != len(tags):
        raise SeqloomError(f"{counted(len(words), 'words')} but {counted(len(tags), 'tags')}")
    cells = ((_cell(word, "word", loose), _cell(tag, "tag", loose)) for word, tag in zip(words, tags, strict=True))
    lines = (f"{at}\t{word}\t_\t{tag}{REST}\n" for at, (word, tag) in enumerate(cells, 1))
    return "".join([*lines, "\n"]) if words else ""


def _words(value: Any, what: str) -> list[Any]:
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, str):
        return value.split()
    if not isinstance(value, list | tuple):
        raise SeqloomError(f"the {what} are a list or a text with blanks between, here {_short(value)}")
    return list(value)


def _cell(value: Any, what: str, loose: bool) -> str:
    """A word or tag for a column; with `loose` an invalid one is left empty, for the reader to count."""
    text = _text(value, what, loose)
    if text == "_" and what == "tag" and not loose:
        raise SeqloomError("the tag is _, which means none")
    if not any(sign in text for sign in "\t\n\r\0"):
        return text
    if loose:
        return ""
    raise SeqloomError(f"the {what} {text[:40]!r} holds a TAB or a line end")


def _short(value: Any) -> str:
    return (
        f"{type(value).__name__} {str(value)[:60]!r}" if isinstance(value, str | int | float) else type(value).__name__
    )
