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


class Graph:
    """One file: tensors in and out by name. What is the same for every input is no input of the graph."""

    def __init__(self, file: Path) -> None:
        self._session = _session(file)
        self.inputs: dict[str, list[int | str]] = {one.name: one.shape for one in self._session.get_inputs()}
        self.outputs = [one.name for one in self._session.get_outputs()]

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        fed = {name: tensor.contiguous().numpy() for name, tensor in inputs.items() if name in self.inputs}
        found = self._session.run(self.outputs, fed)
        return dict(zip(self.outputs, map(torch.from_numpy, found), strict=True))


class Sessions(nn.Module):
    """`onnx_graph.py` says what the files take and give. `places`: how many positions source and target have, or
    None where there is no end."""

    places: Sequence[int | None]

    def __init__(self, folder: Path, places: Sequence[int | None]) -> None:
        super().__init__()
        self.places = places
        self._encoder, self._step = (Graph(folder / name) for name in (ENCODER, STEP))
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
        """Teacher forcing, step by step: [B, T, V], with `index` [N, V]; of `labels` the loss."""
        state, said = self.start(source), []
        for token in tokens.split(1, 1):
            logits, state = self.step(token, state)
            said.append(logits)
        every = torch.cat(said, 1)
        every = every if index is None else every.flatten(0, 1).index_select(0, index)
        return every if labels is None else cross_entropy_of_logits(every, labels, smoothing, PAD)

    def start(self, source: Padded, *, width: int = 1, room: int | None = None) -> Decoding:
        within(self.places[0], source.tokens.size(1), "source")
        found = self._encoder({"tokens": source.tokens, "lengths": source.lengths})
        count = source.tokens.size(0)
        # What was not written yet has no steps: the sizes that only a run knows are 0.
        rows = (
            repeat_rows(found[name], width)
            if name in found
            else torch.zeros(count * width, *(size if isinstance(size, int) else 0 for size in shape))
            for name, shape in self._rows.items()
        )
        return Decoding(tuple(found[name] for name in self._context), tuple(rows))

    def step(self, tokens: Tensor, state: Decoding) -> tuple[Tensor, Decoding]:
        """[R, 1] -> logits [R, 1, V]"""
        if self.places[1] is not None:
            within(self.places[1], state.rows[0].size(2) + 1, "target")
        rows, sentences = tokens.size(0), state.context[0].size(0)
        fed = dict(zip(self._context, state.context, strict=True))
        fed |= {name: row.unflatten(0, (sentences, -1)) for name, row in zip(self._rows, state.rows, strict=True)}
        logits, *after = self._step({"tokens": tokens.view(sentences, -1), **fed}).values()
        return logits.view(rows, 1, -1), Decoding(state.context, tuple(row.flatten(0, 1) for row in after))


def within(places: int | None, count: int, side: str) -> None:
    """Positions that come from a table end somewhere."""
    if places is not None and count > places:
        raise SeqloomError(
            f"the engine's positions reach {places} tokens of a {side}, here {count}; cut the text, or train a run "
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
