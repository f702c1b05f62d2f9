"""From tagged sentences to a run and back: train, predict, evaluate, report; killed and resumed; wrong inputs."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

import seqloom
from seqloom.data.batches.tags import Tags
from seqloom.data.formats.conll import LONGEST
from seqloom.decoding.batched import Answer
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError
from seqloom.runs.folder.metrics_log import TIMING_KEYS
from seqloom.tasks.tag.model import TagModel
from tests.tagging import names, sentences, write_tags

QUICK = {"max_steps": 60, "batch_rows": 32, "learning_rate": 1e-2, "warmup": 10, "valid_every": 30}


def train(file, folder, model="lstm-crf", training=None, **more):
    chosen = {"model": model, "size": "tiny", "training": {**QUICK, **(training or {})}, "quiet": True, "device": "cpu"}
    return seqloom.train("tag", file, output=folder, **{**chosen, **more})


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tag")
    for name, made in (("parts", sentences), ("names", names)):
        write_tags(folder / f"{name}.tsv", made(400))
        write_tags(folder / f"{name}-test.tsv", made(60, seed=9))
    return folder


@pytest.fixture(scope="module")
def parts(home):
    return train(home / "parts.tsv", home / "parts", valid="10%").load("cpu")


@pytest.fixture(scope="module")
def spans(home):
    more = {"max_steps": 150, "select": "f1"}
    return train(home / "names.tsv", home / "names", valid="10%", training=more).load("cpu")


def test_a_tagger_learns_and_says_how_sure_it_is(parts):
    assert parts.predict(["the lano ca .", "", "the wotzo wotzas"]) == [
        "DET NOUN VERB PUNCT",
        "",
        "DET NOUN VERB",  # two words that it has never seen
    ]
    [found] = next(parts.answers(["the lano ca ."]))
    assert 0.5 < found.confidence <= 1
    assert found.score == pytest.approx(math.log(found.confidence))
    assert found.log_probability <= 0
    assert len(found.tokens) == 4


def test_the_command_line(parts, home, tmp_path, capsys, monkeypatch):
    from seqloom.cli.main import run

    def said(*words):
        monkeypatch.setattr(sys, "argv", ["seqloom", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            run()
        return left.value.code or 0, capsys.readouterr().out.splitlines()

    (tmp_path / "x.txt").write_text("the lano ca .\n\nthe ca moras\n")
    assert said("predict", home / "parts", tmp_path / "x.txt") == (0, ["DET NOUN VERB PUNCT", "", "DET NOUN VERB"])
    write_tags(tmp_path / "x.conll", [[("the", "DET"), ("lano", "NOUN")], [("the", "DET")]], " ")
    assert said("predict", home / "parts", tmp_path / "x.conll") == (0, ["DET NOUN", "DET"])
    status, told = said("evaluate", home / "parts", home / "parts-test.tsv", "--metrics", "accuracy", "--json")
    assert status == 0
    assert list(json.loads(told[0])["metrics"]) == ["accuracy"]
    status, told = said("data", "check", "tag", home / "names.tsv", home / "names-test.tsv")
    assert status == 0
    assert any("(BIO)" in line for line in told)


def test_answers_are_the_same_in_any_batch(parts):
    texts = [" ".join(word for word, _ in row) for row in sentences(40, seed=5)]
    wanted = [found[0].text for found in parts.answers(texts)]
    for rows in (1, 7, 64):
        assert [found[0].text for found in parts.answers(iter(texts), rows=rows, ahead=2)] == wanted


def test_a_very_long_sentence_is_read_in_parts(parts, monkeypatch):
    words = " ".join(word for row in sentences(5) for word, _ in row)
    whole = parts.predict([words])[0]
    monkeypatch.setattr(parts, "_most", 7)
    cut = parts.predict([words, "the lano ca"])
    assert len(cut[0].split()) == len(whole.split()) == len(words.split())
    assert cut[1] == "DET NOUN VERB"
    agreed = sum(map(str.__eq__, cut[0].split(), whole.split()))
    assert agreed >= 0.9 * len(whole.split())


def test_evaluation(parts, spans, home):
    found = parts.evaluate(home / "parts-test.tsv")
    assert list(found.metrics) == ["accuracy", "sentence_accuracy"]
    assert found.metrics["accuracy"] > 95
    low, high = found.intervals["accuracy"]
    assert low <= found.metrics["accuracy"] <= high
    assert (found.count, len(found.predictions)) == (60, 60)
    named = spans.evaluate([home / "names-test.tsv"], metrics=["f1", "f1_strict"])
    assert named.metrics["f1"] == named.metrics["f1_strict"] > 80  # nothing broken is ever written
    other = home / "other.tsv"
    write_tags(other, [[("the", "DET"), ("x", "NEW")]])
    strange, new = parts.evaluate(other).notes
    assert strange.startswith("1 unknown character on 1 of 1 line")
    assert new == "tags that the model does not know, and so always misses: NEW"


def test_the_record_and_the_report(parts, spans, home):
    record = json.loads((home / "parts" / "evaluation-valid.json").read_text())
    assert record["metrics"].keys() == {"accuracy", "sentence_accuracy"}
    assert record["unknown_words"]["words"] + record["known_words"]["words"] == sum(
        kind["wanted"] for kind in record["kinds"]
    )
    assert {kind["name"] for kind in record["kinds"]} == {"DET", "NOUN", "VERB", "ADJ", "PUNCT"}
    assert len(record["examples"]["random"]) == 10
    page = (home / "parts" / "report.html").read_text()
    assert "Known and unknown words" in page
    assert "accuracy" in page
    assert "Types of spans" in (home / "names" / "report.html").read_text()
    few = parts.evaluation_details(parts.read([str(home / "parts-test.tsv")], parts.reading())[0], most=5)
    assert (few["count"], few["available"]) == (5, 60)
    json.dumps(few, allow_nan=False)


def test_errors_stand_in_their_context(home):
    """The majority takes `ca` for what it mostly is; the record shows the words around it."""
    run = train(home / "parts.tsv", home / "majority", model="majority", valid="10%")
    assert 80 < run.best["scores"]["accuracy"] < 100
    record = json.loads((home / "majority" / "evaluation-valid.json").read_text())
    contexts = [one for one in record["contexts"] if one["word"] == "ca"]
    assert contexts
    assert {one["wanted"] for one in contexts} | {one["written"] for one in contexts} == {"NOUN", "VERB"}
    assert all(len(one["before"]) <= 3 for one in contexts)
    confused = {tuple(pair[:2]) for pair in record["confusion"]["pairs"]}
    assert confused & {("NOUN", "VERB"), ("VERB", "NOUN")}
    assert "Errors in context" in (home / "majority" / "report.html").read_text()
    assert run.load("cpu").predict(["the zzz"])[0] in ("DET DET", "DET NOUN", "DET VERB")  # equally common


def test_fine_tuning_keeps_the_vocabularies(parts, home, tmp_path):
    write_tags(tmp_path / "more.tsv", sentences(40, seed=3))
    run = seqloom.train(
        "tag", tmp_path / "more.tsv", output=tmp_path / "finer", start=home / "parts", valid="10%", quiet=True,
        training={"max_steps": 3}, device="cpu",
    )  # fmt: skip
    for name in ("source", "characters", "tags"):
        assert (tmp_path / "finer" / f"{name}.json").read_bytes() == (home / "parts" / f"{name}.json").read_bytes()
    assert run.best["scores"]["accuracy"] > 90


def command(data, output, steps=40):
    return [
        *(sys.executable, "-c", "from seqloom.cli.main import run; run()", "train", "tag", str(data)),
        *("--model", "lstm-crf", "--size", "tiny", "--output", str(output), "--resume", "--max-steps", str(steps)),
        *("--batch-rows", "32", "--valid", "10%", "--device", "cpu", "--set", "training.log_every=1", "--quiet"),
        *("--set", "training.save_every=4", "--set", "training.valid_every=10"),
    ]


@pytest.mark.slow
def test_killed_and_resumed_is_bit_identical(home, tmp_path):
    """With dropout and with words that become unknown at random."""
    subprocess.run(command(home / "parts.tsv", tmp_path / "undisturbed"), check=True)
    process = subprocess.Popen(command(home / "parts.tsv", tmp_path / "killed"))
    journal = tmp_path / "killed" / "metrics.jsonl"
    while process.poll() is None and (not journal.exists() or journal.read_text().count('"learning_rate"') < 15):
        time.sleep(0.002)
    assert process.poll() is None, "it was done before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.wait()
    subprocess.run(command(home / "parts.tsv", tmp_path / "killed"), check=True)
    one, other = tmp_path / "killed", tmp_path / "undisturbed"
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    for name in ("weights.safetensors", "training.safetensors"):
        a, b = (load_file(folder / "checkpoints" / "step-000000040" / name) for folder in (one, other))
        assert all(torch.equal(a[key], b[key]) for key in a | b)
    told = [
        [{key: value for key, value in json.loads(line).items() if key not in TIMING_KEYS} for line in file.open()]
        for file in (one / "metrics.jsonl", other / "metrics.jsonl")
    ]
    assert told[0] == told[1]


def test_wrong_inputs(parts, home, tmp_path):
    with pytest.raises(SeqloomError, match="are found exactly"):
        next(parts.answers(["a"], Search(beam=2)))
    with pytest.raises(SeqloomError, match="source 1: predict takes a text or list of words, here int"):
        parts.predict([7])
    with pytest.raises(SeqloomError, match="f1 is a score of spans"):
        parts.evaluate(home / "parts-test.tsv", metrics=["f1"])
    with pytest.raises(SeqloomError, match="no such file"):
        parts.evaluate(tmp_path / "none.tsv")
    (tmp_path / "broken.tsv").write_text("the\tDET\nlano\n")
    with pytest.raises(SeqloomError, match=r"broken.tsv:2: no TAB"):
        parts.evaluate(tmp_path / "broken.tsv")
    with pytest.raises(SeqloomError, match=r"broken.tsv:2: no TAB"):
        train(tmp_path / "broken.tsv", tmp_path / "run")
    with pytest.raises(SeqloomError, match="unknown setting of data 'repair_tag'; did you mean 'repair_tags'"):
        train(home / "parts.tsv", tmp_path / "run", data={"repair_tag": True})
    with pytest.raises(SeqloomError, match="unknown model 'lstm-cfr'; did you mean 'lstm-crf'"):
        train(home / "parts.tsv", tmp_path / "run", model="lstm-cfr")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("shard", [(), ("--shard",)])
def test_two_processes_train_what_one_does(shard, home, tmp_path):
    calm = ("--set", "dropout=0", "--set", "unk_rate=0", "--batch-rows", "31")  # an odd batch is shared unevenly
    alone = command(home / "names.tsv", tmp_path / "alone", 20)
    subprocess.run([*alone, *calm], check=True)
    words = command(home / "names.tsv", tmp_path / "two", 20)[3:]
    launch = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "seqloom")
    subprocess.run([*launch, *words, *calm, *shard], check=True)
    one, two = ([json.loads(line) for line in (tmp_path / name / "metrics.jsonl").open()] for name in ("alone", "two"))
    assert [line["step"] for line in one] == [line["step"] for line in two]
    for a, b in zip(one, two, strict=True):
        a, b = (line.get("valid", line) for line in (a, b))
        assert a["loss"] == pytest.approx(b["loss"], abs=1e-5)
        assert a.get("f1") == b.get("f1")


def test_words_that_hold_blanks_stay_one_word(parts, home, tmp_path, capsys, monkeypatch):
    """As many tags as the file has words, and those that an evaluation judges."""
    from seqloom.cli.main import run

    odd = [[("the", "DET"), ("lano moro", "NOUN"), ("mor\u00a0kalas", "VERB"), (".", "PUNCT")], [("the", "DET")]]
    file = write_tags(tmp_path / "odd.conll", odd)
    asked = list(parts.sources(str(file)))
    assert [list(words) for words in asked] == [[word for word, _ in row] for row in odd]
    assert parts.predict(asked) == parts.evaluate(file).predictions
    monkeypatch.setattr(sys, "argv", ["seqloom", "predict", str(home / "parts"), str(file), "--json"])
    with pytest.raises(SystemExit):
        run()
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(one["text"].split()) for one in told] == [4, 1]
    assert told[0]["source"] == told[0]["tokens"] == [word for word, _ in odd[0]]
    assert (told[0]["tags"], told[0]["spans"]) == (told[0]["text"].split(), [])


def test_spans_have_offsets_into_the_line(parts):
    """Also where blanks are many, words come again, and words hold blanks."""
    tags = ["B-PER", "I-PER", "O", "B-PER", "S-LOC"]
    marked = TagModel.__new__(TagModel)
    marked.lexicon, marked.tags = parts.lexicon, Tags(tuple(tags), "bio")
    line = "  Ann  Lee saw\tAnn\u3000Ulm"
    told = marked.answer_json(line, Answer("", (0, 1, 2, 3, 4), 0.0, 0.0, 1.0))
    assert (told["tokens"], told["tags"]) == (["Ann", "Lee", "saw", "Ann", "Ulm"], tags)
    assert [(one["type"], one["text"], one["tokens"]) for one in told["spans"]] == [
        ("PER", "Ann  Lee", [0, 1]),
        ("PER", "Ann", [3, 3]),
        ("LOC", "Ulm", [4, 4]),
    ]
    assert all(line[one["start"] : one["end"]] == one["text"] for one in told["spans"])
    assert [one["start"] for one in told["spans"]] == [2, 15, 19]
    words = marked.answer_json(["New York", "saw"], Answer("", (0, 2), 0.0, 0.0, 1.0))["spans"]
    assert words == [{"type": "PER", "start": 0, "end": 8, "text": "New York", "tokens": [0, 0]}]
    assert marked.answer_json("", Answer("", (), 0.0, 0.0, 1.0)) == {"tokens": [], "tags": [], "spans": []}
    assert parts.answer_json("the lano", Answer("", (0, 0), 0.0, 0.0, 1.0))["spans"] == [], "parts of speech mark none"
    assert parts.spans(["the lano", ""]) == [[], []]


def test_evaluation_reads_long_sentences_in_parts(parts, tmp_path):
    row = [pair for row in sentences(900, seed=4) for pair in row][: LONGEST + 3]
    found = parts.evaluate(write_tags(tmp_path / "long.tsv", [row]))
    assert (found.count, len(found.predictions[0].split())) == (1, LONGEST + 3)
    assert found.metrics["accuracy"] > 90
