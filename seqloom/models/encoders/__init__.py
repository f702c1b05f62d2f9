"""Encoders: [B, S, input_dim] -> Encoded. The table of their names; one file each."""

from typing import Any

from seqloom.models.encoders.context_window import WindowEncoder
from seqloom.models.encoders.convolutional import ConvolutionEncoder
from seqloom.models.encoders.recurrent import RecurrentEncoder
from seqloom.models.encoders.transformer import TransformerEncoder
from seqloom.models.protocols import Encoder

ENCODERS: dict[str, type[Encoder] | dict[str, Any]] = {
    "recurrent": RecurrentEncoder,
    "rnn": {"kind": "recurrent", "cell": "rnn"},
    "gru": {"kind": "recurrent", "cell": "gru"},
    "lstm": {"kind": "recurrent", "cell": "lstm"},
    "transformer": TransformerEncoder,
    "convolution": ConvolutionEncoder,
    "window": WindowEncoder,
    "single": {"kind": "window", "window": 1},
}
