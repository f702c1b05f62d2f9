"""From text to text."""

import random

import pytest
import torch

from seqloom.data.tokenizers.tokenizers import EOS
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.decoding.batched import LengthLimit, TextPredictor
from seqloom.decoding.search_options import Search
from seqloom.models.seq2seq import Seq2Seq
from tests.laws import shake

WORDS = ["abc", "b", "cab", "", "abcabcab", "ca", "  ", "bbbb", "acbacb", "c"]


@pytest.fixture(scope="module")
def texts():
    codec = Codec.build("chars", ["abc", "xyz"])
    torch.manual_seed(0)
    stack = {"kind": "gru", "dim": 4, "dropout": 0.0}
    decoder = {"kind": "attentive", "cell": "gru", "dim": 8}
    model = shake(Seq2Seq(codec.size, codec.size, stack, decoder, embedding=6, dropout=0.0).double(), 1)
    with torch.no_grad():
        model.output.weight.mul_(3.0)
    return TextPredictor(model, codec, codec, LengthLimit(1.5, 8), torch.device("cpu"), max_length=6)


@pytest.mark.parametrize("search", [Search(), Search(beam=3, n_best=2)], ids=["greedy", "beam"])
@pytest.mark.parametrize("rows", [1, 2, 64])
def test_answers_come_in_the_order_asked_whatever_the_batches(texts, search, rows):
    together = list(texts.answers(WORDS, search, rows))
    assert len(together) == len(WORDS)
    for word, found in zip(WORDS, together, strict=True):
        (alone,) = texts.answers([word], search)
        assert [answer.text for answer in found] == [answer.text for answer in alone]
        assert [answer.score for answer in found] == pytest.approx([answer.score for answer in alone], abs=1e-5)


def test_answers_differ_from_each_other(texts):
    assert len({found[0].text for found in texts.answers(WORDS, Search())}) > 2


def test_nothing_is_said_of_an_empty_line(texts):
    for word in ("", "  "):
        ((answer,),) = texts.answers([word], Search())
        assert (answer.text, answer.tokens, answer.score) == ("", (), 0.0)


def test_text_tokens_and_text_agree(texts):
    for found in texts.answers(WORDS, Search(beam=2)):
        assert texts.target.decode(found[0].tokens) == found[0].text


def test_a_stream_is_read_a_few_batches_ahead(texts):
    taken = []

    def stream():
        for number in range(1000):
            taken.append(number)
            yield "abc"

    answers = texts.answers(stream(), Search(), rows=2)
    next(answers)
    assert len(taken) == 32


def test_a_source_that_is_too_long_is_cut(texts):
    assert texts.encode("abcabcabc") == [*texts.source.encode("abcabc"), EOS]
    assert texts.encode("ab") == [*texts.source.encode("ab"), EOS]


def test_sampling_repeats_from_its_seed(texts):
    first = [found[0].text for found in texts.answers(WORDS, Search(sample=True, seed=3))]
    assert [found[0].text for found in texts.answers(WORDS, Search(sample=True, seed=3))] == first
    assert [found[0].text for found in texts.answers(WORDS, Search(sample=True, seed=4))] != first


STACK = {"dim": 16, "dropout": 0.0}
MODELS = {
    "gru": ({"kind": "gru", **STACK}, {"kind": "attentive", "cell": "gru", "dim": 16}),
    "lstm": ({"kind": "lstm", **STACK}, {"kind": "recurrent", "cell": "lstm", "dim": 16}),
    "transformer": tuple({"kind": "transformer", **STACK, "heads": 2, "layers": 1} for _ in range(2)),
}
HUNDRED = ["".join(random.Random(row).choices("abcxyz", k=row % 12)) for row in range(100)]
TWO = Search(sample=True, n_best=2, top_p=0.9, temperature=1.5, seed=1)


@pytest.mark.parametrize("kind", MODELS)
def test_what_is_sampled_does_not_depend_on_the_batch(kind):
    compare(kind, TWO, HUNDRED[:24], LengthLimit(0.5, 0))


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("search", [Search(sample=True), TWO, Search(sample=True, top_k=3, temperature=0.7)], ids=str)
def test_what_is_sampled_of_a_hundred_does_not_depend_on_the_batch(kind, search):
    compare(kind, search, HUNDRED, LengthLimit(1.5, 8))


def compare(kind, search, sources, bound):
    codec = Codec.build("chars", ["abcxyz"])
    encoder, decoder = MODELS[kind]
    torch.manual_seed(0)
    model = shake(Seq2Seq(codec.size, codec.size, encoder, decoder, embedding=16, dropout=0.0), 1)
    texts = TextPredictor(model, codec, codec, bound, torch.device("cpu"))

    def said(*batches):
        return [[answer.text for answer in found] for found in texts.answers(sources, search, *batches)]

    wanted = said(64)
    assert len({text for several in wanted for text in several}) > 0.6 * len(sources)
    assert said(7) == said(1, 1) == wanted


def test_the_bound_grows_with_the_source_up_to_the_longest():
    bound = LengthLimit(ratio=1.5, longest=20)
    assert [bound(n) for n in (1, 3, 10, 16, 17, 100)] == [12, 15, 25, 34, 35, 35]
    assert LengthLimit(0.0, 0)(5) == 10


def test_decoding_leaves_dropout_out(texts):
    texts.model.dropout = 0.9
    try:
        texts.model.train()
        once = [found[0].text for found in texts.answers(WORDS, Search())]
        texts.model.train()
        assert [found[0].text for found in texts.answers(WORDS, Search())] == once
    finally:
        texts.model.dropout = 0.0
        texts.model.eval()
