"""The page of one run: what it says, that nothing in it runs, and that what is missing is not missed."""

from __future__ import annotations

import re

import pytest

from seqloom.reporting.html.page import POLICY
from seqloom.reporting.pages.comparison import compare
from seqloom.reporting.pages.run_page import report
from seqloom.reporting.run_facts import Facts
from seqloom.reporting.sections import evaluation as evaluated
from tests.reporting.html_pages import Page, safe
from tests.reporting.runs import CONFIG, DATA, HISTORY, HOSTILE, bare, example, hostile, imported, record, whole


def test_a_whole_report():
    page = Page(report(whole()))
    safe(page)
    assert page.source.startswith("<!doctype html>")
    assert ("html", "lang", "en") in page.attributes
    assert ("meta", "content", POLICY) in page.attributes
    assert ("meta", "charset", "utf-8") in page.attributes
    for part in (
        "A GRU-attention tiny model with 248,875 parameters",
        "trained on 1,228 pairs of words.tsv for 30 updates (1 min 15 s of training)",
        "On 200 sources of the validation data its token error rate is 12.50 % (95 % interval 11.50 … 13.50).",
        "per|refs:closest",
        "3 broken lines of the data left out.",
        "words.tsv:1301: no TAB: expected source TAB target",
        "1 update skipped because the loss or gradient was not finite: step 12.",
        "200 distinct sources of 700, chosen by a hash, greedy; 400 per second on cpu.",
        "seqloom train translate /home/me/words.tsv",
        "other references: another",
        "held out 72 of 1,300 pairs",
    ):
        assert part in page.text, part
    assert page.text.index("broken lines of the data") < page.text.index("signature")  # where nobody can miss it
    assert len(page.pictures()) == 8  # five curves, lengths, attention, confusion


def test_lengths_and_commonest_tokens_are_those_of_the_data():
    text = Page(report(whole())).text
    for part in (
        "training words.tsv 1,228 1,228 validation 5% 72 72",
        "tokens of the training data kind tokens mean median 95 % ≤ longest vocabulary",
        "source chars 6,698 5.5 5 8 8 10 target words 6,113 5.0 5 8 8 11",
        "Commonest source tokens d 749 e 723",
        "Commonest target tokens D 694 EH 657",
    ):
        assert part in text, part


def test_a_training_shorter_than_its_log_says_why_it_has_no_curve():
    training = {**CONFIG["training"], "log_every": 50}
    short = [{**line, "step": 4} for line in HISTORY if "valid" in line and "step" in line]
    one = whole(config={**CONFIG, "training": training}, history=short)
    page = Page(report(one))
    safe(page)
    why = "it is logged every 50 updates (training.log_every), and there were 4."
    assert f"Learning No training loss: {why}" in page.text
    assert f"No training loss of words : {why}" in Page(compare([one, whole("other")])).text
    counted = [{**line, "step": 0} for line in short]  # at one look, without an update
    for other in (whole(), whole(history=short), whole(config=one.config, history=counted), whole(config=one.config)):
        assert "No training loss" not in Page(report(other)).text


def test_an_imported_run_was_not_trained_here():
    text = Page(report(imported())).text
    assert "A marian model with 248,875 parameters for the task translate, imported from opus-mt . It was not" in text
    assert "seqloom import hf /home/me/opus-mt" in text
    for false in (
        "Training report",
        "trained on",
        "held out",
        "training /home/me",
        "the same data, seed",
        "It started from",
    ):
        assert false not in text, false


def test_a_run_that_started_from_another_says_so():
    inputs = {"train": ["words.tsv"], "valid": "5%", "from": "/home/me/runs/first"}
    text = Page(report(whole(config={**CONFIG, "inputs": inputs}))).text
    assert "of training). It started from the run first . On 200 sources" in text
    text = Page(report(imported(train=["words.tsv"], **{"from": "runs/opus"}))).text  # it keeps the other's preset
    assert "A marian model with 248,875 parameters for the task translate, trained on words.tsv . It" in text
    assert "started from the run opus . Nothing was held out" in text


