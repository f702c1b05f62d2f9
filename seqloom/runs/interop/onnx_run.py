"""A model as two ONNX files behind onnxruntime: a Stepper like any other, so every search works with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.data.batches.collate import Padded
from seqloom.data.tokenizers.tokenizers import PAD
from seqloom.errors import SeqloomError
from seqloom.models.decoders.bridge import repeat_rows
from seqloom.parts.layers.cross_entropy import cross_entropy_of_logits
from seqloom.parts.state import Decoding

ENCODER, STEP = "encoder.onnx", "step.onnx"


class OnnxSession:
    """One ONNX file: tensors in and out by name. The exporter leaves out inputs that the graph does not use."""

    def __init__(self, file: Path) -> None:
        self._session = _session(file)
        self.inputs: dict[str, list[int | str]] = {one.name: one.shape for one in self._session.get_inputs()}
        self.outputs = [one.name for one in self._session.get_outputs()]

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        fed = {name: tensor.contiguous().numpy() for name, tensor in inputs.items() if name in self.inputs}
        found = self._session.run(self.outputs, fed)
        return dict(zip(self.outputs, map(torch.from_numpy, found), strict=True))


class OnnxModel(nn.Module):
    """A Stepper of two ONNX files, whose inputs and outputs `onnx_graph.py` describes. `max_positions` of source and
    target; None if unlimited."""

    max_positions: Sequence[int | None]

    def __init__(self, folder: Path, max_positions: Sequence[int | None]) -> None:
        super().__init__()
        self.max_positions = max_positions
        self._encoder, self._step = (OnnxSession(folder / name) for name in (ENCODER, STEP))
        inputs = self._step.inputs
        self._context = [name for name in inputs if name.startswith("context_")]
        self._rows = {name: shape[2:] for name, shape in inputs.items() if name.startswith("row_")}

    def forward(
        self,
        source: Padded,
        tokens: Tensor,
        index: Tensor | None = None,
        labels: Tensor | None = None,
        smoothing: float = 0.0,
    ) -> Tensor:
        """Teacher forcing, step by step: logits [B, T, V], with `index` [N, V]; with `labels` the loss."""
        state, steps = self.start(source), []
        for token in tokens.split(1, 1):
            step_logits, state = self.step(token, state)
            steps.append(step_logits)
        logits = torch.cat(steps, 1)
        logits = logits if index is None else logits.flatten(0, 1).index_select(0, index)
        return logits if labels is None else cross_entropy_of_logits(logits, labels, smoothing, PAD)

    def start(self, source: Padded, *, width: int = 1, room: int | None = None) -> Decoding:
        check_position(self.max_positions[0], source.tokens.size(1), "source")
        found = self._encoder({"tokens": source.tokens, "lengths": source.lengths})
        count = source.tokens.size(0)
        # Caches of targets are empty: their dynamic sizes are 0.
        rows = (
            repeat_rows(found[name], width)
            if name in found
            else torch.zeros(count * width, *(size if isinstance(size, int) else 0 for size in shape))
            for name, shape in self._rows.items()
        )
        return Decoding(tuple(found[name] for name in self._context), tuple(rows))

    def step(self, tokens: Tensor, state: Decoding) -> tuple[Tensor, Decoding]:
        """[R, 1] -> logits [R, 1, V]"""
        if self.max_positions[1] is not None:
            check_position(self.max_positions[1], state.rows[0].size(2) + 1, "target")
        rows, sentences = tokens.size(0), state.context[0].size(0)
        inputs = dict(zip(self._context, state.context, strict=True))
        inputs |= {name: row.unflatten(0, (sentences, -1)) for name, row in zip(self._rows, state.rows, strict=True)}
        logits, *after = self._step({"tokens": tokens.view(sentences, -1), **inputs}).values()
        return logits.view(rows, 1, -1), Decoding(state.context, tuple(row.flatten(0, 1) for row in after))


def check_position(limit: int | None, count: int, side: str) -> None:
    """Refuse more tokens than a table of positions has."""
    if limit is not None and count > limit:
        raise SeqloomError(
            f"the engine's positions reach {limit} tokens of a {side}, here {count}; cut the text, or train a run "
            "with a max_length"
        )


def _session(file: Path) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise SeqloomError("the engine onnx needs onnxruntime: pip install 'seqloom[export]'") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 3
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own errors share no other class
        raise SeqloomError(f"{file}: onnxruntime cannot open it: {str(error).splitlines()[0]}") from error
