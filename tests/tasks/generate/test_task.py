"""The task generate from files to a run and back: what is learned, said, recorded, and that a kill changes nothing."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time

import pytest
import torch

import seqloom
from seqloom.cli.main import run as main
from seqloom.data.files.columns import ReadOptions
from seqloom.data.tokenizers.tokenizers import BOS, EOS
from seqloom.decoding.generation import GenerationOptions
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError
from seqloom.reporting.html.page import page as whole_page
from seqloom.reporting.sections.language import sections
from seqloom.tasks.generate.task import TASK
from seqloom.tasks.shared.embeddings import Embedder
from tests.processes import finish, start
from tests.reporting.html_pages import Page, safe
from tests.tasks.conftest import sentences

NAMES = {"Dutch": ("van", "jan", "sen", "dijk"), "Welsh": ("gwyn", "llo", "eth", "ydd")}


def train(data, output, model="lstm", valid="10%", options=None, settings=None, **training):
    more = {"max_steps": 60, "batch_rows": 16, "learning_rate": 1e-2, "warmup": 10, **training}
    return seqloom.train(
        "generate",
        data,
        output=output,
        model=model,
        size="tiny",
        valid=valid,
        data={"length": 32, **(options or {})},
        training=more,
        settings=settings or {},
        quiet=True,
        device="cpu",
    )


@pytest.fixture(scope="module")
def chars(plain, tmp_path_factory):
    """A small LSTM over running text."""
    return train(plain, tmp_path_factory.mktemp("generate") / "chars", max_steps=150).folder


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """Names that begin otherwise in each language."""
    folder = tmp_path_factory.mktemp("labelled")
    rows = [
        f"{language}\t{a}{b}{c}"
        for language, parts in NAMES.items()
        for a in parts
        for b in parts
        for c in (*parts, "")
    ]
    (folder / "names.tsv").write_text("\n".join(rows) + "\n")
    return train(folder / "names.tsv", folder / "run", "gru", options={"condition": True}, max_steps=200).folder


@pytest.mark.parametrize("model", ["ngram", "rnn", "gru", "lstm", "awd-lstm", "transformer"])
def test_every_preset_learns_something(model, plain, tmp_path):
    settings = {} if model == "ngram" else {"dropout": 0.0}
    run = train(plain, tmp_path / "run", model, options={"tokens": "words"}, settings=settings)
    loaded = run.load("cpu")
    scores = loaded.evaluate(plain).metrics
    assert run.best["scores"]["perplexity"] < (20 if model == "awd-lstm" else 8)  # of 31 tokens
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]))
    text = "".join(loaded.generate("the cat", Search(), GenerationOptions(length=20)))
    assert set(text.split()) <= set(plain.read_text().split())


def test_what_is_written_looks_like_the_text(chars):
    model = seqloom.load(chars, "cpu")
    words = {word for line in sentences(400) for word in line.split()}
    text = "".join(model.generate("the ", Search(sample=True, temperature=0.5), GenerationOptions(length=200)))
    known = [word in words for word in text.split()[1:-1]]
    assert sum(known) / len(known) > 0.7
    assert text == "".join(model.generate("the ", Search(sample=True, temperature=0.5), GenerationOptions(length=200)))
    assert model.predict(["the cat ", "a "]) == [
        "".join(model.generate(prompt, Search(), GenerationOptions(length=200))) for prompt in ("the cat ", "a ")
    ]
    search = Search(sample=True, n_best=3)
    several = next(iter(model.answers(["the "], search)))
    assert len({answer.text for answer in several}) == 3
    length = GenerationOptions(length=model.config["decoding"]["longest"])
    assert [answer.text for answer in several] == [
        "".join(model.generate("the ", Search(sample=True), length, number)) for number in range(3)
    ]


def test_what_is_sampled_does_not_depend_on_the_batch(chars):
    model, prompts = seqloom.load(chars, "cpu"), ["the ", "", "a cat and the ", "d"] * 6
    model.config["decoding"]["longest"] = 12
    search = Search(sample=True, n_best=2)
    said = [[[one.text for one in found] for found in model.answers(prompts, search, rows)] for rows in (64, 7, 1)]
    assert said[0] == said[1] == said[2]
    assert len({text for several in said[0] for text in several}) > 30


def test_the_held_out_text_is_the_last_and_the_record_says_how_it_was_scored(chars):
    record = json.loads((chars / "evaluation-valid.json").read_text())
    text = "".join(f"{line}\n" for line in sentences(400))
    assert record["count"] == len(text) - int(0.9 * len(text)) - 1
    assert record["signature"]["perplexity"] == "tokens:chars|state carried over the whole text|first token given"
    low, high = record["intervals"]["loss"]
    assert low < record["metrics"]["loss"] < high
    assert record["metrics"]["bits_per_character"] == pytest.approx(record["metrics"]["loss"] / math.log(2), rel=1e-6)
    assert record["places"]["along"] == "text"
    assert sum(one["count"] for one in record["places"]["parts"]) == record["count"]
    assert {one["temperature"] for one in record["samples"]} == {0.0, 0.7, 1.0}
    assert "the last of the text" in (chars / "data.json").read_text()


def test_the_report_shows_samples(chars):
    page = Page((chars / "report.html").read_text(encoding="utf-8"))
    safe(page)
    for title in ("Generated text", "Along the text", "temperature 0.7"):
        assert title in page.text
    nasty = {"samples": [{"prompt": "<script>", "label": "&", "temperature": 0.0, "text": "</pre>\n<b>"}]}
    page = Page(whole_page("A record", *sections(nasty)))
    safe(page)
    assert "<b>" in page.text
    assert not any(sections({}))


def test_labels_decide_what_is_written_and_new_lines_are_counted(labelled):
    model = seqloom.load(labelled, "cpu")
    for label, parts in NAMES.items():
        course = GenerationOptions(length=20, label=label)
        names = ["".join(model.generate("", Search(sample=True), course, number)) for number in range(20)]
        assert sum(name.startswith(parts) for name in names) > 14
    record = json.loads((labelled / "evaluation-valid.json").read_text())
    assert 0 < record["novelty"]["new"] < record["novelty"]["sampled"]
    assert record["places"]["along"] == "line"
    assert {one["label"] for one in record["samples"]} == set(NAMES)
    with pytest.raises(SeqloomError, match="writes for a label; choose from: Dutch, Welsh"):
        list(model.generate(""))
    with pytest.raises(SeqloomError, match="unknown label 'Walsh'; did you mean 'Welsh'"):
        model.predict(["Walsh\ta"])


def test_prompts_of_a_file_have_their_labels(labelled, tmp_path):
    model = seqloom.load(labelled, "cpu")

    def asked(name, text, reading=None):
        (tmp_path / name).write_text(text)
        return list(model.sources(str(tmp_path / name), reading))

    wanted = ["Welsh\tLl", "Dutch", "Dutch\tvan"]
    assert asked("a.tsv", "Welsh\tLl\nDutch\nDutch\tvan\n", model.reading()) == wanted
    assert asked("a.txt", "Dutch\nWelsh\tLl\n") == ["Dutch", "Welsh\tLl"]  # the first line has no TAB
    assert asked("a.jsonl", '{"source": "Welsh", "target": "Ll"}\n{"source": "Dutch"}\n') == wanted[:2]
    other = model.reading("language,name")
    assert asked("a.csv", 'id,name,language\n1,Ll,Welsh\n2,"van",Dutch\n', other) == [wanted[0], wanted[2]]
    for text, told in (
        ("Welsh\tLl\nWalsh\tLl\n", "a.tsv:2: unknown label 'Walsh'; did you mean 'Welsh'"),
        ("Welsh\tLl\n\nDutch\n", "a.tsv:2: unknown label ''. Choose from: Dutch, Welsh"),
        ("Welsh\tLl\tan\n", "a.tsv:1: 3 columns where label and prompt are expected"),
    ):
        with pytest.raises(SeqloomError, match=told):
            asked("a.tsv", text)


def test_a_file_of_prompts_is_answered_by_label(labelled, tmp_path, capsys, monkeypatch):
    file = tmp_path / "prompts.tsv"
    file.write_text("".join(f"{label}\t{parts[0]}\n{label}\n" for label, parts in NAMES.items()))
    monkeypatch.setattr("sys.argv", ["seqloom", "predict", str(labelled), str(file), "--device", "cpu"])
    with pytest.raises(SystemExit):
        main()
    found = capsys.readouterr().out.splitlines()
    prompts = [f"{label}\t{prompt}" for label, parts in NAMES.items() for prompt in (parts[0], "")]
    assert found == seqloom.load(labelled, "cpu").predict(prompts)
    assert found[0] != found[1]
    file.write_text("Dutch\tvan\nGreek\n")
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err == f"seqloom: {file}:2: unknown label 'Greek'. Choose from: Dutch, Welsh\n"


def test_evaluation_reads_other_files_and_columns(labelled, tmp_path):
    model = seqloom.load(labelled, "cpu")
    turned = tmp_path / "turned.csv"
    turned.write_text("name,language\nvanjan,Dutch\ngwynllo,Welsh\n")
    first = model.evaluate(turned, reading=ReadOptions(columns="language,name"))
    plain = tmp_path / "plain.tsv"
    plain.write_text("Dutch\tvanjan\nWelsh\tgwynllo\n")
    assert model.evaluate(plain).metrics == pytest.approx(first.metrics)
    assert "sampled lines" in first.notes[-1]
    assert list(model.evaluate(plain, metrics=["loss"]).metrics) == ["loss"]
    with pytest.raises(SeqloomError, match="unknown metric of generate 'bleu'"):
        model.evaluate(plain, metrics=["bleu"])


@pytest.mark.parametrize("model", ["lstm", pytest.param("transformer", marks=pytest.mark.slow)])
def test_killed_and_resumed_it_ends_the_same(model, plain, tmp_path):
    command = ["train", "generate", str(plain), "--model", model, "--size", "tiny"]
    command += ["--max-steps", "40", "--batch-rows", "8", "--device", "cpu", "--quiet", "--set", "data.length=16"]
    command += ["--set", "training.save_every=5", "--set", "training.valid_every=20"]
    finish([*command, "--output", str(tmp_path / "whole")])
    process = start([*command, "--output", str(tmp_path / "killed")])
    while not list((tmp_path / "killed").glob("checkpoints/step-*")) and process.is_alive():
        time.sleep(0.02)
    process.kill()
    process.join()
    again = [sys.executable, "-m", "seqloom", *command, "--output", str(tmp_path / "killed"), "--resume"]
    subprocess.run(again, check=True)  # in an interpreter of its own, which hashes otherwise
    whole, killed = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed"))
    assert whole == killed


def test_a_model_of_another_run_is_gone_on_from(chars, plain, tmp_path):
    run = seqloom.train("generate", plain, output=tmp_path / "more", start=chars, training={"max_steps": 5}, quiet=True)
    assert run.load("cpu").evaluate(plain).metrics["loss"] < 1.5


def test_what_the_model_writes_along_the_way(chars, plain):
    author = seqloom.load(chars, "cpu")
    assert len(TASK.training_sample(author)) == 100
    assert TASK.training_sample(author) == TASK.training_sample(author)


def test_a_transformer_goes_on_and_on(plain, tmp_path):
    run = train(plain, tmp_path / "run", "transformer", options={"batches": "blocks"}, max_steps=3)
    assert run.config["decoding"]["room"] == 32
    text = "".join(run.load("cpu").generate("the cat " * 30, Search(sample=True), GenerationOptions(length=150)))
    assert len(text) == 150
    record = json.loads((run.folder / "evaluation-valid.json").read_text())
    assert record["signature"]["loss"] == "tokens:chars|blocks of 32|first token given"
    assert record["places"]["along"] == "block"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": "letters"}, "unknown kind of tokens"),
        ({"lenght": 3}, "unknown setting of data 'lenght'; did you mean 'length'"),
        ({"batches": "line"}, "did you mean 'lines'"),
    ],
)
def test_wrong_settings_are_one_line(options, message, plain, tmp_path):
    with pytest.raises(SeqloomError, match=message):
        train(plain, tmp_path / "run", options=options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("tokens", ["bytes", "bpe:280"])
def test_an_adaptive_softmax_needs_tokens_in_the_order_of_their_frequency(tokens, plain, tmp_path):
    with pytest.raises(SeqloomError, match=f"from the most frequent to the rarest; {tokens} are not"):
        train(
            plain,
            tmp_path / "run",
            options={"tokens": tokens},
            settings={"output": "adaptive", "tie_embeddings": False},
        )
    assert not (tmp_path / "run").exists()
    train(plain, tmp_path / "run", settings={"output": "adaptive", "tie_embeddings": False}, max_steps=2)


@pytest.mark.parametrize(
    ("options", "before", "after"),
    [
        ({}, [], []),
        ({"tokens": "words"}, [], [EOS]),
        ({"batches": "lines"}, [BOS], [EOS]),
    ],
)
def test_a_text_is_embedded_as_training_had_it(options, before, after, plain, tmp_path):
    author = train(plain, tmp_path / "run", "gru", options=options, max_steps=2).load("cpu")
    codec = author.texts.codec
    embedder = Embedder.of(author, codec)
    rows = torch.tensor([[*before, *codec.encode("the cat"), *after]])
    with torch.inference_mode():
        states = author.model.encoder(author.model.source(rows))[0]
    assert torch.allclose(torch.from_numpy(embedder.matrix(["the cat"])[0]), states[0].mean(0), atol=1e-6)
    assert torch.from_numpy(embedder.matrix(["", "a"])).isfinite().all()


def test_no_validation_at_all(plain, tmp_path):
    run = train(plain, tmp_path / "run", valid=0.0, max_steps=2)
    assert run.best is None
    assert torch.isfinite(next(iter(run.load("cpu").model.parameters()))).all()
