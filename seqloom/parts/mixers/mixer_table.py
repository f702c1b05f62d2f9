"""Mixers: the first sub-layer of a Transformer block, attention of any kind or a convolution, chosen by name.

A mixer is built with `dim`, `heads` and the block's `score`; see `Mixer`. Its state is what later steps need of earlier
ones: a `Cache`, or anything with a step count `used` whose rows `pick` can select. Law: T steps at once equal the same
steps in any chunks with the state passed on. A step consumes its state.
"""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from torch import Tensor

from seqloom.build import Choice, build
from seqloom.errors import SeqloomError
from seqloom.parts.attention.kv_cache import Cache
from seqloom.parts.attention.multi_head import MultiHeadAttention
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.mixers.blockwise import Blockwise
from seqloom.parts.mixers.convolution import ConvolutionMixer
from seqloom.parts.mixers.linear_attention import LinearAttention, Performer
from seqloom.parts.mixers.linformer import Linformer
from seqloom.parts.mixers.reformer import Reformer
from seqloom.parts.mixers.sparse import BigBird, Longformer
from seqloom.parts.mixers.window import Window
from seqloom.parts.positions.position import AttentionPosition
from seqloom.parts.state import State
from seqloom.parts.visibility import Visibility


class Mixer(Protocol):
    causal: bool  # whether it works without later positions, as in a decoder
    bounded: bool  # whether the size of its state has a bound, however many steps are taken

    def begin(self, room: int | None = None) -> State:
        """The state before the first step; if it grows, with memory for `room` steps."""
        ...

    def __call__(
        self, x: Tensor, visible: Visibility, state: State = None, position: AttentionPosition | None = None
    ) -> tuple[Tensor, State]:
        """[R, T, dim] -> the same; with a state, x follows the steps that it holds. `position` rotates q and k."""
        ...


class SelfAttention(MultiHeadAttention):
    """softmax(score(Q, K)) V with several heads, over all visible positions (Vaswani et al. 2017, section 3.2.2).

    Quadratic in the length. `key_heads`, `projections`, `normalizer` and `dropout`: see
    MultiHeadAttention. Reports its weights, [B, heads, T, S].
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
        options = {"key_heads": key_heads, "projections": projections, "normalizer": normalizer, "dropout": dropout}
        super().__init__(dim, heads, score=score, **options)  # pyright: ignore[reportArgumentType]

    def begin(self, room: int | None = None) -> Cache:
        return Cache(room)


class CrossAttention(MultiHeadAttention):
    """The same over the encoder's states, of width `key_dim` (Vaswani et al. 2017, section 3.2.3)."""

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
        options = {"key_heads": key_heads, "projections": projections, "normalizer": normalizer, "dropout": dropout}
        super().__init__(dim, heads, key_dim=key_dim, score=score, **options)  # pyright: ignore[reportArgumentType]


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


def build_mixer(choice: Choice, dim: int, heads: int, score: Choice, causal: bool) -> Any:
    """The chosen mixer; one that needs later positions is refused if `causal`."""
    mixer = build(MIXERS, choice, dim=dim, heads=heads, score=score)
    if causal and not mixer.causal:
        fitting = ", ".join(sorted(name for name, make in MIXERS.items() if make.causal))
        name = next((name for name, make in MIXERS.items() if isinstance(mixer, make)), type(mixer).__name__)
        raise SeqloomError(
            f"mixer {name!r} sees what comes after, so it stands in an encoder alone; choose from: {fitting}"
        )
    return mixer
