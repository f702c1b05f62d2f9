"""Examples from Python (lists, iterables, DataFrames, Hugging Face datasets), streamed into a file of the cache.

The file is named by its content and read like any other, so memory stays small and fingerprints and resuming work.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from seqloom.data.datasets.catalog import DATASETS
from seqloom.data.formats.python_examples import ColumnNames, ExampleFormat, format_of_task
from seqloom.errors import SeqloomError
from seqloom.files import default_cache

FOLDER = "examples"
MAX_EXAMPLES = 1_000_000  # examples of an iterable without a length, unless `limit` is set
MAX_BYTES = 1 << 30  # bytes of the same
TEXTS = ("generate", "mask", "vectors")  # tasks whose examples are plain texts
ACCEPTED = "give files, the name of a dataset, a list or an iterable of examples, a DataFrame or a Hugging Face dataset"
_ENDING = re.compile(r"\.\w{1,6}$")


class Rows(NamedTuple):
    """An iterator of examples, their number (None: unknown), and their columns, if any."""

    examples: Iterator[Any]
    count: int | None
    columns: ColumnNames | None = None


def write_examples(
    examples: Any, task: str, data: Mapping[str, Any], cache: Path | None = None, what: str = "files"
) -> tuple[list[str], bool]:
    """Names of files and datasets unchanged, and False; or the file with the examples, and True. `data`: the settings
    that describe an example."""
    names = _names(examples, task)
    if names is not None:
        return names, False
    rows = _rows(examples, what, data.get("limit"))
    form = format_of_task(task, data)
    try:
        return [str(_write_file(rows, form, data.get("limit"), (cache or default_cache()) / FOLDER, what))], True
    except SeqloomError as error:
        raise error if what == "files" else SeqloomError(f"{what}: {error}") from error


def _names(value: Any, task: str) -> list[str] | None:
    """Names of files or datasets; None for examples."""
    if isinstance(value, str | Path):
        if not str(value):
            raise SeqloomError("'' names no file")
        return [str(value)]
    if not isinstance(value, list | tuple) or not value or not all(isinstance(one, str | Path) for one in value):
        return None
    if task in TEXTS and _are_texts(value):
        return None
    return [str(one) for one in value]


def _are_texts(values: list[Any] | tuple[Any, ...]) -> bool:
    """Whether strings are texts, not names: several, none of them a file, a dataset or similar to a file name."""
    if len(values) < 2 or any(isinstance(one, Path) for one in values):
        return False
    some = values[:1000]
    if any(one.partition(":")[0] in DATASETS or _is_file(one) for one in some):
        return False
    blank = sum(len(one.split()) > 1 for one in some)
    like_files = sum(bool(_ENDING.search(one)) and len(one.split()) == 1 for one in some)
    return not like_files and (2 * blank >= len(some) or len(values) > 50)


def _is_file(name: str) -> bool:
    with suppress(OSError, ValueError):  # a long text is no name
        return Path(name).exists()
    return False


def _rows(value: Any, what: str, limit: int | None) -> Rows:
    """The examples of any supported iterable; others are refused."""
    if hasattr(value, "column_names") and hasattr(value, "features"):
        return _hugging_face(value, what)
    if hasattr(value, "columns") and hasattr(value, "itertuples"):
        return Rows(value.itertuples(index=False, name=None), len(value), ColumnNames.of(value.columns))
    if hasattr(value, "columns") and hasattr(value, "iter_rows"):
        return Rows(iter(value.iter_rows()), getattr(value, "height", None), ColumnNames.of(value.columns))
    if problem := _unsupported(value):
        raise SeqloomError(f"{what}: {problem}; {ACCEPTED}")
    count = _length(value)
    if count is None and _is_endless(value) and limit is None:
        raise SeqloomError(f"{what}: {type(value).__name__} never ends; {_first_of(what)} to take its first N")
    if hasattr(value, "__iter__"):
        return Rows(iter(value), count)
    return Rows((value[place] for place in range(count or 0)), count)


def _unsupported(value: Any) -> str | None:
    """Why a value gives no examples; None if it may."""
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    torchs = {base.__name__ for base in type(value).__mro__ if base.__module__.partition(".")[0] == "torch"}
    if torchs & {"Dataset", "IterableDataset", "DataLoader"}:
        each = "; if its items are examples, give (dataset[i] for i in range(len(dataset)))"
        items = each if "DataLoader" not in torchs and _length(value) is not None else ""
        return f"{name} is a torch dataset, whose items have no known form{items}"
    if torchs:
        return f"{name} is no data"
    if isinstance(value, Mapping):
        if any(hasattr(one, "column_names") for one in value.values()):
            return f"a dictionary of splits: choose one, as in dataset[{next(iter(value))!r}]"
        return "a dictionary of columns is not taken; give rows: list(zip(*columns.values()))"
    if isinstance(value, io.IOBase):
        return f"an open file: give its name, {str(getattr(value, 'name', '…'))!r}"
    if isinstance(value, bytes | bytearray):
        return "bytes are no text"
    if callable(value) and not hasattr(value, "__iter__"):
        return f"{getattr(value, '__name__', name)} is a function or a class: call it"
    if not hasattr(value, "__iter__") and not (hasattr(value, "__getitem__") and hasattr(value, "__len__")):
        return f"{name} holds no examples"
    return None


def _length(value: Any) -> int | None:
    with suppress(TypeError, NotImplementedError, AttributeError):
        return len(value)
    return None


def _is_endless(value: Any) -> bool:
    if isinstance(value, itertools.count | itertools.cycle):
        return True
    if isinstance(value, itertools.repeat):
        try:
            value.__length_hint__()  # pyright: ignore[reportAttributeAccessIssue]
        except TypeError:
            return True
    return False


def _hugging_face(value: Any, what: str) -> Rows:
    """`datasets.Dataset` or `IterableDataset`: dicts; features name the labels behind numbers."""
    if isinstance(value, Mapping):
        raise SeqloomError(f"{what}: a dictionary of splits: choose one, as in dataset['train']; {ACCEPTED}")
    examples = iter(value)
    columns, features = value.column_names, value.features or {}
    if columns is None:  # a stream that has not looked at its first example yet
        first = next(examples, None)
        columns = [] if first is None else list(first)
        examples = iter(()) if first is None else itertools.chain([first], examples)
    return Rows(examples, _length(value), ColumnNames.of(columns, features))


def _first_of(what: str) -> str:
    """How to limit an endless iterable; `limit` is for training data only."""
    return "set limit=N" if what == "files" else "use itertools.islice(…, N)"


def _write_file(rows: Rows, form: ExampleFormat, limit: int | None, folder: Path, what: str) -> Path:
    """Write all examples into a file named by its content."""
    temporary, digest = folder / f".{uuid4().hex}.tmp", hashlib.sha256()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            for line in _lines(rows, form, limit, what):
                file.write(line)
                digest.update(line)
        path = folder / f"{digest.hexdigest()[:32]}{form.ending}"
        temporary.replace(path)
    except OSError as error:
        raise SeqloomError(f"{folder}: the examples cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    return path


def _lines(rows: Rows, form: ExampleFormat, limit: int | None, what: str) -> Iterator[bytes]:
    """Each example as bytes, within the limits."""
    count = size = 0
    most = max(MAX_EXAMPLES, rows.count or 0)
    for example in _first(rows.examples, limit):
        count += 1
        line = form.line(example, rows.columns, count)
        size += len(line)
        bounded = limit is not None or (rows.count is not None and count <= rows.count)
        if not bounded and (count > most or size > MAX_BYTES):
            reached = f"{most:,} examples" if count > most else f"{MAX_BYTES >> 20:,} MiB"
            raise SeqloomError(
                f"an iterable gave more than {reached} and does not say how many it has; "
                f"{_first_of(what)} to take its first N; write more than that to a file"
            )
        yield line
    if not count:
        raise SeqloomError("no examples were given")


def _first(examples: Iterable[Any], limit: Any) -> Iterable[Any]:
    """The first `limit` examples; an invalid limit is refused with the other settings."""
    whole = isinstance(limit, int) and not isinstance(limit, bool) and limit > 0
    return itertools.islice(examples, limit) if whole else examples
