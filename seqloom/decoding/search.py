"""Searching for the best target: greedy, sampling, beam. A model is known here only as a Stepper.

Every search takes `limits`, the most tokens each sentence may get; they depend on the sentence alone, never on its
neighbours, so that a sentence gets the same answer in any batch. What is sampled does too: see `draws`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seqloom.data.batches.collate import Padded
from seqloom.data.tokenizers.tokenizers import BOS, EOS, PAD, UNK
from seqloom.decoding.hypotheses import Ended, Hypothesis, Walks
from seqloom.decoding.random_draws import Draws
from seqloom.errors import SeqloomError, SettingError, shown
from seqloom.fast.malloc import keep_freed
from seqloom.models.seq2seq import Stepper

WIDEST = 1_000_000  # hypotheses of a source: more has no memory


@dataclass(frozen=True, kw_only=True)
class Search:
    """How to decode. `beam=1` is greedy; `sample` draws from the model's distribution instead, by `seed` and the place
    of a source among all that are asked.

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
            raise SettingError(f"beam and n-best are at least 1, here {self.beam} and {self.n_best}")
        if max(self.beam, self.n_best) > WIDEST:
            raise SettingError(f"beam and n-best are at most {WIDEST:,}, here {shown((self.beam, self.n_best))}")
        if not self.sample and self.n_best > self.beam:
            raise SettingError(f"n-best {self.n_best} needs a beam at least as wide, here {self.beam}")
        if self.sample and self.beam > 1:
            raise SettingError("choose a beam or sampling, not both")
        if self.temperature < 0 or self.top_k < 0 or not 0 < self.top_p <= 1:
            raise SettingError("temperature and top-k are at least 0, and top-p lies above 0 and at most 1")


PLAIN = Search()
Another = Callable[[Stepper, Padded, list[int], Search], list[list[Hypothesis]] | None]
Choose = Callable[..., Tensor]  # of [R, V] logits, the step, and [R] which walk each row is: [R] tokens
UNSOUND = "the model's scores are not finite: its training has gone wrong"


