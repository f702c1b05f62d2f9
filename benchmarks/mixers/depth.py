"""What residual connections are for: `python benchmarks/mixers/depth.py` trains stacks with and without them.

Each place has to add its token to the next one, modulo eight: little data, learned by heart. A plain stack of many
blocks does worse than one of few on the very data that it is trained on, so it is not that it fits too well (He et al.
2016, figure 1); with ways around its blocks it does better. Half a minute on one core.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from seqloom.build import build
from seqloom.models.encoders import ENCODERS
from seqloom.parts.transformer.residual import RESIDUALS

TOKENS, DIM = 8, 16
DEPTHS = (2, 8, 24)
SMALL = {
    "transformer": {"heads": 2, "hidden": 2 * DIM},
    "convolution": {"activation": "relu"},
}


def trained(kind: str, residual: str, layers: int, steps: int = 100) -> float:
    """The loss, in nats a place, after so many steps; ln 8 = 2.08 is what guessing gives."""
    torch.manual_seed(0)
    tokens = torch.randint(0, TOKENS, (64, 12), generator=torch.Generator().manual_seed(1))
    labels = (tokens[:, :-1] + tokens[:, 1:]) % TOKENS
    choice = {"kind": kind, "dim": DIM, "layers": layers, "residual": residual, "dropout": 0.0, **SMALL[kind]}
    embedding, encoder = nn.Embedding(TOKENS, DIM), build(ENCODERS, choice, input_dim=DIM)
    output = nn.Linear(DIM, TOKENS)
    parameters = [p for part in (embedding, encoder, output) for p in part.parameters()]
    optimiser, loss = torch.optim.Adam(parameters, 3e-3), torch.zeros(())
    for _ in range(steps):
        states = encoder(embedding(tokens), None).states[:, :-1]
        loss = F.cross_entropy(output(states).flatten(0, 1), labels.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return loss.item()


def main() -> None:
    print("| stack | residual | " + " | ".join(f"{layers} blocks" for layers in DEPTHS) + " |")
    print("|---|---|" + "---:|" * len(DEPTHS))
    for kind in SMALL:
        for residual in RESIDUALS:
            losses = " | ".join(f"{trained(kind, residual, layers):.2f}" for layers in DEPTHS)
            print(f"| {kind} | {residual} | {losses} |")


if __name__ == "__main__":
    main()
