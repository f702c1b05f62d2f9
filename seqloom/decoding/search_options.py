"""How to decode: the settings of greedy search, sampling and beam search, and the choice of any other decoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seqloom.build import kind_of
from seqloom.errors import SettingError, shown

AUTO, GREEDY, SAMPLE, BEAM = "auto", "greedy", "sample", "beam"
WIDEST = 1_000_000  # hypotheses of a source: more has no memory


@dataclass(frozen=True, kw_only=True)
class Search:
    """How to decode. `beam=1` is greedy search; `sample` draws from the model's distribution instead, by `seed` and the
    position of a source in the input. `decoding` names any entry of `DECODINGS`, with its own settings if it has some;
    auto is one of these three, by `beam` and `sample`.

    `first` is the token that every target begins with; `close` makes <eos> the last token that the limit allows: both
    have probability 1 and count as a token. `never` are tokens that are not written, like <pad>, <bos> and <unk>; the
    probabilities of the others are normalized again. With these three, results equal `generate` of Hugging Face
    with `forced_bos_token_id`, `forced_eos_token_id` and `suppress_tokens` (and `renormalize_logits`), with
    `early_stopping=False`, the length penalty `alpha` and as many new tokens as the limit.
    """

    beam: int = 1
    n_best: int = 1
    alpha: float = 1.0
    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 7
    first: int | None = None
    close: bool = False
    never: tuple[int, ...] = ()
    decoding: str | dict[str, Any] = AUTO

    def __post_init__(self) -> None:
        if self.kind == SAMPLE:
            object.__setattr__(self, "sample", True)
        if self.beam < 1 or self.n_best < 1:
            raise SettingError(f"beam and n-best are at least 1, here {self.beam} and {self.n_best}")
        if max(self.beam, self.n_best) > WIDEST:
            raise SettingError(f"beam and n-best are at most {WIDEST:,}, here {shown((self.beam, self.n_best))}")
        if self.kind in (GREEDY, BEAM) and self.n_best > self.beam:
            raise SettingError(f"n-best {self.n_best} needs a beam at least as wide, here {self.beam}")
        if self.sample and self.beam > 1:
            raise SettingError("choose a beam or sampling, not both")
        if (self.sample and self.kind in (GREEDY, BEAM)) or (self.kind == GREEDY and self.beam > 1):
            raise SettingError(f"the decoding {self.kind} has no {'beam' if self.beam > 1 else 'sampling'}: choose one")
        if self.temperature < 0 or self.top_k < 0 or not 0 < self.top_p <= 1:
            raise SettingError("temperature and top-k are at least 0, and top-p lies above 0 and at most 1")

    @property
    def kind(self) -> str:
        """The name of the decoding."""
        if self.decoding != AUTO:
            return str(kind_of(self.decoding))
        return SAMPLE if self.sample else BEAM if self.beam > 1 else GREEDY

    @property
    def choice(self) -> str | dict[str, Any]:
        """The decoding with its own settings."""
        return self.kind if self.decoding == AUTO else self.decoding

    def check_auto(self, task: str) -> None:
        """Refuse another decoding for a task that writes no target token by token."""
        if self.decoding != AUTO:
            raise SettingError(f"the decoding {self.kind} writes a target token by token: there is none in {task}")


DEFAULT = Search()
