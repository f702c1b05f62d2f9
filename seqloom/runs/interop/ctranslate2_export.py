"""`seqloom export --to ct2`: a run's Transformer as a CTranslate2 model, which is checked against torch.

Their architecture has most of our positions, both positions of the norms and most activations; heads, layers and widths
may differ between the sides. Positions of a table end: sinusoids at LONGEST. <pad>, <bos>, <unk> and what a run never
writes get a bias that leaves them no share in any softmax, so their search needs no rules of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.data.tokenizers.tokenizers import BOS, EOS, PAD, SPECIALS, UNK
from seqloom.decoding.batched import TextPredictor
from seqloom.errors import SeqloomError
from seqloom.parts.positions.absolute import sinusoids
from seqloom.runs.interop.ctranslate2_run import Ct2Texts, load_ct2, token_names
from seqloom.runs.interop.export_check import SHAPES, STEPS, check_close, random_sources, relative_difference
from seqloom.runs.interop.huggingface_files import NEVER
from seqloom.runs.interop.huggingface_weights import ATTENTION, SIDES, Tensors, unsupported_setting
from seqloom.tasks.translate.model import Translator
from seqloom.training.checkpoint import weights

LONGEST = 2048  # positions in a table of sinusoids, which by itself has no end
POSITIONS = ("sinusoidal", "learned", "rotary", "none")
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH", "sigmoid": "Sigmoid", "tanh": "Tanh"}


def check_supported(model: Mapping[str, Any], run: str) -> None:
    """Refuse what CTranslate2 has no word for, by its name."""

    def refuse(setting: str, instead: str) -> None:
        raise SeqloomError(f"{run}: CTranslate2 cannot hold {setting}; {instead}")

    for side in SIDES:
        stack = model[side]
        if stack["kind"] != "transformer":
            refuse(
                f"{side}.kind={stack['kind']}", "it holds Transformers only: train --model transformer, or --to onnx"
            )
        if (score := stack["score"]["kind"]) != "scaled":
            refuse(f"{side}.score={score}", "it would hold scaled; --to onnx holds any")
        if (kind := stack["norm_kind"]["kind"]) != "layer":
            refuse(f"{side}.norm_kind={kind}", "it would hold layer; --to onnx holds any")
        if stack["residual"] != "add":
            refuse(f"{side}.residual={stack['residual']}", "it would hold add; --to onnx holds any")
        if (mixer := stack.get("mixer", ATTENTION)["kind"]) != "attention":
            refuse(f"{side}.mixer={mixer}", "it would hold attention, as --to onnx does")
        if (position := stack["position"]["kind"]) not in POSITIONS:
            refuse(
                f"{side}.position={position}", f"it would hold {', '.join(POSITIONS)}; --to onnx holds any but floater"
            )
        if stack["activation"] not in ACTIVATIONS:
            held = ", ".join(ACTIVATIONS)
            refuse(f"{side}.activation={stack['activation']}", f"it would hold {held}; --to onnx holds any")
    if setting := unsupported_setting(model):
        refuse(setting, "--to onnx holds it")


def max_positions_of(model: Mapping[str, Any]) -> list[int | None]:
    """How many positions each side has there; None: no end."""
    ends = {"sinusoidal": LONGEST, "none": LONGEST, "rotary": None}
    return [model[side]["position"].get("longest", ends.get(model[side]["position"]["kind"])) for side in SIDES]


@torch.no_grad()
def write_ct2(
    made: Translator, config: Mapping[str, Any], folder: Path, max_positions: Sequence[int | None], int8: bool
) -> float:
    """Write the model into a folder; gives the largest difference from torch, with `int8` after the weights of
    products became whole numbers of 8 bits."""
    texts = made.texts
    _save(texts, config, folder, None)
    found = check_close(_differences(texts, load_ct2(folder, max_positions, texts)), str(made.folder))
    if not int8:
        return found
    _save(texts, config, folder, "int8")
    return max(difference for _, difference in _differences(texts, load_ct2(folder, max_positions, texts)))


def _save(texts: TextPredictor, config: Mapping[str, Any], folder: Path, quantization: str | None) -> None:
    spec = _spec(weights(texts.model), config, texts.bound.never)
    for side, codec in (("source", texts.source), ("target", texts.target)):
        getattr(spec, f"register_{side}_vocabulary")(token_names(codec))
    names = token_names(texts.target)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = names[UNK], names[BOS], names[EOS]
    spec.config.decoder_start_token = names[BOS]
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


def _spec(ours: Tensors, config: Mapping[str, Any], never: Sequence[int]) -> Any:
    from ctranslate2.specs import common_spec, transformer_spec

    makers = {"encoder": transformer_spec.TransformerEncoderSpec, "decoder": transformer_spec.TransformerDecoderSpec}
    specs: dict[str, Any] = {}
    for side, make in makers.items():
        stack = config[side]
        spec = make(
            stack["layers"],
            stack["heads"],
            pre_norm=stack["norm"] == "before",
            activation=common_spec.Activation[ACTIVATIONS[stack["activation"]]],
            layernorm_embedding=stack["embedding_norm"],
            rotary_dim=0 if stack["position"]["kind"] == "rotary" else None,
        )
        _fill(spec, ours, side, stack)
        specs[side] = spec
    source = ours["source.weight"]
    target = ours.get("target.weight", source)
    specs["encoder"].embeddings[0].weight = _array(_projected(ours, "encoder", source))
    specs["decoder"].embeddings.weight = _array(_projected(ours, "decoder", target))
    bias = ours["output.bias"].clone()
    bias[[PAD, BOS, UNK, *never]] = NEVER
    specs["decoder"].projection.weight = _array(ours.get("output.weight", target))
    specs["decoder"].projection.bias = _array(bias)
    return transformer_spec.TransformerSpec(specs["encoder"], specs["decoder"])


def _fill(spec: Any, ours: Tensors, side: str, stack: Mapping[str, Any]) -> None:
    spec.scale_embeddings = stack["scale_embeddings"]
    if stack["position"]["kind"] == "rotary":
        spec.__dict__.pop("position_encodings", None)
    else:
        spec.position_encodings.encodings = _array(_position_table(ours, side, stack))
    for theirs, mine in (("layer_norm", "norm"), ("layernorm_embedding", "enter.norm")):
        if hasattr(spec, theirs):
            _norm(getattr(spec, theirs), ours, f"{side}.{mine}")
    for number, layer in enumerate(spec.layer):
        block = f"{side}.blocks.{number}"
        _attention(layer.self_attention, ours, block, "mix", ("project", "out"))
        if side == "decoder":
            _attention(layer.attention, ours, block, "cross", ("query", "project", "out"))
        _norm(layer.ffn.layer_norm, ours, f"{block}.feed_around.norm")
        _linear(layer.ffn.linear_0, ours, f"{block}.feed.up")
        _linear(layer.ffn.linear_1, ours, f"{block}.feed.down")


def _position_table(ours: Tensors, side: str, stack: Mapping[str, Any]) -> Tensor:
    """The positions as a table, whatever they are made of."""
    position = stack["position"]
    if position["kind"] == "learned":
        return ours[f"{side}.enter.position.weight"]
    if position["kind"] == "none":
        return torch.zeros(LONGEST, stack["dim"])
    return sinusoids(LONGEST, stack["dim"], halves=position["layout"] == "halves")


def _projected(ours: Tensors, side: str, embedding: Tensor) -> Tensor:
    """Embeddings of another width go through a matrix first, which is done here once for each of them."""
    project = ours.get(f"{side}.enter.project.weight")
    return embedding if project is None else embedding @ project.mT


def _attention(spec: Any, ours: Tensors, block: str, name: str, parts: Sequence[str]) -> None:
    _norm(spec.layer_norm, ours, f"{block}.{name}_around.norm")
    for linear, part in zip(spec.linear, parts, strict=True):
        _linear(linear, ours, f"{block}.{name}.{part}")


def _norm(spec: Any, ours: Tensors, name: str) -> None:
    spec.gamma, spec.beta = _array(ours[f"{name}.weight"]), _array(ours[f"{name}.bias"])


def _linear(spec: Any, ours: Tensors, name: str) -> None:
    spec.weight, spec.bias = _array(ours[f"{name}.weight"]), _array(ours[f"{name}.bias"])


def _array(tensor: Tensor) -> Any:
    """A copy: their library changes in place what it makes smaller."""
    return tensor.detach().float().cpu().clone(memory_format=torch.contiguous_format).numpy()


def _differences(texts: TextPredictor, made: Ct2Texts) -> Iterator[tuple[str, float]]:
    """Where, and by how much the logarithms of the probabilities of random targets differ there."""
    draw, max_positions = torch.Generator().manual_seed(7), made.held.max_positions
    never_written = [PAD, BOS, UNK, *texts.bound.never]
    for rows, length in SHAPES:
        source = random_sources(texts.source.size, rows, length, max_positions[0], draw)
        steps = min(STEPS, (max_positions[1] or STEPS + 1) - 1)
        target = torch.randint(len(SPECIALS), texts.target.size, (rows, steps), generator=draw)
        logits = texts.model(source, F.pad(target, (1, 0), value=BOS))
        logits[..., never_written] = NEVER
        scores = logits.log_softmax(-1).gather(-1, F.pad(target, (0, 1), value=EOS)[..., None])[..., 0]
        asked = [row[:count] for row, count in zip(source.tokens.tolist(), source.host, strict=True)]
        yield (
            f"{rows} × {source.tokens.size(1)} tokens",
            relative_difference(scores, torch.tensor(made.scored(asked, target.tolist()))),
        )
