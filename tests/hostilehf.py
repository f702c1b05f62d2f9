"""Folders of Hugging Face's models as strangers leave them: a table of what is done to which file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from seqloom.runs.interop.huggingface_weights import FAMILIES, name_map
from tests.hostile import ANY, DEEP, WEIGHTS, written

SIZE, DIM = 20, 16
CONFIG = {
    "model_type": "marian",
    "vocab_size": SIZE,
    "d_model": DIM,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": DIM,
    "decoder_ffn_dim": DIM,
    "max_position_embeddings": 32,
    "pad_token_id": 19,
    "eos_token_id": 0,
    "decoder_start_token_id": 19,
    "forced_eos_token_id": 0,
    "activation_function": "swish",
    "scale_embedding": True,
}
GENERATION = {"eos_token_id": 0, "decoder_start_token_id": 19, "bad_words_ids": [[19]], "renormalize_logits": True}
WORDS = {"</s>": 0, "<unk>": 1} | {f"w{number}": number for number in range(2, SIZE)}
TOKENIZER = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": {"type": "Whitespace"},
    "decoder": None,
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
        "pair": [],
        "special_tokens": {"</s>": {"id": "</s>", "ids": [0], "tokens": ["</s>"]}},
    },
    "model": {"type": "WordLevel", "vocab": WORDS, "unk_token": "<unk>"},
}


def make(folder: Path) -> None:
    """A whole one."""
    folder.mkdir()
    torch.manual_seed(1)
    tensors = {"model.shared.weight": torch.randn(SIZE, DIM), "final_logits_bias": torch.zeros(1, SIZE)}
    for theirs in name_map(FAMILIES["marian"], (1, 1)).values():
        for name in theirs:
            square = name.endswith("weight") and "norm" not in name
            tensors[name] = torch.randn(DIM, DIM) / 4 if square else torch.ones(DIM)
    save_file(tensors, folder / "model.safetensors")
    for name, value in {"config": CONFIG, "generation_config": GENERATION, "tokenizer": TOKENIZER}.items():
        (folder / f"{name}.json").write_text(json.dumps(value))


@dataclass(frozen=True)
class Case:
    file: str
    done: str
    change: Callable[[Path], Any]  # of a folder
    ids: bool = True
    harmless: bool = False

    def __str__(self) -> str:
        return f"{self.file}: {self.done}"


def _values(file: str, base: dict[str, Any], values: dict[str, list[Any]], harmless: bool = False) -> Iterator[Case]:
    for name, several in values.items():
        for value in several:

            def change(folder: Path, name: str = name, value: Any = value) -> None:
                if file == "config.json":  # which holds all in older folders
                    (folder / "generation_config.json").unlink()
                (folder / file).write_text(json.dumps({**base, name: value}))

            yield Case(file, f"{name} is {str(value)[:40]!r}", change, harmless=harmless)


ODD = [None, True, -1, 0, 1.5, 10**12, 10**18, "x", "", [1], {}, float("nan")]
SIZES = ("vocab_size", "d_model", "encoder_layers", "decoder_attention_heads", "decoder_ffn_dim")
WRONG = {
    **dict.fromkeys(SIZES, ODD),
    "max_position_embeddings": [None, True, -1, 0, 1.5, 10**12, "x", [1]],
    "encoder_attention_heads": [3, 7, 10**9],
    "model_type": [None, "t5", ["marian"], {"a": 1}, "os.system", 5],
    "eos_token_id": [None, -1, SIZE, "x", [0, 1], True],
    "decoder_start_token_id": [-1, SIZE, "x", [19]],
    "activation_function": ["os.system", 5, ["gelu"]],
    "dropout": ["x", -1, 2, [0.1], float("inf")],
    "tie_word_embeddings": ["x", 5, []],
    "share_encoder_decoder_embeddings": ["x", [1]],
}
ASKED = {
    "max_length": ["x", -1, 1, [1], 1.5, 10**18],
    "forced_bos_token_id": ["x", -1, SIZE, [1], 10**12],
    "bad_words_ids": ["x", [1], [["x"]], [[-1]], [[SIZE]], [[10**12]], 5, {"a": 1}],
    "suppress_tokens": ["x", [[1]], [-1], [SIZE], 5],
    "num_beams": ["x", -1, [1], 2.5, 10**18],
    "length_penalty": ["x", [1], float("nan")],
    "decoder_start_token_id": [SIZE, "x"],
    "eos_token_id": [SIZE, "x", [1, 2]],
}
IDLE = {
    "auto_map": [{"AutoModel": "modeling_evil.M"}],
    "_target_": ["os.system"],
    "trust_remote_code": [True],
    "architectures": ["x", 5],
    "torch_dtype": ["os.system"],
    "_attn_implementation_internal": ["evil/repo"],
}
MAPS: list[Any] = [
    {"a": "../../x"},
    {"a": "/etc/passwd"},
    [1],
    "x",
    None,
    {"a": 5},
    {"a": ["x"]},
    {"a": ""},
    {"a": "."},
    {"a": ".."},
    {"a": "a\0b"},
    {"a": "missing.safetensors"},
    {},
]
NESTED = ("nested", "a nested value", "keys in keys")


def _tokenizers() -> Iterator[Case]:
    model = TOKENIZER["model"]
    changes = {
        "model is a number": {"model": 5},
        "an id too many": {"model": {**model, "vocab": {**WORDS, "more": SIZE}}},
        "ids of 2^32": {"model": {**model, "vocab": {**WORDS, "more": 2**32 - 1}}},
        "without its unknown": {"model": {**model, "unk_token": "[NO]"}},
        "a broken map": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA////"}},
        "a template of nothing": {
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "X", "type_id": 0}}],
                "pair": [],
                "special_tokens": {},
            }
        },
        "an unknown kind": {"pre_tokenizer": {"type": "os.system"}},
        "a deep normaliser": {"normalizer": _nest(40)},
        "another end": {"post_processor": None},
    }
    for name, change in changes.items():
        text = json.dumps({**TOKENIZER, **change})
        late = name in ("without its unknown", "another end", "a deep normaliser")  # taken; what it cannot cut is told
        yield Case("tokenizer.json", name, lambda folder, t=text: written(folder / "tokenizer.json", t), False, late)
    for name, change in ANY.items():
        if name != "cut in half":
            yield Case("tokenizer.json", name, lambda folder, c=change: c(folder / "tokenizer.json"), ids=False)


def _nest(depth: int) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": [_nest(depth - 1)] if depth else []}


def _cases() -> Iterator[Case]:
    for name, change in ANY.items():
        yield Case("config.json", name, lambda folder, c=change: c(folder / "config.json"))
        # Where it is no file at all, their older folders have none either.
        gone = name in ("a folder", "a FIFO", "a link to nothing", "a link to itself", "a link to /dev/zero")
        yield Case(
            "generation_config.json", name, lambda folder, c=change: c(folder / "generation_config.json"), True, gone
        )
    yield Case("config.json", "a huge size", lambda f: written(f / "config.json", '{"vocab_size": ' + "9" * 5000 + "}"))
    yield Case("config.json", "a nested size", lambda f: written(f / "config.json", '{"vocab_size": ' + "[" * DEEP))
    yield from _values("config.json", {**CONFIG, **GENERATION}, WRONG)
    yield from _values("config.json", {**CONFIG, **GENERATION}, IDLE, harmless=True)
    yield from _values("generation_config.json", GENERATION, ASKED)
    for value in MAPS:

        def mapped(folder: Path, value: Any = value) -> None:
            (folder / "model.safetensors").unlink()
            (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": value}))

        yield Case("model.safetensors.index.json", f"weight_map is {str(value)!r}", mapped)
    for name, raw in WEIGHTS.items():
        yield Case("model.safetensors", name, lambda folder, raw=raw: written(folder / "model.safetensors", raw))
    for name in ("a folder", "a FIFO", "a link to nothing", "a link to itself", "a link to /dev/zero", "cut in half"):
        yield Case("model.safetensors", name, lambda folder, c=ANY[name]: c(folder / "model.safetensors"))
    for name in ("model.shared.weight", "model.decoder.layers.0.fc1.weight"):
        yield Case("model.safetensors", f"without {name}", lambda folder, n=name: _changed(folder, lambda t: t.pop(n)))
        wide = {name: torch.zeros(3, 3)}
        yield Case(
            "model.safetensors", f"a small {name}", lambda folder, w=wide: _changed(folder, lambda t: t.update(w))
        )
    yield Case("model.safetensors", "one more", lambda folder: _changed(folder, lambda t: t.update(x=torch.zeros(1))))
    yield Case("pytorch_model.bin", "a pickle alone", _pickled)
    yield from _tokenizers()


def _changed(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


CASES = list(_cases())