@pytest.mark.parametrize(("later", "kept"), [([], 3), ([{"step": 40, "valid": {"per": 9.0}, "best": True}], None)])
def test_an_average_is_told_only_where_it_was_kept(later, kept):
    history = [*HISTORY[:-1], {"average": 3, "valid": {"per": 39.0}, "best": True}, *later]
    facts = whole(history=history)
    assert facts.averaged == kept
    text = Page(report(facts)).text
    assert ("the mean of the last 3 checkpoints" in text) == (kept == 3)
    assert ("ring: the model kept" in text) == (kept is None)  # of a mean there is no place in the curve


def test_an_average_that_was_not_kept_and_a_running_mean_are_told():
    text = Page(report(whole())).text
    assert "The mean of the last 3 checkpoints was not kept: on validation data the best single checkpoint is" in text
    assert "ring: the model kept" in text
    config = {**CONFIG, "training": {**CONFIG["training"], "ema": 0.999}}
    text = Page(report(whole(config=config, history=HISTORY[:-1]))).text
    assert "an exponential moving average of the weights, with a decay of 0.999" in text
    assert "mean of the" not in Page(report(whole(history=HISTORY[:-1]))).text


def test_unlike_tokens_are_marked_and_only_they():
    page = report(whole())
    assert '<span class="pair unlike"><bdi>AA</bdi><bdi>B</bdi></span>' in page
    assert '<span class="pair"><bdi>A</bdi></span>' in page  # of an example that is all right


def test_tags_stand_under_their_words_and_wrong_ones_are_marked():
    one = {**example("a dog", ["DET", "NOUN"], ["DET", "VERB"]), "words": ["a", "dog"]}
    shown = evaluated.example(one)
    assert '<span class="pair tag"><bdi>a</bdi><bdi>DET</bdi></span>' in shown
    assert '<span class="pair tag unlike"><bdi>dog</bdi><bdi>NOUN</bdi><bdi>VERB</bdi></span>' in shown
    assert "1 of 2 tags wrong" in shown
    assert "a dog" not in shown  # the words are the sentence
    right = evaluated.example({**example("a", ["DET"], ["DET"]), "words": ["a"]})
    assert "<span>word</span><span>tag</span>" in right
    assert "correct" in right


def test_a_label_is_guessed_right_or_wrong():
    one = {"source": "Ivanov", "references": ["Russian"], "prediction": "Irish", "confidence": 0.7}
    text = Page(evaluated.example({**one, "wrong": 1})).text
    assert text == "Ivanov wrong , confidence 0.70 predicted Irish ; reference Russian"
    assert Page(evaluated.example({**one, "wrong": 0})).text == "Ivanov correct , confidence 0.70 predicted Russian"
    number = {**one, "references": ["3"], "prediction": "3.5", "off": 0.5}
    assert Page(evaluated.example(number)).text == "Ivanov off by 0.5 predicted 3.5 ; reference 3"


def language_model(history: list[dict]) -> Facts:
    config = {**CONFIG, "task": "generate", "training": {"select": "loss"}}
    found = {"metrics": {"loss": 1.4943, "perplexity": 4.4561}, "intervals": {"loss": [1.49, 1.5]}, "count": 1}
    return whole(config=config, history=history, records={"valid": {**found, "unit": "tokens"}})


def test_a_loss_has_three_digits_and_one_curve():
    page = Page(report(language_model(HISTORY)))
    assert ("b", "1.494") in page.inside
    assert "On 1 token of the validation data its loss is 1.494 (95 % interval 1.490 … 1.500)." in page.text
    assert "4.46" in page.text
    assert "of numbers" not in page.text
    assert "Validation score" not in page.text
    assert "ring: the model kept" in page.text


@pytest.mark.parametrize(
    ("task", "counted"),
    [
        ("classify", "texts whose label is correct; where there are several, all of them"),
        ("table", "rows whose class is correct"),
        ("tag", "words whose tag is correct"),
        ("mask", "masked tokens that were predicted correctly"),
    ],
)
def test_accuracy_says_of_what(task, counted):
    found = {"metrics": {"accuracy": 90.0}, "count": 10}
    text = Page(report(whole(config={**CONFIG, "task": task}, records={"valid": found}))).text
    assert f"accuracy {counted} 90.00 %" in text


