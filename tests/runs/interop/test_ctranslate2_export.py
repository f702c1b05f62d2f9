"""A CTranslate2 model says and writes what torch does; what it cannot hold is refused by name."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import seqloom
from seqloom import Search, SeqloomError
from seqloom.build import build, complete
from seqloom.data.tokenizers.tokenizers import EOS, make_tokenizer
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.decoding.batched import LengthLimit, TextPredictor
from seqloom.models.seq2seq import MODELS
from seqloom.runs.config import compose
from seqloom.runs.interop.ctranslate2_export import check_supported, max_positions_of, write_ct2
from seqloom.runs.interop.ctranslate2_run import load_ct2
from seqloom.runs.interop.engines import load_engine
from seqloom.runs.interop.export_check import CLOSE
from tests.conftest import words, write_pairs


def sides(**keywords):
    return {f"{side}.{name}": value for side in ("encoder", "decoder") for name, value in keywords.items()}


SMALL = {**sides(dim=16, hidden=32, heads=2, layers=1), "embedding": 16, "tie_embeddings": False}
CASES = {
    "plain": {},
    "norm after": sides(norm="after", activation="gelu", embedding_norm=True, scale=False),
    "rotary": sides(position="rotary", activation="silu"),
    "no positions": sides(position="none", activation="tanh"),
    "learned": sides(position={"kind": "learned", "longest": 40}, activation="sigmoid"),
    "halves": sides(position={"kind": "sinusoidal", "layout": "halves"}),
    "narrow embeddings": {"embedding": 8},
    "unlike sides": {"encoder.dim": 24, "encoder.heads": 4, "encoder.layers": 2, "decoder.norm": "after"},
}


def config_of(settings, preset="transformer"):
    return complete(MODELS, compose("translate", preset, "tiny", {}, {}, settings)["model"])


def made(settings, bound=None):
    """A random model with answers of all lengths."""
    config = config_of({**SMALL, **settings})
    torch.manual_seed(5)
    model = build(MODELS, config, source_size=30, target_size=24).eval()
    with torch.no_grad():
        model.output.weight.mul_(3.0)
    codecs = [Codec("words", make_tokenizer("words"), [f"t{i}" for i in range(size - 4)]) for size in (30, 24)]
    texts = TextPredictor(model, *codecs, bound or LengthLimit(1.0, 12), torch.device("cpu"))
    return SimpleNamespace(texts=texts, folder="runs/mine"), config


def asked(count=200):
    draw = random.Random(2)
    return [" ".join(f"t{draw.randrange(26)}" for _ in range(draw.randint(1, 12))) for _ in range(count)]


def tokens(texts, search, sources):
    return [[one.tokens for one in answers] for answers in texts.answers(sources, search)]


@pytest.mark.parametrize("case", CASES)
def test_it_says_and_writes_what_torch_does(case, tmp_path):
    one, config = made(CASES[case])
    assert write_ct2(one, config, tmp_path, max_positions_of(config), False) <= CLOSE
    theirs, sources = load_ct2(tmp_path, max_positions_of(config), one.texts), asked()
    for search in (Search(), Search(beam=4, alpha=0.0), Search(close=True), Search(beam=3, alpha=0.0, close=True)):
        ours = tokens(one.texts, search, sources)
        assert tokens(theirs, search, sources) == ours
        assert len({row[0] for row in ours}) > (80 if search.beam == 1 else 10)
    for ours, other in zip(one.texts.answers(sources, Search()), theirs.answers(sources, Search()), strict=True):
        assert other[0].log_probability == pytest.approx(ours[0].log_probability, abs=1e-4)
        assert other[0].confidence == pytest.approx(ours[0].confidence, abs=1e-4)


def test_a_beam_with_another_end_has_the_same_scores(tmp_path):
    one, config = made({})
    write_ct2(one, config, tmp_path, max_positions_of(config), False)
    theirs, search = load_ct2(tmp_path, max_positions_of(config), one.texts), Search(beam=4, n_best=4)
    same, rows = 0, zip(one.texts.answers(asked(), search), tokens_and_scores(theirs, search), strict=True)
    for ours, other in rows:
        known = {answer.tokens: answer.score for answer in ours}
        same += ours[0].tokens == other[0][0]
        assert all(score == pytest.approx(known.get(row, score), abs=1e-4) for row, score in other)
    assert same >= 190


def tokens_and_scores(texts, search):
    return [[(one.tokens, one.score) for one in answers] for answers in texts.answers(asked(), search)]


def test_rules_of_an_imported_model(tmp_path):
    one, config = made({}, LengthLimit(1.0, 12, limit=9, close=True, never=(7, 8, 9)))
    write_ct2(one, config, tmp_path, max_positions_of(config), False)
    theirs = load_ct2(tmp_path, max_positions_of(config), one.texts)
    for search in (Search(), Search(beam=3, alpha=0.0)):
        ours = tokens(one.texts, search, asked())
        assert tokens(theirs, search, asked()) == ours
        assert not {7, 8, 9} & {token for row in ours for token in row[0]}
    forced = replace(theirs, bound=replace(theirs.bound, first=5))
    with pytest.raises(SeqloomError, match=r"decoding\.first"):
        forced.answers(["t1"], Search())
    with pytest.raises(SeqloomError, match="does not sample"):
        theirs.answers(["t1"], Search(sample=True))


def test_int8_is_smaller_and_near_and_leaves_the_run_as_it_was(tmp_path):
    one, config = made(sides(dim=64, hidden=256))
    before = {name: value.clone() for name, value in one.texts.model.state_dict().items()}
    sizes = []
    for int8 in (False, True):
        difference = write_ct2(one, config, tmp_path, [256, 256], int8)
        sizes.append((tmp_path / "model.bin").stat().st_size)
    assert CLOSE < difference < 0.2
    assert sizes[1] < 0.7 * sizes[0]
    assert all(torch.equal(value, before[name]) for name, value in one.texts.model.state_dict().items())


def test_learned_positions_say_where_they_end(tmp_path):
    one, config = made(sides(position={"kind": "learned", "longest": 8}), LengthLimit(1.0, 12, limit=12))
    write_ct2(one, config, tmp_path, max_positions_of(config), False)
    theirs = load_ct2(tmp_path, max_positions_of(config), one.texts)
    with pytest.raises(SeqloomError, match="reach 8 tokens of a source, here 10"):
        list(theirs.answers([" ".join(["t1"] * 9)], Search()))
    with torch.no_grad():
        one.texts.model.output.bias[EOS] = -50.0
    write_ct2(one, config, tmp_path, max_positions_of(config), False)
    with pytest.raises(SeqloomError, match="reach 8 tokens of a target, here 9"):
        list(load_ct2(tmp_path, max_positions_of(config), one.texts).answers(["t1"], Search()))


def test_what_differs_is_refused(tmp_path, monkeypatch):
    from seqloom.runs.interop import ctranslate2_export

    one, config = made({})
    monkeypatch.setattr(ctranslate2_export, "sinusoids", lambda end, dim, halves: torch.zeros(end, dim))
    with pytest.raises(SeqloomError, match=r"runs/mine: not exported: at \d × \d+ tokens it would differ") as caught:
        write_ct2(one, config, tmp_path, max_positions_of(config), False)
    assert "\n" not in str(caught.value)


REFUSED = [
    ({"encoder": "gru"}, "encoder.kind=recurrent"),
    (sides(score="dot"), "encoder.score=dot"),
    (sides(norm_kind="batch"), "encoder.norm_kind=batch"),
    ({"decoder.residual": "none"}, "decoder.residual=none"),
    ({"decoder.mixer": "linear"}, "decoder.mixer=linear"),
    ({"decoder.activation": "none"}, "decoder.activation=none"),
    ({"encoder.position": "alibi"}, "encoder.position=alibi"),
    ({"decoder.mixer.key_heads": 1}, "decoder.mixer.key_heads=1"),
    ({"views": "all"}, "views=all"),
]


@pytest.mark.parametrize(("settings", "named"), REFUSED, ids=[named for _, named in REFUSED])
def test_what_it_cannot_hold_is_refused_by_name(settings, named):
    with pytest.raises(SeqloomError, match="runs/mine: CTranslate2 cannot hold") as caught:
        check_supported(config_of({**SMALL, **settings}), "runs/mine")
    assert named in str(caught.value)
    assert "--to onnx" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_trained_run(tmp_path):
    seqloom.train(
        "translate",
        write_pairs(tmp_path / "words.tsv", words(600)),
        output=tmp_path / "run",
        model="transformer",
        size="tiny",
        data={"source_tokens": "chars", "target_tokens": "words"},
        training={"max_steps": 250, "batch_rows": 64, "learning_rate": 5e-3, "warmup": 50},
        settings={**sides(dim=32, hidden=64, heads=2, layers=1), "embedding": 32},
        device="cpu",
        quiet=True,
    )
    ours, theirs = seqloom.load(tmp_path / "run", "cpu"), load_engine(tmp_path / "run", "ct2")
    sources = words(200, seed=9)
    assert len(sources) >= 200
    assert ours.predict(sources) == theirs.predict(sources)
    assert len(set(ours.predict(sources))) > 50
    one, other = (model.predict(sources, Search(beam=4)) for model in (ours, theirs))
    assert one == other
