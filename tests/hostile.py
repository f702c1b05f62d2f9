"""Run folders as strangers, editors and disks leave them: a table of what is done to which file.

`CASES`: each names its file, what is done to it, and the uses that meet it. Every use ends in one line that names what
is wrong, but for those that `HARMLESS` knows a reason for: they must work.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file, save_file

ALL = ("load", "evaluate", "report", "info", "resume", "from")
DEEP = 100_000
# A document of ten lines that stands for 9^10 values.
BOMB = "a: &a [l, l, l, l, l, l, l, l, l]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(9)
)


@dataclass(frozen=True)
class Case:
    file: str
    done: str
    change: Callable[[Path], Any]  # of a run's folder
    uses: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.file}: {self.done}"

    def harmless(self, use: str) -> bool:
        """Whether this use must work all the same."""
        return any(use in uses and re.fullmatch(pattern, str(self)) for uses, pattern in HARMLESS.values())


# Why what is done to a file harms some uses in no way: by the reason, which uses, and the cases as a pattern.
HARMLESS: dict[str, tuple[tuple[str, ...], str]] = {
    "the report draws no model": (
        ("report",),
        r"config.yaml: (model\..*|without (model|data|task|training|decoding|preset|inputs))",
    ),
    "the report counts in the header alone": (
        ("report",),
        r"model.safetensors: (one name twice|no tensors|a name with NUL|other tensors|"
        r"of type F8_E8M0|of torch.*|missing|a link to nothing)",
    ),
    "the report names what ids are, whatever the vocabulary has": (
        ("report",),
        r"config.yaml: decoding\.(never|first) is .*1000000000.*",
    ),
    "the report tells of tokens, not of how texts are cut": (
        ("report",),
        r"source.json: (kind .*|no tokens|a NaN|fold .*|half_width .*|merges .*|no merges|labels .*|"
        r"no tokenizer|tokenizer .*|clean.*|wrong keys|missing|a link to nothing)",
    ),
    "a report tells what there is": (
        ("report",),
        r"(data|env|evaluation-valid).json: (wrong keys|missing|a link to nothing)|"
        r"env.json: (wrong types|lists|texts within)",
    ),
    "a journal tells what there is": (("report", "history"), r"metrics.jsonl: (empty|wrong keys|missing)"),
    "a line of any keys and values is one": (
        ("history",),
        r"metrics.jsonl: (steps that|nothing as|valid is|scores that|a huge step|a loss|a sample|"
        r"an average|seconds|skipped|not a number).*",
    ),
    "odd values are shown as they are": (
        ("report",),
        r"metrics.jsonl: (nothing as|valid is|scores that|a huge step|a loss|a sample|seconds|skipped|not a number).*",
    ),
    "a folder that is no file of ours": (
        ("load", "report", "info"),
        r"(ensemble|engine).json: (a folder|missing|a link to nothing)",
    ),
    "the data are numbered again; that the run cannot be loaded is told at the end": (
        ("resume",),
        r"source.json: (?!a FIFO|a link to itself|a link to /dev/zero).*",
    ),
    "a new run begins": (("resume",), r"config.yaml: (missing|a link to nothing)|checkpoints: none"),
    "the vocabulary says how texts are cut": (
        ("load", "evaluate", "report", "info", "from"),
        r"config.yaml: data.source_tokens is 'tokenizer'",
    ),
    "stop words are the training data's": (("load", "evaluate", "report", "info"), r"config.yaml: data.stop_words .*"),
    "a limit of more than there is": (
        ("load", "evaluate", "report", "info", "from"),
        rf"config.yaml: data.limit is '{10**15}'",
    ),
    "vectors are read where a training begins": (
        ("load", "evaluate", "report", "info", "resume", "from"),
        r"config.yaml: training.vectors .*",
    ),
    "what is frozen matters in training": (
        ("load", "evaluate", "report", "info", "from"),
        r"config.yaml: training.freeze .*",
    ),
    "no preset is read of a run": (
        ("load", "evaluate", "report", "info", "resume", "from"),
        r"config.yaml: preset.model is '/etc.*",
    ),
    "a name that is only shown": (
        ("load", "evaluate", "report", "info", "resume", "from"),
        r"config.yaml: inputs.train is \"\['<script.*",
    ),
    "where it came from is only shown": (
        ("load", "evaluate", "report", "info", "from"),
        r"config.yaml: inputs.from is '/etc'",
    ),
    "a large share, and the longest still bounds": (ALL, r"config.yaml: decoding.ratio is '1e\+300'"),
    "to predict needs neither": (
        ("load", "evaluate", "info"),
        r"config.yaml: (without (preset|training|inputs)|preset is '\{\}')",
    ),
    "how to decode is found anew": (("resume", "from"), r"config.yaml: without decoding"),
    "narrower numbers are as good": (("load", "evaluate", "info", "from"), r"model.safetensors: of torch.float64"),
    "numbers are numbers": (("load", "evaluate"), r"model.safetensors: not a number"),
    "a journal that is shorter stays so": (("resume",), r"training.json: journal is '1000000000000000000'"),
    "no checkpoint of ours has these": (("resume",), r"training.json: (scaler|random|optimiser|schedule) is .*"),
    "rows may come twice": (("resume",), r"training.safetensors: an order of twice the same"),
    "the one before is gone on from": (("resume",), r"manifest.json: .*|checkpoints: a file among them"),
}


def _emptied(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)


def written(path: Path, raw: bytes | str) -> None:
    if path.is_symlink() or not path.is_file():
        _emptied(path)
    path.write_bytes(raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw)


def _half(path: Path) -> None:
    raw = path.read_bytes() if path.is_file() else b'{"a": 1}\n'
    path.write_bytes(raw[: len(raw) // 2 + 1])


def _folder(path: Path) -> None:
    _emptied(path)
    path.mkdir()


def _fifo(path: Path) -> None:
    _emptied(path)
    os.mkfifo(path)


def _linked(target: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        _emptied(path)
        path.symlink_to(target)

    return change


def _text(raw: bytes | str) -> Callable[[Path], None]:
    return lambda path: written(path, raw)


# What may befall any file of text.
ANY: dict[str, Callable[[Path], None]] = {
    "empty": _text(""),
    "cut in half": _half,
    "a list": _text("[]"),
    "text": _text('"x"'),
    "null": _text("null\n"),
    "a number": _text("5\n"),
    "junk": _text("{]"),
    "no UTF-8": _text(b"\xff\xfe{}"),
    "zeros": _text(bytes(64)),
    "nested": _text("[" * DEEP),
    "a nested value": _text('{"a": ' + "[" * DEEP + "]" * DEEP + "}"),
    "keys in keys": _text('{"a": ' * DEEP),
    "a huge number": _text('{"format": ' + "9" * 5000 + "}"),
    "a folder": _folder,
    "a FIFO": _fifo,
    "a link to nothing": _linked("nothing"),
    "a link to itself": lambda path: _linked(path.name)(path),
    "a link to /dev/zero": _linked("/dev/zero"),
}
KEYS = {"wrong keys": _text('{"a": 5}'), "missing": _emptied}


def _of(file: str, name: str, change: Callable[[Path], None], uses: tuple[str, ...]) -> Case:
    return Case(file, name, lambda run: change(run / file), uses)


def _files() -> Iterator[Case]:
    """Every file with all that may befall any."""
    for name, change in {**ANY, **KEYS}.items():
        yield _of("config.yaml", name, change, tuple(use for use in ALL if (use, name) != ("report", "cut in half")))
        yield _of("source.json", name, change, ("load", "report", "resume", "from"))
        yield _of("target.json", name, change, ("load", "evaluate"))
        for file in ("data.json", "env.json", "evaluation-valid.json"):
            yield _of(file, name, change, ("report",))
        yield _of("metrics.jsonl", name, change, ("report", "history"))
        yield _of("ensemble.json", name, change, ("load", "report"))
        yield _of("engine.json", name, change, ("load", "info"))


# Values in a config, by the path of their key.
VALUES: list[tuple[str, Any]] = [
    ("task", "os.system"),
    ("task", ["a"]),
    ("task", None),
    ("task", {"a": 1}),
    ("format", True),
    ("format", "1"),
    ("format", -1),
    ("format", 10**18),
    ("model", None),
    ("model", [1]),
    ("model", "x"),
    ("model.kind", "os.system"),
    ("model._target_", "os.system"),
    ("model.kind", ["a"]),
    ("model.encoder", ["gru"]),
    ("model.encoder", None),
    ("model.encoder.kind", "builtins.exec"),
    ("model.embedding", 10**9),
    ("model.embedding", 10**6),
    ("model.embedding", 10**18),
    ("model.embedding", -1),
    ("model.embedding", "x"),
    ("model.embedding", 2.5),
    ("model.encoder.dim", 30_000),
    ("decoding.longest", 10**12),
    ("model.encoder.layers", 10**8),
    ("model.encoder.layers", 3000),
    ("model.encoder.layers", 10**18),
    ("model.dropout", float("nan")),
    ("model.dropout", 2),
    ("model.tie", "x"),
    ("data", None),
    ("data", [1]),
    ("data", "x"),
    ("data.columns", [1]),
    ("data.columns", {"a": 1}),
    ("data.source_tokens", "tokenizer"),
    ("data.source_tokens", ["a"]),
    ("data.source_tokens", "bpe:99999999999"),
    ("data.stop_words", "/etc/passwd"),
    ("data.max_length", -1),
    ("data.max_length", "x"),
    ("data.limit", 10**15),
    ("data.limit", 10**30),
    ("training", None),
    ("training", [1]),
    ("training.learning_rate", "x"),
    ("training.learning_rate", float("inf")),
    ("training.select", "os.system"),
    ("training.seed", 10**30),
    ("training.batch_rows", 0),
    ("training.vectors", "/etc/passwd"),
    ("training.freeze", "os"),
    ("training.time", "1:1:1"),
    ("preset", None),
    ("preset", "x"),
    ("preset", [1]),
    ("preset", {}),
    ("preset.model", [1]),
    ("preset.size", {}),
    ("preset.model", "/etc/passwd.yaml"),
    ("preset.model", "a\0b.yaml"),
    ("preset.model", "x" * 5000 + ".yaml"),
    ("inputs", None),
    ("inputs", [1]),
    ("inputs", "x"),
    ("inputs.train", 5),
    ("inputs.train", {"a": 1}),
    ("inputs.train", ["<script>alert(1)</script>"]),
    ("inputs.valid", {"a": 1}),
    ("inputs.valid", [[1]]),
    ("inputs.from", "/etc"),
    ("inputs.from", "a\0b"),
    ("inputs.from", [1]),
    ("inputs.taken", 5),
    ("inputs.taken", [[1]]),
    ("decoding", None),
    ("decoding", "x"),
    ("decoding", [1]),
    ("decoding.ratio", "x"),
    ("decoding.ratio", -1),
    ("decoding.ratio", 1e300),
    ("decoding.longest", "x"),
    ("decoding.longest", [1]),
    ("decoding.never", [10**9]),
    ("decoding.never", "x"),
    ("decoding.never", ["a"]),
    ("decoding.first", 10**9),
    ("decoding.first", "x"),
    ("decoding.limit", -5),
]


def changed(run: Path, path: str, value: Any) -> None:
    config = yaml.safe_load((run / "config.yaml").read_text())
    *names, last = path.split(".")
    here = config
    for name in names:
        here = here.setdefault(name, {})
    here[last] = value
    (run / "config.yaml").write_text(yaml.safe_dump(config))


def _configs() -> Iterator[Case]:
    for path, value in VALUES:
        done = f"{path} is {str(value)[:40]!r}"
        yield Case("config.yaml", done, lambda run, path=path, value=value: changed(run, path, value), ALL)
    for name in ("format", "task", "preset", "data", "model", "training", "decoding", "inputs"):
        yield Case("config.yaml", f"without {name}", lambda run, name=name: _without(run, name), ALL)
    texts = {
        "an alias bomb": f"{BOMB}format: 1\ntask: translate\nmodel: *j\n",
        "an alias bomb as the task": f"{BOMB}format: 1\ntask: *j\n",
        "refers to itself": "&a\nformat: 1\ntask: translate\nmodel: &m {kind: *m}\ndata: {}\ntraining: {}\n",
        "runs a command": 'format: !!python/object/apply:os.system ["touch owned"]\n',
        "names a function": "a: !!python/name:os.system\nformat: 1\n",
        "a date": "format: 1\ntask: 2020-99-99\n",
        "a tag": "format: !!int x\n",
        "a NUL": "format: 1\0\n",
        "nested below a format": "format: 1\na: " + "[" * DEEP + "\n",
        "numbers as keys": "format: 1\n1: 2\n",
        "5 MB": "a: [" + "1, " * 1_700_000 + "1]\n",
    }
    for name, text in texts.items():
        yield _of("config.yaml", name, _text(text), ALL)


def _without(run: Path, name: str) -> None:
    config = yaml.safe_load((run / "config.yaml").read_text())
    del config[name]
    (run / "config.yaml").write_text(yaml.safe_dump(config))


def _codec(**more: Any) -> str:
    return json.dumps({"kind": "chars", "fold": False, "tokens": ["a"], **more})


def _tokenizer(**more: Any) -> str:
    model = {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None}
    whole |= {"pre_tokenizer": None, "post_processor": None, "decoder": None, "model": model, **more}
    return _codec(kind="tokenizer", tokens=["a", "[UNK]"], tokenizer=whole)


VOCABULARIES = {
    "kind is a path": _codec(kind="os.system"),
    "kind is a list": _codec(kind=["chars"]),
    "tokens are a number": _codec(tokens=5),
    "tokens are lists": _codec(tokens=[[1]]),
    "tokens are numbers": _codec(tokens=[1, 2, 3]),
    "tokens are keys": _codec(tokens={"a": 1}),
    "tokens are a text": _codec(tokens="abc"),
    "no tokens": _codec(tokens=[]),
    "a NaN": '{"kind": NaN, "tokens": []}',
    "half a character": '{"kind": "chars", "fold": false, "tokens": ["\\ud800"]}',
    "fold is a list": _codec(fold=[1]),
    "half_width is text": _codec(half_width="x"),
    "merges of nothing": _codec(kind="bpe:300", merges=[["x", "y"]]),
    "merges are a number": _codec(kind="bpe:300", merges=5),
    "merges are numbers": _codec(kind="bpe:300", merges=[[1, 2]]),
    "merges of one": _codec(kind="bpe:300", merges=["x"]),
    "no merges": _codec(kind="bpe:300"),
    "labels of no size": _codec(kind="labels:x"),
    "no tokenizer": _codec(kind="tokenizer", tokenizer=None),
    "tokenizer of junk": _codec(kind="tokenizer", tokenizer={"model": 5}),
    "tokenizer is a path": _codec(kind="tokenizer", tokenizer="/etc/passwd"),
    "tokenizer without its unknown": _tokenizer(model={"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "[NO]"}),
    "tokenizer of sparse ids": _tokenizer(
        model={"type": "WordLevel", "vocab": {"a": 2**32 - 1, "[UNK]": 1}, "unk_token": "[UNK]"}
    ),
    "tokenizer with a broken map": _tokenizer(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA////"}),
    "tokenizer with a template of nothing": _tokenizer(
        post_processor={
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "X", "type_id": 0}}],
            "pair": [],
            "special_tokens": {},
        }
    ),
    "clean is a path": _codec(clean={"stop": "/etc/passwd", "x": 1}),
    "clean is a number": _codec(clean=5),
    "clean.stop is a number": _codec(clean={"stop": 5}),
}


def _vocabularies() -> Iterator[Case]:
    for name, text in VOCABULARIES.items():
        yield _of("source.json", name, _text(text), ("load", "report", "resume", "from"))


def header(value: Any, numbers: bytes = b"") -> bytes:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack("<Q", len(raw)) + raw + numbers


def _tensor(shape: list[int], end: int = 8, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}


WEIGHTS = {
    "empty": b"",
    "a pickle": b"\x80\x04\x95\x1f\x00\x00\x00",
    "a zip": b"PK\x03\x04junk",
    "zeros": bytes(4096),
    "a header of 1 GB": struct.pack("<Q", 1 << 30) + b"{}",
    "a header of 2^63": struct.pack("<Q", 1 << 63) + b"{}",
    "two that overlap": header({"a": _tensor([2]), "b": _tensor([2])}, bytes(8)),
    "one name twice": header(
        b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
        bytes(8),
    ),
    "a shape of 2^40": header({"a": _tensor([1 << 40])}, bytes(8)),
    "a shape of 2^64": header({"a": _tensor([1 << 62, 4], 0)}),
    "a nested header": header(b'{"__metadata__":' + b"[" * 50_000 + b"]" * 50_000 + b"}"),
    "no tensors": header({}),
    "a name with NUL": header({"a\0b": _tensor([2])}, bytes(8)),
    "junk": header(b"{]"),
    "other tensors": header({"a": _tensor([2])}, bytes(8)),
} | {f"of type {kind}": header({"a": _tensor([2], 2, kind)}, bytes(2)) for kind in ("F4", "F8_E8M0", "C64", "U16", "X")}


def _retyped(run: Path, file: str, kind: torch.dtype) -> None:
    save_file({name: tensor.to(kind) for name, tensor in load_file(run / file).items()}, run / file)


def _weights() -> Iterator[Case]:
    uses = ("load", "evaluate", "report", "info", "from")
    for name, raw in WEIGHTS.items():
        yield _of("model.safetensors", name, _text(raw), uses)
    for name in ("missing", "cut in half", "a folder", "a FIFO", "a link to nothing", "a link to /dev/zero"):
        yield _of("model.safetensors", name, {**ANY, **KEYS}[name], uses)
    yield _of("model.safetensors", "a flipped bit", _flip, ("load", "info", "from"))
    for kind in (torch.int64, torch.complex64, torch.float64):
        yield Case("model.safetensors", f"of {kind}", lambda run, k=kind: _retyped(run, "model.safetensors", k), uses)
    yield Case("model.safetensors", "not a number", _nan, ("load", "evaluate"))


def _flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[-5] ^= 0x10
    path.write_bytes(raw)


def _nan(run: Path) -> None:
    file = run / "model.safetensors"
    save_file({name: torch.full_like(tensor, float("nan")) for name, tensor in load_file(file).items()}, file)


def newest(run: Path) -> Path:
    return sorted((run / "checkpoints").iterdir())[-1]


def manifest(folder: Path) -> None:
    """Sums that fit whatever stands there: the damage is not found by them."""
    sums = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir() if p.name != "manifest.json"}
    (folder / "manifest.json").write_text(json.dumps(sums))


STATE: list[tuple[str, Any]] = [
    ("step", "x"),
    ("step", -1),
    ("step", None),
    ("step", 10**18),
    ("step", 2.5),
    ("journal", "x"),
    ("journal", -5),
    ("journal", 10**18),
    ("position", "x"),
    ("position", -1),
    ("position", 10**12),
    ("epoch", "x"),
    ("epoch", -1),
    ("best", "x"),
    ("best", {}),
    ("best", {"step": 1}),
    ("best", {"step": "x", "scores": 5}),
    ("worse", "x"),
    ("validated", "x"),
    ("averaged", []),
    ("fingerprint", 5),
    ("elapsed", "x"),
    ("elapsed", float("nan")),
    ("plateau", "x"),
    ("averaging", 5),
    ("averaging", {"a": 1}),
    ("scaler", 5),
    ("processes", "x"),
    ("random", 5),
    ("optimiser", "x"),
    ("schedule", [1]),
]


def _state(run: Path, name: str, value: Any) -> None:
    folder = newest(run)
    values = json.loads((folder / "training.json").read_text())
    (folder / "training.json").write_text(json.dumps({**values, name: value}))
    manifest(folder)


def _in_newest(file: str, change: Callable[[Path], None]) -> Callable[[Path], None]:
    def done(run: Path) -> None:
        change(newest(run) / file)
        manifest(newest(run))

    return done


def _tensors(run: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    file = newest(run) / "training.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)
    manifest(newest(run))


def _checkpoints() -> Iterator[Case]:
    for name, value in STATE:
        done = f"{name} is {str(value)[:40]!r}"
        yield Case("training.json", done, lambda run, name=name, value=value: _state(run, name, value), ("resume",))
    for name in ("a list", "text", "null", "nested", "a nested value", "a huge number", "no UTF-8", "empty"):
        yield Case("training.json", f"{name}, with right sums", _in_newest("training.json", ANY[name]), ("resume",))
        yield Case("manifest.json", name, lambda run, name=name: ANY[name](newest(run) / "manifest.json"), ("resume",))
    yield Case(
        "training.json", "wrong keys, with right sums", _in_newest("training.json", KEYS["wrong keys"]), ("resume",)
    )
    changes: dict[str, Callable[[dict[str, torch.Tensor]], Any]] = {
        "none": lambda tensors: tensors.clear(),
        "no window": lambda tensors: tensors.pop("window"),
        "a window of three": lambda tensors: tensors.update(window=torch.zeros(3)),
        "an order out of range": lambda tensors: tensors.update(order=tensors["order"] + 10**6),
        "an order below 0": lambda tensors: tensors.update(order=-1 - tensors["order"]),
        "an order of floats": lambda tensors: tensors.update(order=tensors["order"].double()),
        "an order of one": lambda tensors: tensors.update(order=tensors["order"][:1].clone()),
        "an order of twice the same": lambda tensors: tensors.update(order=torch.zeros_like(tensors["order"])),
        "ends that go back": lambda tensors: tensors.update(ends=tensors["ends"].flip(0).clone()),
        "no order": lambda tensors: tensors.pop("order"),
    }
    for name, change in changes.items():
        yield Case("training.safetensors", name, lambda run, change=change: _tensors(run, change), ("resume",))
    for name in WEIGHTS:
        yield Case("weights.safetensors", name, _in_newest("weights.safetensors", _text(WEIGHTS[name])), ("resume",))
    yield Case("checkpoints", "a file", lambda run: written(run / "checkpoints", b"x"), ("resume",))
    yield Case(
        "checkpoints", "a file among them", lambda run: written(run / "checkpoints" / "step-zzz", b"x"), ("resume",)
    )
    yield Case("checkpoints", "none", lambda run: _emptied(run / "checkpoints"), ("resume",))


LINES = {
    "a line of another type": '{"step": 1, "loss": 2}\n[]\n',
    "steps that are text": '{"step": "x", "loss": "<script>"}\n',
    "nothing as a step": '{"step": null, "valid": 5}\n',
    "valid is a list": '{"step": 1, "valid": [1], "best": true}\n',
    "scores that are text": '{"step": 1, "epoch": 0, "valid": {"per": "x"}, "best": true}\n',
    "a huge step": '{"step": 1e400, "valid": {"per": 1}}\n',
    "a loss of keys": '{"step": 1, "loss": {"a": 1}, "norm": []}\n',
    "a sample of numbers": '{"step": 1, "sample": 5}\n',
    "an average of nothing": '{"average": "x", "valid": 5, "best": []}\n',
    "seconds that are text": '{"step": 1, "epoch": 0, "loss": 1.0, "seconds": "x", "tokens_per_second": []}\n',
    "skipped of text": '{"skipped": "x", "epoch": [], "rows": 5}\n',
    "half a character": '{"step": 1, "sample": "\\ud800"}\n',
    "a line of 20 MB": '{"a": "' + "x" * 20_000_000 + '"}\n',
    "not a number": '{"step": NaN, "loss": NaN, "valid": {"per": NaN}}\n',
}
RECORDS = {
    "wrong types": {
        "metrics": {"per": "x", "<b>": [1]},
        "examples": 5,
        "intervals": "x",
        "signature": [],
        "schema": "z",
    },
    "metrics are a list": {"metrics": [1], "schema": 1},
    "a schema of the future": {"schema": 10**9},
    "examples of another type": {"schema": 1, "metrics": {"per": 1}, "examples": ["x", 5]},
}
FACTS = {
    "wrong types": {"skipped": 5, "train": "x", "valid": [], "vocabulary": 5, "notes": 5},
    "lists": {"train": [1], "valid": {"a": 1}, "notes": {"a": 1}, "skipped": [1]},
    "texts within": {"train": {"examples": "x", "tokens": "y"}, "vocabulary": {"source": "x", "target": [1]}},
}


def _told() -> Iterator[Case]:
    for name, text in LINES.items():
        yield _of("metrics.jsonl", name, _text(text), ("report", "history"))
    for name, value in RECORDS.items():
        yield _of("evaluation-valid.json", name, _text(json.dumps(value)), ("report",))
    for name, value in FACTS.items():
        yield _of("data.json", name, _text(json.dumps(value)), ("report",))
        yield _of("env.json", name, _text(json.dumps(value)), ("report",))


MEMBERS: dict[str, Any] = {
    "/etc and /root": ["/etc", "/root"],
    "outside": ["../../../etc", "."],
    "itself": [".", "./"],
    "a NUL": ["a\0b"],
    "half a character": ["\ud800"],
    "a million": ["x"] * 10**6,
    "a long name": ["x" * 5000],
    "numbers": [1, 2],
    "none": [],
    "a text": "abc",
    "keys": {"a": 1},
    "one that is not there": ["1"],
}


def _several() -> Iterator[Case]:
    for name, value in MEMBERS.items():
        text = json.dumps({"members": value})
        yield _of("ensemble.json", f"members: {name}", _text(text), ("load", "report", "resume", "from"))


ENGINES: dict[str, Any] = {
    "of nothing": {"engine": "onnx", "places": [1, 1]},
    "a list": {"engine": ["onnx"]},
    "unknown": {"engine": "os.system"},
    "places of text": {"engine": "onnx", "places": "x"},
    "ct2 of nothing": {"engine": "ct2", "places": [1, 1]},
}


def _engines() -> Iterator[Case]:
    for name, value in ENGINES.items():

        def change(run: Path, value: Any = value) -> None:
            shutil.rmtree(run / "checkpoints")
            (run / "engine.json").write_text(json.dumps(value))
            manifest(run)

        yield Case("engine.json", f"{name}, with right sums", change, ("load", "info"))
    for name, text in {"leads out": '{"../../../etc/passwd": "x"}', "a list": "[1]", "nested": "[" * DEEP}.items():

        def other(run: Path, text: str = text) -> None:
            (run / "engine.json").write_text('{"engine": "onnx", "places": [1, 1]}')
            (run / "manifest.json").write_text(text)

        yield Case("manifest.json", f"of an engine: {name}", other, ("load",))


CASES = [
    case
    for part in (_files, _configs, _vocabularies, _weights, _checkpoints, _told, _several, _engines)
    for case in part()
]


class Hang(BaseException):
    """What no except clause of ours catches."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Interrupts what works longer, or waits for six times as long: beside others a machine may be slow."""

    def ring(number: int, frame: Any) -> None:
        raise Hang(f"over {seconds:g} s")

    clocks = {signal.SIGPROF: (signal.ITIMER_PROF, seconds), signal.SIGALRM: (signal.ITIMER_REAL, 6 * seconds)}
    before = {number: signal.signal(number, ring) for number in clocks}
    for clock, most in clocks.values():
        signal.setitimer(clock, most)
    try:
        yield
    finally:
        for number, (clock, _) in clocks.items():
            signal.setitimer(clock, 0)
            signal.signal(number, before[number])