@torch.inference_mode()
def decode(
    stepper: Stepper,
    source: Padded,
    limits: list[int],
    search: Search,
    numbers: Sequence[int] | None = None,
    another: Another | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of every sentence, best first; samples in the order drawn. `numbers`: the places of these
    sentences among all that are asked, 0, 1, … unless given. `another` way to search is asked first, as `Replays`; it
    may decline."""
    if source.tokens.device.type == "cpu":
        keep_freed()
    if search.sample:
        places = range(len(limits)) if numbers is None else numbers
        streams = [(place, sample) for place in places for sample in range(search.n_best)]
        choose = sampler(search, Draws(search.seed, streams, source.tokens.device))
        found = walk(stepper, source, limits, choose, search.n_best, search)
        if any(math.isnan(one.score) for several in found for one in several):
            raise SeqloomError(UNSOUND)
        return found
    found = None if another is None else another(stepper, source, limits, search)
    if search.beam == 1:
        return found or walk(stepper, source, limits, lambda logits, *_: logits.argmax(-1), 1, search)
    found = found or beam(stepper, source, limits, search.beam, search.alpha, search)
    if not all(found):
        raise SeqloomError(UNSOUND)
    return [hypotheses[: search.n_best] for hypotheses in found]


def sampler(search: Search, draws: Draws) -> Choose:
    def choose(logits: Tensor, step: int | Tensor, rows: Tensor | None = None) -> Tensor:
        if search.temperature == 0:  # the limit of p^(1/T) as T falls to 0
            return logits.argmax(-1)
        return draws(shaped(logits, search.temperature, search.top_k, search.top_p), step, rows)

    return choose


def shaped(logits: Tensor, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> Tensor:
    """[R, V] logits -> the probabilities sampled from: p^(1/T) normalised, of the `top_k` likeliest tokens, then of the
    smallest set that holds `top_p` of the mass (Holtzman et al. 2020), normalised again."""
    probabilities = (logits / temperature).softmax(-1)
    if not top_k and top_p == 1.0:
        return probabilities
    ordered, order = probabilities.sort(stable=True, dim=-1, descending=True)
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
    choose: Choose,
    width: int = 1,
    rules: Search = PLAIN,
) -> list[list[Hypothesis]]:
    """One token at a time by `choose`; `width` independent walks a sentence."""
    device, room = source.tokens.device, max(limits)
    state = stepper.start(source, width=width, room=room)
    walks = Walks.begin(limits, width, device)
    tokens = torch.full((len(limits) * width,), BOS, device=device)
    finished: list[Walks] = []
    speakable = Speakable(rules)
    for t in range(room):
        logits, state = stepper.step(tokens[:, None], state)
        logits = speakable(logits[:, -1], t, walks.limit)
        tokens = walks.add(t, choose(logits, t, walks.where), logits)
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


def beam(
    stepper: Stepper, source: Padded, limits: list[int], width: int, alpha: float, rules: Search = PLAIN
) -> list[list[Hypothesis]]:
    """Beam search (Graves 2012; Sutskever et al. 2014, section 3.2), ranked by log p / length^alpha.

    A sentence is done when `width` hypotheses have ended and no live one scores better than the worst of them now.
    """
    device, room, count = source.tokens.device, max(limits), len(limits)
    state = stepper.start(source, width=width, room=room)
    ended, speakable, finished = Ended.begin(limits, width, device), Speakable(rules), []
    live = torch.full((count, width), float("-inf"), device=device)
    live[:, 0] = 0.0  # all hypotheses start alike: only one of them may speak first
    history = torch.full((count, width, room), PAD, device=device)
    tokens, first = torch.full((count * width, 1), BOS, device=device), torch.arange(2 * width, device=device) < width
    groups = torch.arange(count, device=device)
    for t in range(room):
        logits, state = stepper.step(tokens, state)
        spoken = speakable(logits[:, -1], t, ended.limit.repeat_interleave(width) if rules.close else ended.limit)
        steps = spoken.log_softmax(-1).view(len(live), width, -1)
        score, flat = (live[:, :, None] + steps).flatten(1).topk(2 * width)
        parent = flat // steps.size(-1)
        token = flat - parent * steps.size(-1)
        stops = ended.stops(token, t)
        if device.type != "cpu" or bool(stops.any()):  # to look is cheaper there than to do it for nothing
            # An ending counts only among the best `width`.
            ended.add(history, parent, token, torch.where(stops & first, score, float("-inf")), t, alpha)
            live, best = score.masked_fill(stops, float("-inf")).topk(width)
            token, parent = token.gather(1, best), parent.gather(1, best)
        else:
            live, token, parent = score[:, :width], token[:, :width], parent[:, :width]
        going = (live[:, 0] / (t + 1) ** alpha > ended.score[:, -1]) & (live[:, 0] > float("-inf"))
        live = live.masked_fill(~going[:, None], float("-inf"))  # done is done, also for those that stay a while
        history = history.gather(1, parent[:, :, None].expand(-1, -1, room))
        history[:, :, t] = token
        alive = None
        if _look(device, t):
            left = int(going.sum())
            if left == 0:
                break
            if 8 * left <= 7 * len(going):
                alive = going.nonzero()[:, 0]
                finished.append(ended.pick((~going).nonzero()[:, 0]))
                live, history, token, parent = live[alive], history[alive], token[alive], parent[alive]
                ended = ended.pick(alive)
        rows = ((groups[: len(parent)] if alive is None else alive)[:, None] * width + parent).flatten()
        state, tokens = state.pick(rows, alive), token.reshape(-1, 1)
    found = sorted(one for part in (*finished, ended) for one in part.hypotheses())
    return [hypotheses for _, hypotheses in found]


class Speakable:
    """A step's logits [R, V] without what may not be written there; the stepper's own stay as they are."""

    def __init__(self, rules: Search) -> None:
        self.rules = rules
        self.silence: Tensor | None = None  # [V], added: −inf for what is never written

    def __call__(self, logits: Tensor, t: int, limit: Tensor) -> Tensor:
        logits = logits.float()
        if self.silence is None:
            never = torch.tensor([PAD, BOS, UNK, *self.rules.never], device=logits.device)
            self.silence = logits.new_zeros(logits.size(-1)).index_fill_(0, never, float("-inf"))
        logits = logits + self.silence
        if t == 0 and self.rules.first is not None:
            logits = _only(self.rules.first, logits)
        if self.rules.close:
            logits = torch.where((limit <= t + 1)[:, None], _only(EOS, logits), logits)
        return logits


def _only(token: int, logits: Tensor) -> Tensor:
    certain = torch.full_like(logits, float("-inf"))
    certain[:, token] = 0.0
    return certain


def _look(device: torch.device, t: int) -> bool:
    """Looking at who has finished makes the host wait for a GPU: there, only now and then."""
    return device.type == "cpu" or t % 8 == 7
