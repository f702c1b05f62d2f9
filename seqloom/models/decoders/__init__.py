"""Decoders: the encoded source and the tokens so far -> the states from which the next tokens are predicted.

A decoder is built knowing `input_dim` (an embedding), `memory_dim` (a state of the encoder) and `final_dims` (the
encoder's last state, layer by layer; empty if it has none). `begin` turns Encoded into a Decoding; `forward` takes any
number of steps from there. Training is a step with T > 1, so training and decoding cannot disagree.
"""

from seqloom.models.decoders.attentive import AttentiveDecoder
from seqloom.models.decoders.recurrent import RecurrentDecoder
from seqloom.models.decoders.transformer import TransformerDecoder
from seqloom.models.protocols import Decoder

DECODERS: dict[str, type[Decoder]] = {
    "recurrent": RecurrentDecoder,
    "attentive": AttentiveDecoder,
    "transformer": TransformerDecoder,
}
