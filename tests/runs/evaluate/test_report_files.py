"""Reports of real runs: what training leaves behind, and that nothing else is needed to write it again."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from itertools import pairwise

import pytest
import yaml

import seqloom
from seqloom.cli.main import run as main
from seqloom.data.formats.pairs import Example
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.decoding.batched import Answer
from seqloom.metrics.text.text_metrics import score
from seqloom.runs import config as configs
from seqloom.runs.evaluate.report_files import command, run_facts, write_report, write_run_report
from seqloom.runs.train.job import Job
from seqloom.runs.train.resolve import resolve
from seqloom.tasks.translate.evaluation import ScoredExample, by_length, chosen, confusion, evaluation_details
from seqloom.training.distributed.processes import ALONE
from tests.conftest import pronounce, words
from tests.reporting.html_pages import Page, safe
from tests.reporting.runs import DATA

TEXT = {"source_tokens": "chars", "target_tokens": "words"}


@pytest.fixture(scope="module")
def found(run):
    examples = [Example(word, (pronounce(word),), "", 0) for word in words(120, seed=4, longest=12)]
    examples.append(Example(examples[0].source, ("AH AH AH AH",), "", 0))  # a further reference of the first
    return evaluation_details(seqloom.load(run), examples, most=100)


def test_a_record_is_json_and_complete(found):
    again = json.loads(json.dumps(found, allow_nan=False))
    assert again["count"] == 100
    assert again["available"] == 120
    assert again["metrics"].keys() >= {"per", "exact_match", "bleu", "perplexity"}
    low, high = again["intervals"]["per"]
    assert low <= again["metrics"]["per"] <= high
    assert again["search"]["beam"] == 1
    assert again["parameters"] > 1000
    assert len(again["fingerprint"]) == 64
    assert again["per_second"] > 0


def test_what_a_record_counts_agrees_with_its_scores(found):
    """The error rate, from the confusion and from the lengths, is the one of the metric."""
    counts = found["confusion"]
    edits = counts["substituted"] + counts["inserted"] + counts["deleted"]
    wanted = counts["right"] + counts["substituted"] + counts["deleted"]
    assert 100 * edits / wanted == pytest.approx(found["metrics"]["per"])
    assert sum(one["count"] for one in found["lengths"]) == 100
    spans = [(one["shortest"], one["longest"]) for one in found["lengths"]]
    assert all(a <= b for a, b in spans)
    assert all(before[1] < after[0] for before, after in pairwise(spans))
    assert len(spans) >= 4


def test_examples_are_best_worst_and_at_random(found):
    best, worst, drawn = (found["examples"][kind] for kind in ("best", "worst", "random"))
    assert all(one["edits"] == 0 for one in best)
    assert len(best) == len(drawn) == 10
    rates = [one["edits"] / sum(pair[0] is not None for pair in one["pairs"]) for one in worst]
    assert rates == sorted(rates, reverse=True)
    assert min(rates) > 0
    for one in (*best, *worst, *drawn):
        assert one["edits"] == sum(wanted != written for wanted, written in one["pairs"])
        assert " ".join(t for t, _ in one["pairs"] if t is not None) == one["references"][0]
        assert " ".join(t for _, t in one["pairs"] if t is not None) == one["prediction"]
        assert 0 < one["confidence"] <= 1


def test_the_attention_picture_is_of_a_right_example(found):
    seen = found["attention"]
    assert len(seen["weights"]) == len(seen["target"])
    assert all(len(row) == len(seen["source"]) for row in seen["weights"])
    assert all(abs(sum(row) - 1) < 0.02 for row in seen["weights"])
    assert " ".join(seen["target"][:-1]) == pronounce("".join(seen["source"][:-1]))


def test_the_same_sources_are_asked_whatever_their_order(run):
    examples = [Example(word, (pronounce(word),), "", 0) for word in words(60, seed=4)]
    model = seqloom.load(run)
    one, two = (evaluation_details(model, order, most=20) for order in (examples, examples[::-1]))
    assert one["fingerprint"] == two["fingerprint"]
    assert [e["source"] for e in one["examples"]["random"]] == [e["source"] for e in two["examples"]["random"]]
    with pytest.raises(seqloom.SeqloomError, match="no examples"):
        evaluation_details(model, [])


def test_pieces_of_a_record_bear_emptiness():
    assert by_length([]) == []
    assert chosen([]) == {"best": [], "worst": [], "random": []}
    assert confusion([])["pairs"] == []


def test_confidence_is_the_answers_own():
    """One that was cut off at its limit has no <eos> to count: only its search knows."""
    one, two = (ScoredExample("a", ["B"], Answer("C", (5,), 0.0, -1.0, sure), 1, [("B", "C")]) for sure in (0.25, 0.5))
    assert [shown["confidence"] for shown in chosen([one, two])["worst"]] == [0.5, 0.25]


def test_training_leaves_a_report_and_a_card(run):
    page = Page((run / "report.html").read_text(encoding="utf-8"))
    safe(page)
    assert "GRU-attention tiny" in page.text
    assert "Attention map" in page.text
    assert len(page.pictures()) == 8
    matter = yaml.safe_load((run / "README.md").read_text(encoding="utf-8").split("---\n")[1])
    held = json.loads((run / "evaluation-valid.json").read_text(encoding="utf-8"))
    result = matter["model-index"][0]["results"][0]["metrics"]
    assert {one["type"]: one["value"] for one in result}["per"] == pytest.approx(held["metrics"]["per"], abs=1e-3)
    last = [line for line in run_facts(run).history if line.get("best")][-1]["valid"]
    assert held["metrics"]["per"] == pytest.approx(last["per"])  # of the model that was kept
    known = json.loads((run / "data.json").read_text(encoding="utf-8"))
    assert "median" in page.text
    for side in ("source", "target"):
        token, count = known["vocabulary"][side]["commonest"][0]
        assert f"Commonest {side} tokens {token} {count}" in page.text


def test_the_folder_alone_is_enough_and_old_ones_too(run, tmp_path):
    before = (run / "report.html").read_text(encoding="utf-8")
    assert write_run_report(run).read_text(encoding="utf-8") == before
    copy = shutil.copytree(run, tmp_path / "copy")
    for name in ("env.json", "evaluation-valid.json", "metrics.jsonl", "model.safetensors", "source.json"):
        (copy / name).unlink()
        safe(Page(write_run_report(copy).read_text(encoding="utf-8")))


def test_data_json_is_shown(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    (copy / "data.json").write_text(json.dumps(DATA))
    text = Page(write_run_report(copy).read_text(encoding="utf-8")).text
    assert "3 broken lines of the data left out." in text
    assert "trained on 1,228 pairs" in text


def test_a_test_record_stands_first(run, tmp_path, found):
    copy = shutil.copytree(run, tmp_path / "copy")
    (copy / "evaluation-test.json").write_text(json.dumps(found))
    text = Page(write_run_report(copy).read_text(encoding="utf-8")).text
    assert "On 100 sources of the test data" in text
    assert text.index("Test data:") < text.index("Validation data:")


def test_a_test_of_the_model_before_does_not_outlive_it(pairs, tmp_path, found):
    train(pairs, tmp_path / "run", quiet=True)
    (tmp_path / "run" / "evaluation-test.json").write_text(json.dumps(found))
    more = {"max_steps": 6}
    seqloom.train("translate", pairs, output=tmp_path / "run", training=more, resume=True, quiet=True)
    assert not (tmp_path / "run" / "evaluation-test.json").exists()
    assert "the test data" not in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_a_readme_of_ones_own_stays(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    (copy / "README.md").write_text("mine")
    write_run_report(copy)
    assert (copy / "README.md").read_text() == "mine"


def train(data, output, **keywords):
    settings = {"max_steps": 4, "batch_rows": 32}
    return seqloom.train("translate", data, output=output, size="tiny", data=TEXT, training=settings, **keywords)


def test_without_validation_data_the_report_says_so(pairs, tmp_path):
    train(pairs, tmp_path / "run", valid=0.0, quiet=True)
    assert "Nothing was held out" in Page((tmp_path / "run" / "report.html").read_text(encoding="utf-8")).text
    assert not (tmp_path / "run" / "evaluation-valid.json").exists()


def test_a_model_without_attention_has_no_picture(pairs, tmp_path):
    train(pairs, tmp_path / "run", model="gru", quiet=True)
    assert json.loads((tmp_path / "run" / "evaluation-valid.json").read_text())["attention"] is None
    assert "Attention map" not in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("quiet", [True, False])
def test_a_failed_report_loses_no_run(pairs, tmp_path, monkeypatch, capsys, quiet):
    def fail(*_):
        raise ValueError("no\nreport today")

    monkeypatch.setattr("seqloom.runs.evaluate.report_files.report", fail)
    run = train(pairs, tmp_path / "run", quiet=quiet)
    assert run.load().predict(["abc"])
    told = capsys.readouterr().err.splitlines()
    assert [line for line in told if line.startswith("seqloom: warning:")] == [
        f"seqloom: warning: {tmp_path / 'run'}: the run is done, but not its report: "
        f"{tmp_path / 'run'}: its content is not as expected: ValueError: no"
    ]
    assert quiet == (len(told) == 1)


def test_the_last_line_says_where_the_report_is(pairs, tmp_path, capsys):
    train(pairs, tmp_path / "run")
    assert (
        capsys.readouterr().err.splitlines()[-1]
        == f"done: {tmp_path / 'run'}; its report: {tmp_path / 'run/report.html'}"
    )
    train(pairs, tmp_path / "quiet", quiet=True)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("gru-attention", {"decoder.score": "scaled", "training.clip": 0.5, "training.seed": 3, "dropout": 0.25}),
        ("lstm", {"training.time": 60.0, "training.epochs": 2, "data.max_length": 30, "training.valid_every": 3}),
        (
            "transformer",
            {"encoder": "gru", "training.batch_tokens": 500, "training.optimizer": "sgd", "data.lowercase": "casefold"},
        ),
    ],
)
def test_the_command_repeats_the_config(model, settings, tmp_path):
    """Its words, given back to the command line, make the same config."""
    config = configs.compose("translate", model, "tiny", TEXT, {"max_steps": 5}, settings)
    config["inputs"] = {"train": ["my words.tsv"], "valid": ["dev.tsv"]}
    configs.save(tmp_path, config)
    job = job_of(command(tmp_path, config))
    again = configs.compose("translate", job.model, job.size, job.data, job.training, job.settings)
    for section in configs.SECTIONS:
        assert again[section] == config[section]
    assert (job.files, job.valid) == (["my words.tsv"], "dev.tsv")


def job_of(words):
    """The job that the command line makes of these words."""

    seen = []

    def see(job, progress):
        seen.append(job)
        raise seqloom.SeqloomError("seen")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seqloom.runs.train.train.run_job", see)
        patch.setattr(sys, "argv", shlex.split(shlex.join(words)))
        with pytest.raises(SystemExit):
            main()
    return seen[0]


def test_the_command_repeats_a_fine_tuning(run, pairs, tmp_path):
    job = Job(
        task="translate",
        files=pairs,
        output=tmp_path / "tuned",
        start=run,
        training={"max_steps": 3, "learning_rate": 1e-4},
    )
    before = resolve(job, ALONE).config
    after = resolve(job_of(command(tmp_path / "tuned", before)), ALONE).config
    assert after == before


@pytest.mark.parametrize(("tokens", "more"), [("tokenizer", []), ("words", ["--ids"])])
def test_the_command_repeats_an_import(tokens, more, tmp_path):
    composed = configs.compose("translate", None, None, {}, {}, {})
    config = {
        **composed,
        "preset": {"model": "marian", "size": "imported"},
        "data": {**composed["data"], "source_tokens": tokens, "target_tokens": tokens},
        "inputs": {"train": ["models/opus-mt"], "valid": None},
    }
    words = ["seqloom", "import", "hf", "models/opus-mt", *more, "--output", f"{tmp_path / 'run'}-again"]
    assert list(command(tmp_path / "run", config)) == words
    config["inputs"]["from"] = "runs/opus"  # trained further, and no mere import
    assert command(tmp_path / "run", config)[:2] == ("seqloom", "train")


@pytest.mark.parametrize(("valid", "words"), [(0.0, ["0%"]), (0.05, ["5%"]), ("5%", ["5%"]), (["a", "b"], ["a", "b"])])
def test_the_command_names_what_was_held_out(valid, words, tmp_path):
    config = {**configs.compose("translate", None, None, {}, {}, {}), "inputs": {"train": ["x.tsv"], "valid": valid}}
    given = command(tmp_path, config)
    assert [given[n + 1] for n, word in enumerate(given) if word == "--valid"] == words


def test_several_runs_share_a_page(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, two = (shutil.copytree(run, tmp_path / name / "run") for name in ("a", "b"))
    page = write_report([one, two])
    assert str(page) == "report.html"
    text = Page(page.read_text(encoding="utf-8")).text
    assert str(one) in text  # two runs of one name are told apart by their paths
    assert "the same settings" in text
    assert text.count("confidence") >= 20
    page.write_text("something else")
    with pytest.raises(seqloom.SeqloomError, match="no report of Seqloom"):
        write_report([one, two])
    assert write_report([one, two], tmp_path / "both.html").exists()
    assert "Training report" in write_report([one], tmp_path / "one.html").read_text(encoding="utf-8")


def test_a_vocabulary_learned_from_other_texts_is_noticed(run, tmp_path):
    """The same answers have another error rate by the token where bpe was learned from other texts."""
    texts = [pronounce(word) for word in words(200)]
    codecs = [Codec.build("bpe:300", texts), Codec.build("bpe:300", [text[::-1] for text in texts])]
    answers, wanted = [text.replace("B", "P") for text in texts], [(text,) for text in texts]
    rates = [score(answers, wanted, split=codec.display_tokens, metrics=["per"]).metrics["per"] for codec in codecs]
    assert abs(rates[0] - rates[1]) > 1

    folders = [shutil.copytree(run, tmp_path / name, ignore=shutil.ignore_patterns("checkpoints")) for name in "ab"]
    assert run_facts(folders[0]).learned == run_facts(folders[1]).learned

    def text_of() -> str:
        return Page(write_report(folders, tmp_path / "both.html").read_text(encoding="utf-8")).text

    for folder, codec in zip(folders, codecs, strict=True):
        (folder / "target.json").write_text(json.dumps(codec.to_json()))
    assert "Their tokenizers were learned from different texts: token error rate and perplexity cannot" in text_of()
    for folder, known in zip(folders, (["A", "B"], ["B", "A"]), strict=True):
        (folder / "target.json").write_text(json.dumps(Codec.build("words", known).to_json()))
    assert "cannot be compared" not in text_of(), "an order is no difference"
    (folders[1] / "target.json").write_text(json.dumps(Codec.build("words", ["A"]).to_json()))
    assert "Their vocabularies hold different tokens: perplexity cannot be compared." in text_of()


def test_damaged_files_are_named(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    (copy / "evaluation-valid.json").write_text("{")
    with pytest.raises(seqloom.SeqloomError, match=r"evaluation-valid\.json: cannot be read"):
        write_run_report(copy)
    (copy / "evaluation-valid.json").write_text('{"schema": 99}')
    with pytest.raises(seqloom.SeqloomError, match="newer Seqloom"):
        write_run_report(copy)


def test_hostile_data_end_to_end(tmp_path):
    lines = [f"<script>alert({n})</script>\t</svg>\"'& {n % 3}\n" for n in range(60)]
    (tmp_path / "bad.tsv").write_text("".join(lines))
    folder = tmp_path / "</title><b>run"
    folder.parent.mkdir(parents=True, exist_ok=True)
    train(tmp_path / "bad.tsv", folder, quiet=True, valid="20%")
    page = Page((folder / "report.html").read_text(encoding="utf-8"))
    safe(page)
    assert page.pictures()
    assert "<script>alert(" in page.text
