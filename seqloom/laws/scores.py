"""The laws of attention scores."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.laws import common, stepping
from seqloom.laws.case import Case, Kind, Law, Part
from seqloom.laws.compare import LawError, NotApplicable, require_close, shape
from seqloom.laws.subjects import Calling, Maker, Reading, Stepping
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.attention.single_head import Attention
from seqloom.parts.mixers.mixer_table import SelfAttention
from seqloom.parts.state import State
from seqloom.parts.visibility import Visibility

SIZES = ("rows", "steps", "dim")
PAIR = ("row", "query", "key")


def build_score(part: Part, case: Case) -> nn.Module:
    score = part.make(query_dim=case.dim, key_dim=case.dim)
    missing = [name for name in ("keys", "as_dot", "forward") if not callable(getattr(score, name, None))]
    if missing or not isinstance(score, nn.Module):
        raise LawError("it is no nn.Module with `keys`, `as_dot` and `forward`")
    return score


def calls(part: Part, case: Case) -> Maker:
    """The score itself, of `steps` queries and one key more."""

    def make(seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Calling:
        score: Any = case.build(partial(build_score, part, case), seed, dtype, device)
        q = case.draw(case.rows, case.steps, case.dim, seed=3).to(device, dtype)
        k = case.draw(case.rows, case.steps + 1, case.dim).to(device, dtype)
        return Calling(score, lambda q, k: [score(q, score.keys(k))], (q, k))

    return make


def steps(part: Part, case: Case) -> Maker:
    """Causal self-attention by the score."""

    def make(seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Stepping:
        def attention() -> nn.Module:
            return SelfAttention(case.dim, 1, lambda **_: build_score(part, case))

        module: Any = case.build(attention, seed, dtype, device)

        def step(x: Tensor, state: State) -> tuple[Tensor, State]:
            return module(x, Visibility(causal=True), state)

        def draw(rows: int, steps: int) -> Tensor:
            return case.draw(rows, steps, case.dim).to(device, dtype)

        return Stepping(module, lambda width, room: module.begin(room), step, draw, case.rows, case.steps)

    return make


def reads(part: Part, case: Case) -> Maker:
    """Attention over padded rows by the score, each with two queries."""

    def make(seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Reading:
        def attention() -> nn.Module:
            return Attention(case.dim, case.dim, lambda **_: build_score(part, case))

        module: Any = case.build(attention, seed, dtype, device)
        query = case.draw(1, 2, case.dim, seed=3).to(device, dtype)

        def read(x: Tensor, lengths: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
            queries = query.expand(x.size(0), -1, -1)
            return [], [module(queries, module.project_memory(x), Visibility(lengths=lengths))]

        x = case.draw(len(case.lengths), max(case.lengths), case.dim).to(device, dtype)
        return Reading(module, read, x, torch.tensor(case.lengths, device=device))

    return make


def check_shapes(make: Maker) -> None:
    """q [..., T, Q] and k [..., S, K] give [..., T, S], however many axes stand before."""
    subject: Calling = make(dtype=torch.float32)
    score: Any = subject.module
    q, k = subject.arguments
    whole = score(q, score.keys(k))
    for axes in ((), (q.size(0),), (q.size(0), 1), (1, q.size(0), 1)):
        queries, keys = (x[0] if axes == () else x.view(*axes, *x.shape[1:]) for x in (q, k))
        found = score(queries, score.keys(keys))
        right = [*axes, q.size(1), k.size(1)]
        if list(found.shape) != right:
            raise LawError(
                "of queries {queries} and keys {keys} the scores are {found}, and {expected} is right",
                queries=shape(queries),
                keys=shape(keys),
                found=shape(found),
                expected=str(right),
            )
        require_close(
            found.reshape(-1, *whole.shape[1:]),
            whole[: 1 if axes == () else None],
            "of queries {queries} a score is {found}, and {expected} with a single axis before",
            1e-5,
            queries=shape(queries),
        )


def check_dot(make: Maker) -> NotApplicable | None:
    """q'·k' of `as_dot` is the score."""
    subject: Calling = make()
    score: Any = subject.module
    q, k = subject.arguments[0], score.keys(subject.arguments[1])
    pair = score.as_dot(q, k)
    if pair is None:
        return NotApplicable("`as_dot` gives None: it is no dot product")
    if not (isinstance(pair, tuple) and len(pair) == 2):
        raise LawError("`as_dot` returns {found}, and not (q, k) or None", found=type(pair).__name__)
    require_close(
        pair[0] @ pair[1].mT,
        score(q, k),
        "the dot product of `as_dot` is {found} at {place}, and the score is {expected}; the largest difference is "
        "{difference}",
        axes=PAIR,
    )
    return None


def check_keys(make: Maker) -> None:
    """`keys` of all keys at once are those of each key by itself, as a cache collects them."""
    subject: Calling = make()
    score: Any = subject.module
    k = subject.arguments[1]
    require_close(
        torch.cat([score.keys(one) for one in k.split(1, 1)], 1),
        score.keys(k),
        "`keys` gives {expected} at {place} for all keys at once, and {found} for one key after the other",
        axes=("row", "key", "feature"),
    )


def check_pairs(make: Maker) -> None:
    """A score depends on its query and its key alone."""
    subject: Calling = make()
    score: Any = subject.module
    q, k = subject.arguments[0], score.keys(subject.arguments[1])
    rows = [torch.cat([score(one, other) for other in k.split(1, 1)], 2) for one in q.split(1, 1)]
    require_close(
        torch.cat(rows, 1),
        score(q, k),
        "the score at {place} is {expected} among all queries and keys, and {found} for the two alone",
        axes=PAIR,
    )


LENGTHS = ("lengths", "dim")
SCORE = Kind(
    "score",
    ("query_dim", "key_dim"),
    lambda one: issubclass(one, nn.Module) and callable(getattr(one, "as_dot", None) or vars(one).get("keys")),
    SCORES,
    build_score,
    (
        Law("shapes", "Queries [..., T, Q] and keys [..., S, K] give scores [..., T, S].", check_shapes, calls, SIZES),
        *common.first_laws(calls, SIZES),
        Law("in-place", "A call writes into none of its inputs.", common.untouched, calls, SIZES),
        Law("keys", "`keys` of all keys at once are those of one key after the other.", check_keys, calls, SIZES),
        Law("pairs", "A score depends on its query and its key alone.", check_pairs, calls, SIZES),
        Law("as_dot", "The dot product of `as_dot` is the score.", check_dot, calls, SIZES),
        Law("prefix", common.PREFIX, stepping.prefix, steps, SIZES),
        Law("causality", common.CAUSALITY, partial(stepping.causality, own=False), steps, SIZES),
        Law("padding", common.PADDING, common.padding, reads, LENGTHS),
        *common.last_laws(calls, SIZES),
    ),
)
