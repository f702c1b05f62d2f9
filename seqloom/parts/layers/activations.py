"""Activations."""

from __future__ import annotations

from torch import nn


class Relu(nn.ReLU):
    """max(0, x) (Nair & Hinton 2010)."""


class Gelu(nn.GELU):
    """x·Φ(x) (Hendrycks & Gimpel 2016)."""


class Silu(nn.SiLU):
    """x·σ(x) (Elfwing et al. 2018; "swish" of Ramachandran et al. 2017)."""


class Sigmoid(nn.Sigmoid):
    """1 / (1 + e^−x) (Rumelhart et al. 1986)."""


class Tanh(nn.Tanh):
    """(e^x − e^−x) / (e^x + e^−x) (LeCun et al. 1998, Efficient BackProp, section 4.4)."""


class NoActivation(nn.Identity):
    """x itself: layers without an activation between them are one linear map (Minsky & Papert 1969)."""


ACTIVATIONS = {
    "relu": Relu,
    "gelu": Gelu,
    "silu": Silu,
    "sigmoid": Sigmoid,
    "tanh": Tanh,
    "none": NoActivation,
}
