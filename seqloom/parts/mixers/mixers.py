"""Mixing along time, the first half of a Transformer's block: attention of any kind, and whatever else can stand there.

A mixer is built knowing `dim`, `heads` and the block's `score`, and speaks as `Mixer` says. Its state is what it keeps
of the steps already taken: a `Cache`, or anything else that `pick` can take rows of and that says how many steps were
`used`. Law: T steps at once equal the same steps in any pieces, the state handed on. A step consumes its state.
"""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from torch import Tensor

from seqloom.build import Choice, build
from seqloom.errors import SeqloomError
from seqloom.parts.attention.attention import MultiHead
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.mixers.blockwise import Blockwise
from seqloom.parts.mixers.convolution import ConvolutionMixer
from seqloom.parts.mixers.linear_attention import LinearAttention, Performer
from seqloom.parts.mixers.linformer import Linformer
from seqloom.parts.mixers.reformer import Reformer
from seqloom.parts.mixers.sparse import BigBird, Longformer
from seqloom.parts.mixers.window import Window
from seqloom.parts.positions.positions import Turns
from seqloom.parts.state import Cache, State
from seqloom.parts.visibility import Visibility


class Mixer(Protocol):
    causal: bool  # whether it can do without what comes after, and so stand where tokens are written
    bounded: bool  # whether its state stays within a constant, however many steps are taken

    def begin(self, room: int | None = None) -> State:
        """The state before the first step; memory for `room` steps, if it grows with them."""
        ...

    def __call__(
        self, x: Tensor, visible: Visibility, state: State = None, position: Turns | None = None
    ) -> tuple[Tensor, State]:
        """[R, T, dim] -> the same; with a state, x stands after what it holds. `position` turns queries and keys."""
        ...


class SelfAttention(MultiHead):
    """softmax(score(Q, K)) V with several heads, over everything that may be seen (Vaswani et al. 2017, section 3.2.2).

    Time and memory grow with the square of the length. `key_heads`, `projections`, `normalizer` and `dropout`: see
    MultiHead. Reports its weights, [B, heads, T, S].
    """

    causal = True
    bounded = False

    def __init__(
        self,
        dim: int,
        heads: int,
        score: Annotated[Choice, SCORES],
        key_heads: int = 0,
        projections: str = "qkv",
        normalizer: str = "softmax",
        dropout: float = 0.0,
    ) -> None:
        kinds = {"key_heads": key_heads, "projections": projections, "normalizer": normalizer, "dropout": dropout}
        super().__init__(dim, heads, score=score, **kinds)  # pyright: ignore[reportArgumentType]

    def begin(self, room: int | None = None) -> Cache:
        return Cache(room)


class CrossAttention(MultiHead):
    """The same over what was read (Vaswani et al. 2017, section 3.2.3), of width `key_dim`."""

    def __init__(
        self,
        dim: int,
        heads: int,
        key_dim: int,
        score: Annotated[Choice, SCORES],
        key_heads: int = 0,
        projections: str = "qkv",
        normalizer: str = "softmax",
        dropout: float = 0.0,
    ) -> None:
        kinds = {"key_heads": key_heads, "projections": projections, "normalizer": normalizer, "dropout": dropout}
        super().__init__(dim, heads, key_dim=key_dim, score=score, **kinds)  # pyright: ignore[reportArgumentType]


CROSSES = {"attention": CrossAttention}
MIXERS = {
    "attention": SelfAttention,
    "blockwise": Blockwise,
    "window": Window,
    "longformer": Longformer,
    "bigbird": BigBird,
    "linear": LinearAttention,
    "performer": Performer,
    "linformer": Linformer,
    "reformer": Reformer,
    "convolution": ConvolutionMixer,
}


def mixer_of(choice: Choice, dim: int, heads: int, score: Choice, causal: bool) -> Any:
    """The chosen mixer; one that has to see what comes after is refused where `causal` says that there is nothing."""
    mixer = build(MIXERS, choice, dim=dim, heads=heads, score=score)
    if causal and not mixer.causal:
        fitting = ", ".join(sorted(name for name, make in MIXERS.items() if make.causal))
        name = next((name for name, make in MIXERS.items() if isinstance(mixer, make)), type(mixer).__name__)
        raise SeqloomError(
            f"mixer {name!r} sees what comes after, so it stands in an encoder alone; choose from: {fitting}"
        )
    return mixer
