"""The chain against enumeration: every row of tags of small cases, in float64."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch
from torch import Tensor

from seqloom.acceleration import plain_of
from seqloom.parts.layers.crf import (
    CRF,
    TAG_OUTPUTS,
    Allowed,
    Chain,
    Softmax,
    log_partition,
    viterbi,
)
from tests.laws import close, drawn

TAGS, STEPS = 3, 5
LENGTHS = (5, 3, 1, 2)


def chain(dtype: torch.dtype = torch.float64, tags: int = TAGS) -> CRF:
    crf = CRF(tags).to(dtype)
    with torch.no_grad():
        for seed, parameter in enumerate(crf.parameters()):
            parameter.copy_(drawn(*parameter.shape, seed=seed))
    return crf


def case(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    return drawn(len(LENGTHS), STEPS, TAGS).to(dtype), torch.tensor(LENGTHS)


def worth(crf: CRF, scores: Tensor, tags: tuple[int, ...]) -> Tensor:
    """The formula, term by term."""
    total = crf.start[tags[0]] + crf.end[tags[-1]]
    for t, tag in enumerate(tags):
        total = total + scores[t, tag]
    for before, after in pairwise(tags):
        total = total + crf.move[before, after]
    return total


def every(crf: CRF, scores: Tensor, length: int) -> tuple[list[tuple[int, ...]], Tensor]:
    paths = list(product(range(scores.size(-1)), repeat=length))
    return paths, torch.stack([worth(crf, scores, path) for path in paths])


@pytest.mark.parametrize("partition", [log_partition, plain_of(log_partition)])
def test_the_partition_and_its_gradients_equal_enumeration(partition):
    crf, (scores, lengths) = chain(), case()
    scores.requires_grad_()
    found = partition(scores, lengths, crf.chain(scores))
    wanted = torch.stack([every(crf, scores[row], n)[1].logsumexp(0) for row, n in enumerate(LENGTHS)])
    close(found, wanted)
    weights = torch.tensor([1.0, -0.5, 2.0, 0.3], dtype=torch.float64)
    inputs = [scores, *crf.parameters()]
    close(torch.autograd.grad((found * weights).sum(), inputs), torch.autograd.grad((wanted * weights).sum(), inputs))


def test_the_likelihood_of_a_path_equals_enumeration():
    crf, (scores, lengths) = chain(), case()
    tags = torch.tensor([[0, 2, 1, 1, 0], [2, 2, 1, 9, 9], [1, 9, 9, 9, 9], [0, 1, 9, 9, 9]]) % TAGS
    for row, (found, length) in enumerate(zip(crf(scores, tags, lengths), LENGTHS, strict=True)):
        _, all_paths = every(crf, scores[row], length)
        close(found, worth(crf, scores[row], tuple(tags[row, :length].tolist())) - all_paths.logsumexp(0))
    with torch.no_grad():  # the plain path runs where no gradient is wanted
        close(crf(scores, tags, lengths), crf(scores, tags, lengths).detach())


def test_the_best_path_equals_enumeration():
    for seed in range(20):
        crf, scores = chain(), 2 * drawn(len(LENGTHS), STEPS, TAGS, seed=seed)
        found = crf.best(scores, torch.tensor(LENGTHS))
        for row, length in enumerate(LENGTHS):
            paths, totals = every(crf, scores[row], length)
            assert tuple(found[row, :length].tolist()) == paths[int(totals.argmax())]
            assert not found[row, length:].any()


def test_marginals_equal_enumeration_and_the_gradient_of_the_partition():
    crf, (scores, lengths) = chain(), case()
    scores.requires_grad_()
    found = crf.marginals(scores, lengths).exp()
    for row, length in enumerate(LENGTHS):
        paths, totals = every(crf, scores[row], length)
        shares = totals.softmax(0)
        for t, tag in product(range(length), range(TAGS)):
            share = sum(s for path, s in zip(paths, shares, strict=True) if path[t] == tag)
            close(found[row, t, tag], share)
        close(found[row, :length].sum(-1), torch.ones(length, dtype=torch.float64))
    for partition in (log_partition, plain_of(log_partition)):
        (slope,) = torch.autograd.grad(partition(scores, lengths, crf.chain(scores)).sum(), scores)
        for row, length in enumerate(LENGTHS):
            close(slope[row, :length], found[row, :length])
            assert not slope[row, length:].any()


def test_gradcheck():
    crf, (scores, lengths) = chain(), case()
    inputs = (scores.requires_grad_(), *(p.detach().clone().requires_grad_() for p in (crf.start, crf.move, crf.end)))
    for held in (lengths, None):
        assert torch.autograd.gradcheck(
            lambda s, start, move, end, held=held: log_partition(s, held, Chain(start, move, end)), inputs
        )


@pytest.mark.parametrize("kind", TAG_OUTPUTS)
def test_padding_and_batches_change_nothing(kind):
    output = chain() if kind == "crf" else Softmax(TAGS)
    scores, lengths = case()
    tags = torch.randint(TAGS, (len(LENGTHS), STEPS), generator=torch.Generator().manual_seed(1))
    together = output(scores, tags, lengths)
    for junk in (0.0, 1e30, torch.nan):
        other = scores.clone()
        for row, length in enumerate(LENGTHS):
            other[row, length:] = junk
        close(output(other, tags, lengths), together)
    for row, n in enumerate(LENGTHS):
        alone = scores[row : row + 1, :n]
        close(output(alone, tags[row : row + 1, :n], None), together[row : row + 1])
        assert output.best(alone, None)[0].tolist() == output.best(scores, lengths)[row, :n].tolist()
        close(output.marginals(alone, None)[0], output.marginals(scores, lengths)[row, :n])


def test_the_softmax_is_cross_entropy():
    scores, lengths = case()
    tags = torch.randint(TAGS, (len(LENGTHS), STEPS), generator=torch.Generator().manual_seed(1))
    logs = scores.log_softmax(-1)
    wanted = [sum(logs[row, t, tags[row, t]] for t in range(n)) for row, n in enumerate(LENGTHS)]
    close(Softmax(TAGS)(scores, tags, lengths), torch.stack(wanted))


@pytest.mark.parametrize("kind", TAG_OUTPUTS)
def test_what_is_not_allowed_never_comes(kind):
    """B and I of one type, and O: I never after O or at the start; and the best of what is allowed is found."""
    output = chain() if kind == "crf" else Softmax(TAGS)
    crf = chain() if kind == "crf" else CRF(TAGS).double()  # a softmax is a chain whose moves cost nothing
    start, move = torch.tensor([True, True, False]), torch.ones(TAGS, TAGS, dtype=torch.bool)
    move[0, 2] = False
    allowed = Allowed(start, move, torch.tensor([True, True, True]))
    for seed in range(10):
        scores = drawn(len(LENGTHS), STEPS, TAGS, seed=seed)
        scores[:, :, 2] += 2
        found = output.best(scores, torch.tensor(LENGTHS), allowed)
        for row, length in enumerate(LENGTHS):
            paths, totals = every(crf, scores[row], length)
            legal = [p[0] != 2 and (0, 2) not in pairwise(p) for p in paths]
            assert (
                tuple(found[row, :length].tolist())
                == paths[int(totals.masked_fill(~torch.tensor(legal), -9e9).argmax())]
            )


def test_in_single_and_half_precision():
    exact, (scores, lengths) = chain(), case()
    tags = torch.zeros(len(LENGTHS), STEPS, dtype=torch.long)
    wanted = exact(scores, tags, lengths)
    single = chain(torch.float32)(scores.float(), tags, lengths)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), wanted, rtol=1e-5, atol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        half = chain(torch.float32)(scores.bfloat16(), tags, lengths)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half.double(), wanted, rtol=0.05, atol=0.05)


def test_long_rows_and_large_scores_stay_finite():
    """Nothing over- or underflows: 2,000 steps, scores of ± 100."""
    crf, scores = chain(torch.float32), 50 * drawn(2, 2000, TAGS).float()
    for partition in (log_partition, plain_of(log_partition)):
        found = partition(scores.requires_grad_(), None, crf.chain(scores))
        exact = plain_of(log_partition)(scores.double(), None, chain().chain(scores.double()))
        torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=0)
        assert all(slope.isfinite().all() for slope in torch.autograd.grad(found.sum(), [scores, crf.move]))


def test_viterbi_of_a_row_of_one_place():
    crf = chain()
    scores = drawn(4, 1, TAGS)
    assert viterbi(scores, None, crf.chain(scores)).tolist() == (scores + crf.start + crf.end).argmax(-1).tolist()
