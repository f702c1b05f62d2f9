"""Searching for the best target: greedy, sampling, beam. A model is known here only as a Stepper.

Every search takes `limits`, the most tokens each sentence may get; they depend on the sentence alone, never on its
neighbours, so that a sentence gets the same answer in any batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from seqloom.data.batch import Padded
from seqloom.data.tokens import BOS, EOS, PAD, UNK
from seqloom.errors import SeqloomError
from seqloom.models.seq2seq import Stepper


@dataclass(frozen=True)
class Hypothesis:
    tokens: tuple[int, ...]  # without <bos> and <eos>
    score: float  # what it is ranked by: its log-probability, in a beam divided by length^alpha
    log_probability: float


@dataclass(frozen=True, kw_only=True)
class Search:
    """How to decode. `beam=1` is greedy; `sample` draws from the model's distribution instead.

    `first` is the token that every target begins with; `close` makes <eos> the last token that the limit allows: both
    cost nothing and count as a token. `never` are tokens that are not written, as <pad>, <bos> and <unk> are not; what
    they would have had is shared among the others. With these three, what is found equals `generate` of Hugging Face
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

    def __post_init__(self) -> None:
        if self.beam < 1 or self.n_best < 1:
            raise SeqloomError(f"beam and n-best are at least 1, here {self.beam} and {self.n_best}")
        if not self.sample and self.n_best > self.beam:
            raise SeqloomError(f"n-best {self.n_best} needs a beam at least as wide, here {self.beam}")
        if self.sample and self.beam > 1:
            raise SeqloomError("choose a beam or sampling, not both")
        if self.temperature < 0 or self.top_k < 0 or not 0 < self.top_p <= 1:
            raise SeqloomError("temperature and top-k are at least 0, and top-p lies above 0 and at most 1")


PLAIN = Search()


@torch.inference_mode()
def decode(
    stepper: Stepper, source: Padded, limits: list[int], search: Search, generator: torch.Generator | None = None
) -> list[list[Hypothesis]]:
    """The best hypotheses of every sentence, best first; samples in the order drawn."""
    if search.sample:
        generator = generator or torch.Generator(source.tokens.device).manual_seed(search.seed)
        return walk(stepper, source, limits, sampler(search, generator), search.n_best, search)
    if search.beam == 1:
        return walk(stepper, source, limits, lambda logits: logits.argmax(-1), 1, search)
    found = beam(stepper, source, limits, search.beam, search.alpha, search)
    if not all(found):
        raise SeqloomError("the model's scores are not finite: its training has gone wrong")
    return [hypotheses[: search.n_best] for hypotheses in found]


