"""`seqloom export --to onnx`: a run as two ONNX files, which are checked against torch."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seqloom.errors import SeqloomError
from seqloom.models.seq2seq import Seq2Seq
from seqloom.parts.mixers.mixer_table import SelfAttention
from seqloom.parts.transformer.block import Block
from seqloom.runs.interop.export_check import SHAPES, STEPS, check_close, random_sources, relative_difference
from seqloom.runs.interop.huggingface_weights import SIDES
from seqloom.runs.interop.onnx_graph import EncoderGraph, Example, StepGraph, prepared, state_tensors
from seqloom.runs.interop.onnx_run import ENCODER, STEP, OnnxModel
from seqloom.tasks.translate.model import Translator


def max_positions_of(model: Mapping[str, Any]) -> list[int | None]:
    """How many positions each side has; None: no end."""
    return [model[side].get("position", {}).get("longest") for side in SIDES]


@torch.no_grad()
def write_onnx(made: Translator, folder: Path, max_positions: Sequence[int | None], int8: bool) -> float:
    """Write both graphs into a folder; gives the largest difference from torch. `max_positions`: see Sessions.

    With `int8` the weights of products are whole numbers of 8 bits, made by onnxruntime's dynamic quantisation after
    the comparison; what is given is how much that changes.
    """
    model: Seq2Seq = made.model
    for name, part in model.named_modules():
        if isinstance(part, Block) and not isinstance(part.mix, SelfAttention):
            what = f"{name.partition('.')[0]}.mixer, here {type(part.mix).__name__}"
            raise SeqloomError(f"{made.folder}: ONNX would hold attention alone as {what}")
    copy = prepared(model)
    one, other = Example.of(model, 2, 4, 3, 2), Example.of(model, 3, 5, 4, 3)
    begun = len(state_tensors(model.start(one.source).rows))
    _, context, rows = one.write()
    read = [*_names("context", context), *_names("row", rows[:begun])]
    _export(EncoderGraph(copy), (one.read(), other.read()), ["tokens", "lengths"], read, folder / ENCODER)
    _export(
        StepGraph(copy, one.state),
        (one.write(), other.write()),
        ["tokens", *_names("context", context), *_names("row", rows)],
        ["logits", *_names("next", rows)],
        folder / STEP,
    )
    found = check_close(differences(model, OnnxModel(folder, max_positions)), str(made.folder))
    if not int8:
        return found
    for name in (ENCODER, STEP):
        _quantise(folder / name)
    return max(difference for _, difference in differences(model, OnnxModel(folder, max_positions)))


def differences(model: Seq2Seq, other: OnnxModel) -> Iterator[tuple[str, float]]:
    """Where, and by how much the logits differ there, over some steps with two hypotheses a sentence."""
    draw = torch.Generator().manual_seed(7)
    for rows, length in SHAPES:
        source = random_sources(model.source.num_embeddings, rows, length, other.max_positions[0], draw)
        mine, theirs = (stepper.start(source, width=2, room=STEPS) for stepper in (model, other))
        for step in range(min(STEPS, other.max_positions[1] or STEPS)):
            tokens = torch.randint(model.target.num_embeddings, (2 * rows, 1), generator=draw)
            (logits, mine), (other_logits, theirs) = model.step(tokens, mine), other.step(tokens, theirs)
            where = f"{rows} × {source.tokens.size(1)} tokens, step {step + 1}"
            yield where, relative_difference(logits, other_logits)
            order = torch.arange(2 * rows).view(rows, 2).flip(1).flatten()  # as in a beam, hypotheses change places
            mine, theirs = mine.pick(order), theirs.pick(order)


def _names(kind: str, tensors: Sequence[Tensor]) -> list[str]:
    return [f"{kind}_{number}" for number in range(len(tensors))]


def _export(graph: torch.nn.Module, inputs: Sequence[Any], names: list[str], outputs: list[str], file: Path) -> None:
    """Two examples of the inputs, unlike in every size that may change."""
    with _quietly():
        try:
            made = torch.onnx.export(
                graph.eval(),
                inputs[0],
                dynamo=True,
                dynamic_shapes=_axes(*inputs),
                input_names=names,
                output_names=outputs,
                external_data=False,
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            raise SeqloomError(f"torch cannot write {file.name}: {str(error).strip().splitlines()[0]}") from error
    assert made is not None
    made.save(file)


def _axes(one: Any, other: Any) -> Any:
    if isinstance(one, tuple):
        return tuple(map(_axes, one, other))
    unlike = (axis for axis, (a, b) in enumerate(zip(one.shape, other.shape, strict=True)) if a != b)
    return dict.fromkeys(unlike, torch.export.Dim.DYNAMIC)


def _quantise(file: Path) -> None:
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(file)
    del model.graph.value_info[:]  # the shapes that the exporter noted are not those of what takes their place
    with _quietly():
        quantize_dynamic(model, file, weight_type=QuantType.QInt8)


@contextmanager
def _quietly() -> Iterator[None]:
    """The exporters speak of their own affairs."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