def test_a_short_run_names_only_what_is_drawn():
    shown = report(whole(history=[line for line in HISTORY if "valid" in line]))
    assert next(text for _, text in Page(shown).inside if text in ("training", "validation")) == "validation"
    assert "Gradient norm" not in shown
    lone = [HISTORY[0], *(line for line in HISTORY if "valid" in line)]
    text = Page(report(whole(history=lone))).text
    assert "Loss training validation" in text
    assert "Speed" not in text  # a chart of one dot
    assert "Learning rate" in Page(report(whole())).text


def test_one_of_a_kind_is_no_plural():
    data = {**DATA, "train": {"pairs": 1}, "skipped": {"count": 1}}
    found = {**record(["A"]), "count": 1}
    found["confusion"] = {**found["confusion"], "table": [[0, 1], [1, 0]]}
    history = [{"step": 1, "valid": {"per": 1.0}}]
    text = Page(report(whole(data=data, records={"valid": found}, history=history))).text
    for part in (
        "trained on 1 pair of words.tsv for 1 update.",
        "On 1 source of the validation data its",
        "1 broken line of the data left out",
        "Validation data: 1 distinct source of 700",
        "darkest: 1 time ",
    ):
        assert part in text, part


@pytest.mark.parametrize("facts", [bare(), whole(records={}), whole(data={}), whole(history=[]), whole(environment={})])
def test_what_is_missing_is_not_shown(facts):
    page = Page(report(facts))
    safe(page)
    page.pictures()
    assert "None" not in page.text
    assert "nan" not in page.text.replace("finance", "")


def test_without_held_out_data_it_says_so():
    steps = [line for line in HISTORY if "loss" in line]
    text = Page(report(whole(records={}, history=steps))).text
    assert "Nothing was held out, so there is no score" in text


def test_a_run_without_a_record_shows_what_training_measured():
    text = Page(report(whole(records={}))).text
    assert "On the validation data its token error rate is 40.00 %." in text
    assert "no evaluation record" in text


def test_the_test_stands_above_the_validation():
    page = Page(report(whole(records={"valid": record(["A", "B"], 5.0), "test": record(["A", "B"], 9.0)})))
    assert "On 200 sources of the test data its token error rate is 9.00 %" in page.text
    page = Page(report(whole(records={"test": record(["A", "B"], 9.0), "valid": record(["A", "B"], 5.0)})))
    assert page.ids.index("scores-on-test-data") < page.ids.index("scores-on-validation-data")


@pytest.mark.parametrize(
    ("name", "spoken"),
    [
        ("lstm", "An LSTM"),
        ("lstm-attention", "An LSTM-attention"),
        ("mlp", "An MLP"),
        ("ngram", "An ngram"),
        ("rnn", "An RNN"),
        ("attentive-rnn", "An attentive-RNN"),
        ("LSTM", "An LSTM"),
        ("gru", "A GRU"),
        ("majority", "A majority"),
        ("linear", "A linear"),
        ("mingru", "A minGRU"),
        ("transformer-crf", "A Transformer-CRF"),
    ],
)
def test_a_model_is_named_as_it_is_written_and_spoken(name, spoken):
    text = Page(report(whole(config={**CONFIG, "preset": {"model": name, "size": "tiny"}}))).text
    assert f"{spoken} tiny model with" in text


def test_the_name_of_a_file_stays_as_it_is():
    text = Page(report(whole(config={**CONFIG, "preset": {"model": "my/lstm.yaml", "size": "small"}}))).text
    assert "my/lstm.yaml model with" in text


def test_the_worst_are_open_too():
    shown = report(whole(records={"valid": record(["A", "B"], 5.0)}))
    opened = re.findall(r"<details( open)?[^>]*><summary>(Some at random|The worst|The best)", shown)
    assert {title for mark, title in opened if mark} == {title for _, title in opened} - {"The best"}


def test_columns_of_which_nothing_is_known_are_left_out():
    text = Page(report(whole(data={}))).text
    assert "distinct sources –" not in text
    assert "median" not in text
    assert "vocabulary" in text


def test_no_text_of_a_stranger_becomes_markup():
    page = Page(report(hostile()))
    safe(page)
    assert page.pictures()
    for text in HOSTILE[:4]:
        assert text in " ".join(page.texts), text
    assert "nul␀esc␛" in page.text
    assert all(value == "en" for tag, name, value in page.attributes if name == "lang")
    # What runs from right to left stands in an element of its own.
    turned = {tag for tag, text in page.inside if "‮" in text}
    assert turned <= {"bdi", "text", "title"}