def sampler(search: Search, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
    def choose(logits: Tensor) -> Tensor:
        if search.temperature == 0:  # the limit of p^(1/T) as T falls to 0
            return logits.argmax(-1)
        probabilities = shaped(logits, search.temperature, search.top_k, search.top_p)
        return torch.multinomial(probabilities, 1, generator=generator)[:, 0]

    return choose


def shaped(logits: Tensor, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> Tensor:
    """[R, V] logits -> the probabilities sampled from: p^(1/T) normalised, of the `top_k` likeliest tokens, then of the
    smallest set that holds `top_p` of the mass (Holtzman et al. 2020), normalised again."""
    probabilities = (logits / temperature).softmax(-1)
    if not top_k and top_p == 1.0:
        return probabilities
    ordered, order = probabilities.sort(-1, descending=True)
    if top_k:
        ordered[:, top_k:] = 0.0
        ordered = ordered / ordered.sum(-1, keepdim=True)
    before = ordered.cumsum(-1) - ordered  # the mass of all likelier ones: the first is always kept
    ordered = torch.where(before < top_p, ordered, 0.0)
    return torch.zeros_like(probabilities).scatter(-1, order, ordered / ordered.sum(-1, keepdim=True))


def walk(
    stepper: Stepper,
    source: Padded,
    limits: list[int],
    choose: Callable[[Tensor], Tensor],
    width: int = 1,
    rules: Search = PLAIN,
) -> list[list[Hypothesis]]:
    """One token at a time by `choose` ([R, V] logits -> [R]); `width` independent walks a sentence."""
    device, room = source.tokens.device, max(limits)
    state = stepper.start(source, width=width, room=room)
    walks = Walks.begin(limits, width, device)
    tokens = torch.full((len(limits) * width,), BOS, device=device)
    finished: list[Walks] = []
    for t in range(room):
        logits, state = stepper.step(tokens[:, None], state)
        logits = _speakable(logits[:, -1], t, walks.limit, rules)
        tokens = walks.add(t, choose(logits), logits)
        if not _look(device, t):
            continue
        left = len(walks.over) - int(walks.over.sum())
        if left == 0:
            break
        # Whole sentences leave, for what was read leaves with them; and not for a few: leaving costs a copy.
        if 8 * left <= 7 * len(walks.over):
            going = (~walks.over).view(-1, width).any(1)
            alive = going.nonzero()[:, 0]
            rows = (alive[:, None] * width + torch.arange(width, device=device)).flatten()
            finished.append(walks.pick((~going).repeat_interleave(width).nonzero()[:, 0]))
            state, walks, tokens = state.pick(rows, alive), walks.pick(rows), tokens[rows]
    ended = [hypothesis for part in (*finished, walks) for hypothesis in part.hypotheses()]
    flat = [hypothesis for _, hypothesis in sorted(ended, key=lambda pair: pair[0])]
    return [flat[i : i + width] for i in range(0, len(flat), width)]


@dataclass
class Walks:
    """What walks have written, a row each. Row-aligned with the model's state, so that a step touches little."""

    where: Tensor  # [R] which walk a row is
    limit: Tensor  # [R]
    written: Tensor  # [R, room]
    score: Tensor  # [R]
    over: Tensor  # [R] has ended
    soonest: int  # no limit is reached before this step

    @classmethod
    def begin(cls, limits: list[int], width: int, device: torch.device) -> Walks:
        limit = torch.tensor(limits, device=device).repeat_interleave(width)
        total = len(limit)
        return cls(
            torch.arange(total, device=device),
            limit,
            torch.full((total, max(limits)), PAD, device=device),
            torch.zeros(total, device=device),
            torch.zeros(total, dtype=torch.bool, device=device),
            min(limits),
        )

    def add(self, t: int, tokens: Tensor, logits: Tensor) -> Tensor:
        """Write the tokens chosen at step t, and <pad> where a walk has ended; gives what was written."""
        tokens = tokens.masked_fill(self.over, PAD)
        chosen = logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0]
        self.score += chosen.masked_fill(self.over, 0.0)
        self.written[:, t] = tokens
        self.over = self.over | (tokens == EOS)
        if t + 1 >= self.soonest:
            self.over = self.over | (self.limit <= t + 1)
        return tokens

    def pick(self, rows: Tensor) -> Walks:
        where, limit, written, score, over = (
            part.index_select(0, rows) for part in (self.where, self.limit, self.written, self.score, self.over)
        )
        return Walks(where, limit, written, score, over, self.soonest)

    def hypotheses(self) -> list[tuple[int, Hypothesis]]:
        rows = zip(self.where.tolist(), self.written.tolist(), self.score.tolist(), strict=True)
        return [(number, _hypothesis(row, score, score)) for number, row, score in rows]


def beam(
    stepper: Stepper, source: Padded, limits: list[int], width: int, alpha: float, rules: Search = PLAIN
) -> list[list[Hypothesis]]:
    """Beam search (Graves 2012; Sutskever et al. 2014, section 3.2), ranked by log p / length^alpha.

    A sentence is done when `width` hypotheses have ended and no live one scores better than the worst of them now.
    """
    device, room, count = source.tokens.device, max(limits), len(limits)
    state = stepper.start(source, width=width, room=room)
    limit = torch.tensor(limits, device=device)
    ended = Ended(count, width, room, device)
    where = torch.arange(count, device=device)  # which sentence each group of rows is
    live = torch.full((count, width), float("-inf"), device=device)
    live[:, 0] = 0.0  # all hypotheses start alike: only one of them may speak first
    history = torch.full((count, width, room), PAD, device=device)
    tokens = torch.full((count * width, 1), BOS, device=device)
    for t in range(room):
        logits, state = stepper.step(tokens, state)
        spoken = _speakable(logits[:, -1], t, limit[where].repeat_interleave(width) if rules.close else limit, rules)
        steps = spoken.log_softmax(-1).view(len(where), width, -1)
        score, flat = (live[:, :, None] + steps).flatten(1).topk(2 * width)
        parent, token = flat // steps.size(-1), flat % steps.size(-1)
        paths = history.gather(1, parent[:, :, None].expand(-1, -1, room))
        paths[:, :, t] = token
        stops = (token == EOS) | (limit[where] <= t + 1)[:, None]
        first = torch.arange(2 * width, device=device) < width  # an ending counts only among the best `width`
        ended.add(where, paths, torch.where(stops & first, score, float("-inf")), (t + 1) ** alpha)
        live, best = score.masked_fill(stops, float("-inf")).topk(width)
        history = paths.gather(1, best[:, :, None].expand(-1, -1, room))
        tokens, parent = token.gather(1, best), parent.gather(1, best)
        going = (live[:, 0] / (t + 1) ** alpha > ended.score[where, -1]) & (live[:, 0] > float("-inf"))
        live = live.masked_fill(~going[:, None], float("-inf"))  # done is done, also for those that stay a while
        alive = None
        if _look(device, t):
            left = int(going.sum())
            if left == 0:
                break
            if 8 * left <= 7 * len(where):
                alive = going.nonzero()[:, 0]
                where, live, history = where[alive], live[alive], history[alive]
                tokens, parent = tokens[alive], parent[alive]
        groups = torch.arange(len(parent), device=device) if alive is None else alive
        rows = (groups[:, None] * width + parent).flatten()
        state = state.pick(rows, alive)
        tokens = tokens.view(-1, 1)
    return ended.hypotheses()


class Ended:
    """The best hypotheses that have ended, best first, for every sentence."""

    def __init__(self, count: int, width: int, room: int, device: torch.device) -> None:
        self.width = width
        self.score = torch.full((count, width), float("-inf"), device=device)
        self.log_probability = torch.full((count, width), float("-inf"), device=device)
        self.tokens = torch.full((count, width, room), PAD, device=device)

    def add(self, where: Tensor, paths: Tensor, log_probability: Tensor, norm: float) -> None:
        """Merge candidates [G, C] (−inf: has not ended) of the sentences `where` into the best so far."""
        score = torch.cat([self.score[where], log_probability / norm], 1)
        score, order = score.topk(self.width)
        self.score[where] = score
        self.log_probability[where] = torch.cat([self.log_probability[where], log_probability], 1).gather(1, order)
        tokens = torch.cat([self.tokens[where], paths], 1)
        self.tokens[where] = tokens.gather(1, order[:, :, None].expand(-1, -1, tokens.size(-1)))

    def hypotheses(self) -> list[list[Hypothesis]]:
        found = zip(self.tokens.tolist(), self.score.tolist(), self.log_probability.tolist(), strict=True)
        return [
            [_hypothesis(*one) for one in zip(*sentence, strict=True) if one[1] > float("-inf")] for sentence in found
        ]


def _hypothesis(row: list[int], score: float, log_probability: float) -> Hypothesis:
    end = next((i for i, token in enumerate(row) if token in (EOS, PAD)), len(row))
    return Hypothesis(tuple(row[:end]), score, log_probability)


def _speakable(logits: Tensor, t: int, limit: Tensor, rules: Search) -> Tensor:
    """Step t's logits [R, V] without what may not be written there; the stepper's own stay as they are."""
    logits = logits.float().clone()
    for token in (PAD, BOS, UNK, *rules.never):
        logits[:, token] = float("-inf")
    if t == 0 and rules.first is not None:
        logits = _only(rules.first, logits)
    if rules.close:
        logits = torch.where((limit <= t + 1)[:, None], _only(EOS, logits), logits)
    return logits


def _only(token: int, logits: Tensor) -> Tensor:
    certain = torch.full_like(logits, float("-inf"))
    certain[:, token] = 0.0
    return certain


def _look(device: torch.device, t: int) -> bool:
    """Looking at who has finished makes the host wait for a GPU: there, only now and then."""
    return device.type == "cpu" or t % 8 == 7
