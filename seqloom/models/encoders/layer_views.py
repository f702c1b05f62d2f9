"""What each layer of a decoder reads of an encoder of several layers."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from seqloom.errors import SeqloomError
from seqloom.models.protocols import Encoded

VIEWS = ("last", "each", "all")


class Views(nn.Module):
    """`each`: a layer of the decoder reads the encoder's layer at the same height, counted from the top (He et al.
    2018, layer-wise attention); below the encoder's first, the first. `all`: each reads a mix of all layers, Σ_l s_l
    h_l with its own s = softmax(w) (Bapna et al. 2018, transparent attention). All but the last have a norm here; the
    last may have one in the encoder.
    """

    def __init__(self, how: str, layer_dims: tuple[int, ...], readers: int) -> None:
        super().__init__()
        if not readers:
            raise SeqloomError(f"views={how} needs a decoder of which each layer reads: decoder.kind=transformer")
        if len(set(layer_dims)) != 1:
            widths = ", ".join(map(str, layer_dims)) or "none"
            raise SeqloomError(f"views={how} needs layers of the encoder of one width, here {widths}")
        layers = len(layer_dims)
        self.read = [
            max(0, layers - readers + reader) for reader in range(readers)
        ]  # with `each`: the layer that each reads
        used = range(layers - 1) if how == "all" else sorted({layer for layer in self.read if layer < layers - 1})
        self.norms = nn.ModuleDict({str(layer): nn.LayerNorm(layer_dims[layer]) for layer in used})
        self.weight = nn.Parameter(torch.zeros(readers, layers)) if how == "all" else None

    def forward(self, encoded: Encoded) -> Encoded:
        """The same with its `views`."""
        layers = dict(enumerate((*encoded.layers[:-1], encoded.states)))
        normed = {
            layer: self.norms[str(layer)](states) if str(layer) in self.norms else states
            for layer, states in layers.items()
        }
        if self.weight is None:
            return replace(encoded, views=tuple(normed[layer] for layer in self.read))
        mixed = torch.einsum("rl,bsdl->rbsd", self.weight.softmax(-1), torch.stack(list(normed.values()), -1))
        return replace(encoded, views=tuple(mixed))
