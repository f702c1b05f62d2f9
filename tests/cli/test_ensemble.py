"""Several runs before the files, and a folder that stands for several."""

from __future__ import annotations

import json

import pytest

import seqloom as package
from seqloom.cli.arguments import runs_and_files
from seqloom.runs.folder import ensembles
from tests.cli.conftest import one_line
from tests.conftest import words, write_pairs


@pytest.fixture(scope="module")
def runs(run, pairs, tmp_path_factory):
    """The run, and a Transformer with its vocabularies."""
    other = tmp_path_factory.mktemp("runs") / "other"
    how = {
        "data": {"source_tokens": "chars", "target_tokens": "words"},
        "training": {"max_steps": 5, "valid_decode": 20},
        "quiet": True,
    }
    package.train("translate", pairs, output=other, model="transformer", size="tiny", valid="10%", **how)
    return run, other


def test_predict_and_evaluate_take_runs_before_files(seqloom, runs, tmp_path):
    sources, test = tmp_path / "sources.txt", write_pairs(tmp_path / "test.tsv", words(20, seed=5))
    sources.write_text("".join(f"{word}\n" for word in words(20, seed=9)))
    both = package.load(*runs, device="cpu")
    wanted = both.predict(sources.read_text().splitlines(), package.Search(beam=3))
    folder = tmp_path / "both"
    folder.mkdir()
    ensembles.save(folder, [str(one) for one in runs])
    for given in (runs, (folder,)):
        status, out, err = seqloom("predict", *given, sources, "--beam", 3, "--device", "cpu")
        assert (status, err, out.splitlines()) == (0, "", wanted)
    assert seqloom("predict", runs[0], sources)[1] != seqloom("predict", *runs[::-1], sources)[1]
    status, out, _ = seqloom("evaluate", *runs, test, "--beam", 3)
    assert out.splitlines()[0] == "20 examples, 2 models together, beam 3"
    told = json.loads(seqloom("evaluate", *runs, test, "--json")[1])
    assert [one["run"] for one in told["members"]] == list(map(str, runs))
    assert seqloom("evaluate", runs[0], test)[1].splitlines()[0] == "20 examples, greedy"


def test_standard_input_is_read_without_a_file(seqloom, runs, monkeypatch):
    import io
    import sys

    for given in (runs, (*runs, "-")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"abc\nbca\n")))
        assert len(seqloom("predict", *given)[1].splitlines()) == 2


def test_a_dataset_is_no_run(run, tmp_path, monkeypatch):
    (tmp_path / "pinyin").symlink_to(run)
    monkeypatch.chdir(tmp_path)
    assert runs_and_files("pinyin", ["pinyin"]) == (["pinyin"], ["pinyin"])
    assert runs_and_files("pinyin", ["./pinyin", "x.txt"]) == (["pinyin", "./pinyin"], ["x.txt"])


def test_wrong_arguments(seqloom, runs, tmp_path):
    file = tmp_path / "sources.txt"
    file.write_text("abc\n")
    one_line(seqloom("predict", *runs, file, "b", "c"), "got unexpected extra argument(s) (b c); try")
    for command in ("predict", "evaluate"):
        one_line(
            seqloom(command, runs[0], tmp_path / "gone", file), f"{tmp_path / 'gone'}: no such run, and no such file"
        )
    one_line(seqloom("predict", *runs, "nowhere.txt"), "nowhere.txt")
    one_line(seqloom("predict", runs[0], f"{runs[0]}/", file), f"{runs[0]}: is named twice")
    one_line(seqloom("evaluate", *runs), "all are runs; name the test examples after them")
    one_line(seqloom("evaluate", runs[0]), "missing argument 'files'")
    ensembles.save(tmp_path, [str(one) for one in runs])
    for command in (
        ["embed", tmp_path, "--nearest", "2"],
        ["report", tmp_path, runs[0]],
        ["export", tmp_path, "--to", "hf"],
    ):
        more = ["--output", tmp_path / "x"] if command[0] == "export" else []
        one_line(seqloom(*command, *more), "stands for several runs; name one of those")
    assert seqloom("info", tmp_path)[1].count("members.1 ") == 1


def test_the_report_of_a_folder_that_stands_for_several(seqloom, runs, tmp_path):
    ensembles.save(tmp_path, [str(one) for one in runs])
    page = tmp_path / "report.html"
    assert seqloom("report", tmp_path) == (0, f"{page}\n", "")
    text = page.read_text(encoding="utf-8")
    for said in ("2 members", "member small", "member other", "The runs were not scored together"):
        assert said in text
    both = package.load(tmp_path, device="cpu")
    record = both.evaluation_details(
        both.read([str(write_pairs(tmp_path / "t.tsv", words(20, seed=5)))], both.reading())[0]
    )
    (tmp_path / "evaluation-test.json").write_text(json.dumps(record))
    assert seqloom("report", tmp_path, "--output", tmp_path / "both.html")[:2] == (0, f"{tmp_path / 'both.html'}\n")
    text = (tmp_path / "both.html").read_text(encoding="utf-8")
    assert f"{record['metrics']['per']:.2f} %" in text.partition("All together")[2]
    ensembles.save(tmp_path, ["gone"])
    one_line(seqloom("report", tmp_path), f"{tmp_path / 'gone'}: no such run")


def test_a_recipe_with_members_from_the_command_line(seqloom, pairs, tmp_path):
    (tmp_path / "mine.yaml").write_text(
        f"about: a\npaper: p 2015\ntask: translate\ntrain: {pairs}\ntest: test.tsv\nmodel: gru\nsize: tiny\n"
        "training: {max_steps: 2}\nevaluate: {metrics: [per]}\nmembers: [{seed: 1}, {seed: 2}]\n"
    )
    write_pairs(tmp_path / "test.tsv", words(10, seed=5))
    arguments = [
        "train",
        "--recipe",
        tmp_path / "mine.yaml",
        "--output",
        tmp_path / "out",
        "--device",
        "cpu",
        "--quiet",
    ]
    said = seqloom(*arguments, "--dry-run")[1]
    assert said.startswith("2 members, each:\n")
    assert said.count("parameters on cpu") == 1  # two that differ in their seeds cost the same
    status, out, _ = seqloom(*arguments[:-1])
    assert status == 0
    assert [line.split(":")[0] for line in out.splitlines()[:2]] == ["member 1", "member 2"]
    assert "2 members together, 10 test examples" in out
    page = tmp_path / "out" / "report.html"
    before = page.read_text(encoding="utf-8")
    page.unlink()
    assert seqloom("report", tmp_path / "out")[:2] == (0, f"{page}\n")
    assert page.read_text(encoding="utf-8") == before
    assert seqloom("recipes", tmp_path / "mine.yaml")[1].count("seed") == 2
    one_line(seqloom(*arguments, "--seed", 3), "leave --seed out")
