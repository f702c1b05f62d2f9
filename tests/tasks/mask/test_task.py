"""The task `mask`: from a file of plain text to filled gaps and scores."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import pytest
import torch

from seqloom.build import build, complete
from seqloom.data.files.columns import ReadOptions
from seqloom.data.prepare.request import PrepareRequest
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError
from seqloom.tasks.mask import presets as mask_presets
from seqloom.tasks.mask.model import MaskModel
from seqloom.tasks.mask.task import TASK, MaskOptions
from seqloom.tasks.shared.predictor import LoadedRun
from seqloom.training.distributed.processes import ALONE
from seqloom.training.loop import Loop
from seqloom.training.settings import Training

CPU = torch.device("cpu")


def trained(ready, options, steps=200, preset=("gru", "tiny")):
    settings = Training.of(
        {"max_steps": steps, "batch_rows": 32, "learning_rate": 5e-3, "warmup": 10, "select": "loss"}
    )
    config = {
        "task": "mask",
        "data": asdict(options),
        "model": complete(TASK.models, {"kind": TASK.kind, **mask_presets.preset(*preset)}),
    }
    torch.manual_seed(1)
    model = build(TASK.models, config["model"], **TASK.sizes(ready.vocabularies()))
    objective = TASK.objective(model, settings, config)
    list(Loop(objective, ready.train, settings, CPU))
    scores = TASK.validator(model, ready, config, CPU)(objective, settings, ALONE)
    return config, model, scores


@pytest.fixture(scope="module")
def filler(plain, tmp_path_factory) -> MaskModel:
    options = MaskOptions(max_length=16)
    ready = TASK.prepare(PrepareRequest([str(plain)], 0.1, options, seed=1))
    config, model, scores = trained(ready, options)
    assert scores["accuracy"] > 50
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]))
    return TASK.runner(LoadedRun(tmp_path_factory.mktemp("mask"), config, model, ready.vocabularies(), CPU))


def test_gaps_are_filled_with_what_may_stand_there(filler):
    first, second = filler.predict(["the cat runs over the <mask>", "we <mask> rice with <mask>"])
    assert first == "the cat runs over the hill"
    assert second == "we eat rice with salt"


def test_alternatives_come_best_first_and_fill_every_gap(filler):
    [answers] = filler.answers(["a <mask> sleeps under the <mask>"], Search(beam=4, n_best=4))
    assert len(answers) == 4
    assert len({answer.text for answer in answers}) == 4
    scores = [answer.score for answer in answers]
    assert scores == sorted(scores, reverse=True)
    assert all(len(answer.tokens) == 2 for answer in answers)
    assert answers[0].confidence == pytest.approx(math.exp(answers[0].log_probability / 2))
    [best] = filler.answers(["a <mask> sleeps under the <mask>"])
    assert [best[0].text] == [answers[0].text]


def test_the_batch_does_not_change_the_answer_and_the_users_text_stays(filler):
    texts = ["zyx  <mask> runs", "", "no gap here", "the <mask>", "the dog runs over the <mask>"]
    together = [answers[0].text for answers in filler.answers(texts, rows=2, ahead=2)]
    assert together == [filler.predict([text])[0] for text in texts]
    assert together[0].startswith("zyx  ")
    assert together[1:3] == ["", "no gap here"]


def test_texts_longer_than_a_piece_are_filled_in_all_their_pieces(filler):
    text = " ".join(["the cat runs over the <mask>"] * 8)
    assert "<mask>" not in filler.predict([text])[0]
    assert len(filler.predict([text])[0].split()) == 48


def test_sampling_is_refused(filler):
    with pytest.raises(SeqloomError, match="leave --sample out"):
        filler.predict(["a <mask>"], Search(sample=True))


@pytest.mark.parametrize("tokens", ["bpe:300", pytest.param("chars", marks=pytest.mark.slow)])
def test_gaps_within_other_tokens(plain, tokens, tmp_path):
    options = MaskOptions(max_length=64, tokens=tokens)
    ready = TASK.prepare(PrepareRequest([str(plain)], 0.1, options, seed=1))
    config, model, _ = trained(ready, options, steps=150, preset=("transformer", "tiny"))
    filler = TASK.runner(LoadedRun(tmp_path, config, model, ready.vocabularies(), CPU))
    gap = "the cat runs over the h<mask>ll" if tokens == "chars" else "the cat runs over the <mask>"
    [filled] = filler.predict([gap])
    assert filled == "the cat runs over the hill"


def test_an_evaluation_hides_the_same_tokens_every_time(filler, plain):
    first, second = filler.evaluate(plain), filler.evaluate([plain])
    assert first == second
    assert first.count == 400
    assert list(first.metrics) == ["accuracy", "perplexity", "loss"]
    low, high = first.intervals["accuracy"]
    assert low < first.metrics["accuracy"] < high
    assert "masked:0.15|hidden:all|seed:7" in first.signature["accuracy"]
    assert len(first.predictions) == 400
    same = [text == line for text, line in zip(first.predictions, plain.read_text().splitlines(), strict=True)]
    assert 0.3 < sum(same) / 400 < 1.0
    assert list(filler.evaluate(plain, metrics=["perplexity"]).metrics) == ["perplexity"]
    with pytest.raises(SeqloomError, match="did you mean 'accuracy'"):
        filler.evaluate(plain, metrics=["acuracy"])


def test_scores_are_of_tokens_not_of_texts(filler):
    short, long = "the cat", "we eat rice with salt " * 6
    both = filler.score([short, long])
    table, _ = filler._measure(filler.clozes([short, long])[0])
    hits, nats, count = table.sum(0)
    assert both.metrics["accuracy"] == pytest.approx(100 * hits / count)
    assert both.metrics["loss"] == pytest.approx(nats / count)


def test_a_record_is_json_and_shows_guesses(filler, plain):
    examples, _ = filler.read([str(plain)], ReadOptions())
    record = filler.evaluation_details(examples, most=20)
    assert json.loads(json.dumps(record)) == record
    assert record["count"] == 20
    assert record["available"] == len(set(plain.read_text().splitlines()))
    shown = record["masks"][0]
    place, guesses = shown["guesses"][0]
    assert 0 <= place < len(shown["tokens"])
    assert len(guesses) == 3
    assert 0 <= guesses[0][1] <= 1


def test_options_are_checked():
    with pytest.raises(SeqloomError, match=r"data\.mask_rate.*above 0 and below 1, here 1\.5"):
        MaskOptions(mask_rate=1.5)
    with pytest.raises(SeqloomError, match="max_length must be a whole number of 1 or more"):
        MaskOptions(max_length=0)
    with pytest.raises(SeqloomError, match="unknown kind of tokens 'word'; did you mean 'words'"):
        MaskOptions(tokens="word")


@pytest.mark.parametrize("model", mask_presets.PRESETS)
@pytest.mark.parametrize("size", ["tiny", "small", "base"])
def test_every_preset_is_built(model, size):
    config = complete(TASK.models, {"kind": "masked", **mask_presets.preset(model, size)})
    with torch.device("meta"):
        assert build(TASK.models, config, source_size=100).encoder.dim
    Training.of(mask_presets.suited(config))
    assert model in mask_presets.ABOUT
