"""Reading a Hugging Face folder: its configs, and its weights as our model's.

Our ids are theirs plus four: `<pad> <bos> <eos> <unk>`, then all of their tokens in their order. In the embeddings our
<bos> is a copy of the row their decoder starts with (Marian: pad; BART: eos) and our <eos> a copy of their eos. Copies
must not be counted twice by a softmax: of each token exactly one row can be written. <eos> takes the place of their
eos, whose own row gets NEVER as its bias, as <pad>, <bos> and <unk> do, which do not exist on their side. All other
tokens, also what they call pad or unk, stay as likely as they were, so that the distribution is theirs to the last bit
of its sum. What their generation config forbids is `decoding.never` of the run's config.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seqloom.build import build, complete
from seqloom.data.tokenizers.tokenizers import SPECIALS
from seqloom.documents import read_json
from seqloom.errors import SeqloomError, known, shown
from seqloom.models.seq2seq import MODELS
from seqloom.parts.positions.absolute import sinusoids
from seqloom.runs.folder.folder_checks import Rule, is_count, is_number
from seqloom.runs.interop.huggingface_weights import (
    FAMILIES,
    OFFSET,
    SIDES,
    Family,
    Tensors,
    UnusedTensors,
    from_hf,
    name_map,
)
from seqloom.training.checkpoint import read_tensors

# e^−1000 is 0 in float64 too, so a row with this bias has no share in any softmax; and it is finite, so that label
# smoothing, which gives every row a share of the loss, does not make the loss infinite.
NEVER = -1000.0
SHIFT = len(SPECIALS)
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "silu", "swish": "silu"}
EMBEDDINGS = tuple(f"model.{side}.embed_tokens.weight" for side in SIDES)
BOUND = "seqloom_bound"  # what an exported run adds to config.json
SHARED, HEAD = "model.shared.weight", "lm_head.weight"


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _tokens(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_count, value))


# What their settings must be, where they are set.
RULES: dict[str, Rule] = {
    **dict.fromkeys(("tie_word_embeddings", "share_encoder_decoder_embeddings"), (_flag, "true or false")),
    **dict.fromkeys(("scale_embedding", "renormalize_logits"), (_flag, "true or false")),
    "dropout": (lambda value: is_number(value) and 0 <= value < 1, "a number of 0 or more and below 1"),
    "activation_function": (lambda value: isinstance(value, str), "a name"),
    "max_length": (lambda value: is_count(value, 2), "a whole number of 2 or more"),
    "max_position_embeddings": (lambda value: is_count(value, 2) and value <= 1 << 24, "a number of places"),
    **dict.fromkeys(("forced_bos_token_id", "forced_eos_token_id"), (is_count, "a token's number")),
    "suppress_tokens": (_tokens, "a list of tokens' numbers"),
    "bad_words_ids": (lambda value: isinstance(value, list) and all(map(_tokens, value)), "lists of tokens' numbers"),
    "num_beams": (lambda value: is_count(value, 1), "a whole number of 1 or more"),
    "length_penalty": (is_number, "a number"),
}


@dataclass(frozen=True)
class HfFolder:
    """A folder as it was read."""

    folder: Path
    config: dict[str, Any]
    generation: dict[str, Any]  # what steers `generate`; old folders keep it in config.json
    family: Family

    def need(self, name: str) -> int:
        """A size that every config has."""
        value = self.config.get(name)
        if not is_count(value, 1):
            raise SeqloomError(f"{self.folder / 'config.json'}: {name} must be a number above 0, here {shown(value)}")
        return value  # pyright: ignore[reportReturnType]

    def check(self) -> None:
        """Refuse settings of another type than theirs have, and more words than the weights have room for."""
        file = self.folder / "config.json"
        for name, (fits, what) in RULES.items():
            value = self.generation.get(name)
            if value is not None and not fits(value):
                raise SeqloomError(f"{file} or generation_config.json: {name} must be {what}, here {shown(value)}")
        room = sum(one.stat().st_size for one in self.folder.glob("*.safetensors") if one.is_file())
        if not room:
            raise _no_weights(self.folder)
        if max(self.sizes) * self.need("d_model") > room:
            raise SeqloomError(f"{file}: vocab_size and d_model ask for more than the {room:,} bytes of its weights")

    @property
    def sizes(self) -> tuple[int, int]:
        """Ids of source and target."""
        source = self.need("vocab_size")
        shared = self.config.get("share_encoder_decoder_embeddings", True)
        return source, source if shared or not self.config.get("decoder_vocab_size") else self.need(
            "decoder_vocab_size"
        )

    @property
    def eos(self) -> int:
        eos = self.generation.get("eos_token_id")
        if isinstance(eos, list) and len(eos) == 1:
            eos = eos[0]
        return self._id("eos_token_id", eos)

    @property
    def start(self) -> int:
        start = self.generation.get("decoder_start_token_id")
        start = self.generation.get("bos_token_id") if start is None else start
        return self._id("decoder_start_token_id", start)

    def _id(self, name: str, value: Any) -> int:
        size = self.sizes[1]
        if not is_count(value) or value >= size:
            raise SeqloomError(
                f"{self.folder / 'config.json'}: {name} must be one id below {size}, here {shown(value)}"
            )
        return value


def read_folder(folder: Path) -> HfFolder:
    """Their two configs; refuses what is no folder of a model that we can hold."""
    if not folder.is_dir():
        raise SeqloomError(f"{folder}: no such folder; name a local one, as a download or save_pretrained leaves it")
    if not (folder / "config.json").is_file():
        raise SeqloomError(f"{folder}: no Hugging Face folder: it has no config.json")
    config = read_json(folder / "config.json")
    kind = config.get("model_type", "")
    if not isinstance(kind, str):
        raise SeqloomError(f"{folder / 'config.json'}: model_type must be a name, here {shown(kind)}")
    family = FAMILIES[known(kind, FAMILIES, "model_type")]
    extra = folder / "generation_config.json"
    generation = config | (read_json(extra) if extra.is_file() else {})
    found = HfFolder(folder, config, generation, family)
    found.check()
    return found


def read_weights(folder: Path) -> Tensors:
    """All tensors of model.safetensors, or of the files that its index names."""
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        return read_tensors(folder / "model.safetensors")
    if index.is_file():
        places = read_json(index).get("weight_map")
        if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
            raise SeqloomError(f"{index}: weight_map must name a file for every tensor, here {shown(places)}")
        files = sorted(set(places.values()))
        if any(Path(name).name != name or name in ("", ".", "..") or "\0" in name for name in files):
            raise SeqloomError(f"{index}: names files outside its folder")
        return {name: tensor for file in files for name, tensor in read_tensors(folder / file).items()}
    raise _no_weights(folder)


def _no_weights(folder: Path) -> SeqloomError:
    if not any(folder.glob("pytorch_model*.bin")):
        return SeqloomError(f"{folder}: has no model.safetensors")
    return SeqloomError(
        f"{folder}: has only pytorch_model.bin, which can run code when it is opened and is not read here; load it "
        "with transformers where you trust it, and save_pretrained writes model.safetensors"
    )


def convert(theirs: HfFolder, source_end: int) -> tuple[dict[str, Any], Tensors]:
    """The complete model config and the weights under our names; `source_end` is what ends a source."""
    taken = UnusedTensors(read_weights(theirs.folder), theirs.folder)
    stacks = {side: _stack(theirs, side) for side in SIDES}
    positions: Tensors = {}
    for side in SIDES:
        stacks[side]["position"], table = _position(theirs, taken, side)
        if table is not None:
            positions[f"{side}.enter.position.weight"] = table
    embedded, tie, share = _embeddings(theirs, taken, source_end)
    dim = theirs.need("d_model")
    model = complete(
        MODELS,
        {
            "kind": "seq2seq",
            **stacks,
            "embedding": dim,
            "dropout": 0.0,
            "tie_embeddings": tie,
            "share_embeddings": share,
        },
    )
    source, target = theirs.sizes
    with torch.device("meta"):
        shell = build(MODELS, model, source_size=source + SHIFT, target_size=target + SHIFT)
    shapes = {name: tuple(parameter.shape) for name, parameter in shell.named_parameters()}
    table = name_map(theirs.family, (stacks["encoder"]["layers"], stacks["decoder"]["layers"]))
    tensors = embedded | positions | from_hf(taken, table, shapes)
    taken.done()
    return model, tensors


def _stack(theirs: HfFolder, side: str) -> dict[str, Any]:
    config = theirs.config
    activation = known(config.get("activation_function") or "gelu", ACTIVATIONS, "activation_function")
    return {
        "kind": "transformer",
        "dim": theirs.need("d_model"),
        "layers": theirs.need(f"{side}_layers"),
        "heads": theirs.need(f"{side}_attention_heads"),
        "hidden": theirs.need(f"{side}_ffn_dim"),
        "norm": theirs.family.norm,
        "activation": ACTIVATIONS[activation],
        "dropout": float(0.1 if config.get("dropout") is None else config["dropout"]),
        "scale_embeddings": bool(config.get("scale_embedding", False)),
        "embedding_norm": theirs.family.enter_norm,
    }


def _position(theirs: HfFolder, taken: UnusedTensors, side: str) -> tuple[dict[str, Any], Tensor | None]:
    """The position of one side, and its table if it is learned."""
    name = f"model.{side}.embed_positions.weight"
    longest, dim = theirs.need("max_position_embeddings"), theirs.need("d_model")
    if theirs.family.learned:
        return {"kind": "learned", "longest": longest}, taken.take(name, longest + OFFSET, dim)[OFFSET:]
    sines = {"kind": "sinusoidal", "layout": "halves"}
    if name not in taken.left:
        return sines, None
    table = taken.take(name, longest, dim)
    if torch.allclose(table, sinusoids(longest, dim, halves=True), atol=4e-3):  # a bfloat16 file has two digits
        return sines, None
    return {"kind": "learned", "longest": longest}, table


def _embeddings(theirs: HfFolder, taken: UnusedTensors, source_end: int) -> tuple[Tensors, bool, bool]:
    """Source, target and output with our four rows before theirs; whether output and source share the target's."""
    (source, target), dim = theirs.sizes, theirs.need("d_model")
    tie = theirs.config.get("tie_word_embeddings", True)
    if tie and theirs.config.get("share_encoder_decoder_embeddings", True):
        first = second = head = taken.one_of((SHARED, *EMBEDDINGS, HEAD), source, dim)
    else:
        if (common := taken.left.pop(SHARED, None)) is not None:
            taken.left = dict.fromkeys(EMBEDDINGS, common) | taken.left
        first = taken.take(EMBEDDINGS[0], source, dim)
        second = taken.one_of((EMBEDDINGS[1], HEAD) if tie else EMBEDDINGS[1:], target, dim)
        head = second if tie else taken.take(HEAD, target, dim)
    bias = taken.take("final_logits_bias", 1, target)[0] if "final_logits_bias" in taken.left else torch.zeros(target)
    share = source_end == theirs.eos and torch.equal(first, second)
    own = torch.tensor([NEVER, NEVER, float(bias[theirs.eos]), NEVER])
    bias[theirs.eos] = NEVER
    found = {"source.weight": _rows(first, theirs.start, source_end), "output.bias": torch.cat([own, bias])}
    if not share:
        found["target.weight"] = _rows(second, theirs.start, theirs.eos)
    if not tie:
        found["output.weight"] = _rows(head, theirs.start, theirs.eos)
    return found, tie, share


def _rows(matrix: Tensor, start: int, end: int) -> Tensor:
    """Rows for <pad>, <bos>, <eos> and <unk> before theirs."""
    nothing = torch.zeros_like(matrix[0])
    begin = matrix[start] if start < len(matrix) else nothing  # a source's table need not know the target's start
    return torch.cat([torch.stack([nothing, begin, matrix[end], nothing]), matrix])
