"""Laws of what takes steps and hands a state on."""

from __future__ import annotations

import torch
from torch import Tensor

from seqloom.laws.compare import (
    LawError,
    difference,
    gradients,
    number,
    place,
    require_all_close,
    require_close,
    require_finite,
)
from seqloom.laws.subjects import Maker, Stepping, in_pieces, picked, pieces


def prefix(make: Maker) -> None:
    """T steps at once are the same steps in any pieces, with gradients; also one step after them."""
    subject: Stepping = make()
    x, more = subject.inputs()[0], subject.draw(subject.rows, 1)
    whole, state = subject.step(x, subject.begin(1, None))
    after, _ = subject.step(more, state)
    expected = gradients(subject.module, [whole, after])
    for sizes in pieces(subject.steps):
        shown = "+".join(map(str, sizes))
        for room in (None, subject.steps + 1, 2):  # a cache that grows, one made once, and one that is too small
            with torch.set_grad_enabled(room is None):  # a cache made once is written in place: for decoding only
                y, state = in_pieces(subject, x, sizes, room)
                end, _ = subject.step(more, state)
            require_close(
                y,
                whole,
                "the output at {place} is {expected} with all steps at once, and {found} in pieces of {pieces} steps; "
                "the largest difference is {difference}",
                pieces=shown,
            )
            require_close(
                end,
                after,
                "one more step gives {expected} at {place} after all steps at once, and {found} after pieces of "
                "{pieces} steps; the largest difference is {difference}",
                pieces=shown,
            )
        y, state = in_pieces(subject, x, sizes, None)
        require_all_close(
            gradients(subject.module, [y, subject.step(more, state)[0]]),
            expected,
            "a gradient of its parameters is {expected} with all steps at once, and {found} in pieces of {pieces} "
            "steps",
            1e-8,
            pieces=shown,
        )


def causality(make: Maker, own: bool = True) -> None:
    """The input at step t never changes an output before t; with `own`, it does change the output at t."""
    subject: Stepping = make()
    x, other = subject.inputs()[0], subject.draw(subject.rows, 2 * subject.steps)[:, subject.steps :]
    other = torch.where(other == x, other + 1 if other.is_floating_point() else (other + 1) % (x.max() + 1), other)
    y, _ = subject.step(x, subject.begin(1, None))
    require_finite(y)
    for t in range(subject.steps):
        changed, _ = subject.step(torch.cat([x[:, :t], other[:, t:]], 1), subject.begin(1, None))
        if apart := difference(changed[:, :t], y[:, :t]):
            raise LawError(
                "the output at {place} changes by {difference} when the input at step {later} does",
                place=place(apart.index[:2], ("row", "step"))
                if subject.rows > 1
                else place(apart.index[1:2], ("step",)),
                difference=number(apart.largest),
                later=t + 1,
            )
        if own and torch.allclose(changed[:, t], y[:, t], atol=1e-6):
            raise LawError(
                "the output at step {step} does not depend on the input at step {again}", step=t + 1, again=t + 1
            )


def picking(make: Maker) -> None:
    """Rows of a state can be taken, repeated and reordered, whole sentences too, with either kind of cache."""
    subject: Stepping = make()
    n, middle = subject.rows, subject.rows // 2
    within = [2 * s + row for s in range(n) for row in ((1, 0), (1, 1), (0, 1))[s % 3]]
    ways = [
        (within, None),
        ([2 * n - 1, 2 * n - 2, 0, 0], [n - 1, 0]),
        ([2 * middle, 2 * middle + 1, 2 * middle + 1, 2 * middle], [middle, middle]),
    ]
    for room in (None, 4):
        for rows, sentences in ways:
            _check_pick(subject, room, torch.tensor(rows), None if sentences is None else torch.tensor(sentences))


def _check_pick(subject: Stepping, room: int | None, rows: Tensor, sentences: Tensor | None) -> None:
    x = subject.draw(2 * subject.rows, 3)
    first, then, also = x[:, :1], x[:, 1:2], x[:, 2:]
    rows, sentences = rows.to(x.device), None if sentences is None else sentences.to(x.device)
    with torch.no_grad():
        _, state = subject.step(first, subject.begin(2, room))
        taken = picked(state, rows, sentences)
        beside = picked(state, rows, sentences)
        found, taken = subject.step(then[rows], taken)
        subject.step(also[rows], beside)  # a second branch from the same state must not disturb the first
        found = torch.cat([found, subject.step(also[rows], taken)[0]], 1)
        _, state = subject.step(first[rows], picked(subject.begin(2, room), rows, sentences))
        expected, state = subject.step(then[rows], state)
        expected = torch.cat([expected, subject.step(also[rows], state)[0]], 1)
    require_close(
        found,
        expected,
        "rows {rows} taken from the state go on with {found} at {place}, and {expected} is right; the largest "
        "difference is {difference}",
        rows=", ".join(str(row + 1) for row in rows.tolist()),
    )
