"""A simple RNN forward and back by hand, in numpy: `python examples/rnn_by_hand.py`.

Every line of back-propagation through time is written out and compared with what autograd finds for the same cell of
Seqloom. Then the reason why long memory is hard to learn: on its way back a gradient meets the recurrent matrix at
every step, so after k steps its k-th power, which fades if its spectral radius is below 1 and explodes if above.
"""

from __future__ import annotations

import numpy as np
import torch

from seqloom.parts.recurrent.layers import Recurrent
from seqloom.parts.visibility import Visibility

STEPS, INPUT, DIM = 12, 3, 5
RADII, DISTANCES = (0.5, 0.9, 1.0, 1.1, 1.5), (1, 10, 20, 40)


def forward(x: np.ndarray, w: np.ndarray, u: np.ndarray, b: np.ndarray) -> np.ndarray:
    """h_t = tanh(W x_t + U h_{t−1} + b) from h_0 = 0: [T, input] -> [T + 1, dim]."""
    h = np.zeros((len(x) + 1, len(b)))
    for t in range(len(x)):
        h[t + 1] = np.tanh(w @ x[t] + u @ h[t] + b)
    return h


def backward(
    x: np.ndarray, h: np.ndarray, u: np.ndarray, slope: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """From ∂loss/∂h_t as the loss itself has it, [T, dim], to the gradients of W, U and b."""
    dw, du, db = np.zeros((u.shape[0], x.shape[1])), np.zeros_like(u), np.zeros(len(u))
    later = np.zeros(len(u))  # what comes back from the steps after t
    for t in reversed(range(len(x))):
        inner = (slope[t] + later) * (1 - h[t + 1] ** 2)  # through tanh, whose slope is 1 − tanh²
        dw += np.outer(inner, x[t])
        du += np.outer(inner, h[t])
        db += inner
        later = u.T @ inner
    return dw, du, db


def compare() -> float:
    """The largest difference between the gradients by hand and by autograd, for loss = Σ_t |h_t − y_t|² / 2."""
    torch.manual_seed(1)
    stack = Recurrent(INPUT, DIM, "rnn").double()
    cell = stack.layers[0].cells[0]
    x, y = torch.randn(STEPS, INPUT).double(), torch.randn(STEPS, DIM).double()
    states, _ = stack(x[None], Visibility())
    ((states[0] - y) ** 2).sum().div(2).backward()

    w, u, b = (p.detach().numpy() for p in (cell.weight, cell.recurrent, cell.bias))
    h = forward(x.numpy(), w, u, b)
    found = backward(x.numpy(), h, u, h[1:] - y.numpy())
    wanted = (cell.weight.grad, cell.recurrent.grad, cell.bias.grad)
    return max(np.abs(ours - theirs.numpy()).max() for ours, theirs in zip(found, wanted, strict=True))


def powers() -> None:
    """|U^k g| / |g| for a random g, where U is scaled to a spectral radius; and with tanh, whose slopes only shrink."""
    draw = np.random.default_rng(1)
    u, g = draw.normal(size=(32, 32)), draw.normal(size=32)
    u /= np.abs(np.linalg.eigvals(u)).max()
    print("\nhow much of a gradient is left after k steps back")
    print("spectral radius " + "".join(f"{f'k = {k}':>12}" for k in DISTANCES) + "   k = 40, with tanh")
    for radius in RADII:
        left = [np.linalg.norm(np.linalg.matrix_power(radius * u.T, k) @ g) / np.linalg.norm(g) for k in DISTANCES]
        h = forward(draw.normal(size=(40, 4)), draw.normal(size=(32, 4)) / 2, radius * u, np.zeros(32))
        back = g
        for t in reversed(range(40)):
            back = radius * u.T @ (back * (1 - h[t + 1] ** 2))
        kept = np.linalg.norm(back) / np.linalg.norm(g)
        print(f"{radius:<16}" + "".join(f"{share:>12.1e}" for share in left) + f"{kept:>20.1e}")


def main() -> None:
    difference = compare()
    print(f"gradients of W, U and b over {STEPS} steps: largest difference from autograd {difference:.1e}")
    assert difference < 1e-10
    powers()


if __name__ == "__main__":
    main()
