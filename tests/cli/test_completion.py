"""What a shell is offered: recipes, devices, formats, datasets, the models of a task, settings and their values."""

from __future__ import annotations

import subprocess
import sys

import pytest

from seqloom.cli import completion


@pytest.fixture
def offered(seqloom, monkeypatch, tmp_path):
    """What bash gets for a line; it takes `=` and `:` for words of their own."""
    monkeypatch.chdir(tmp_path)

    def ask(*words: str, shell: str = "bash") -> list[str]:
        line = ["seqloom", *words]
        if shell == "bash":
            monkeypatch.setenv("COMP_WORDS", "\n".join(line))
            monkeypatch.setenv("COMP_CWORD", str(len(line) - 1))
        else:
            monkeypatch.setenv("_TYPER_COMPLETE_ARGS", " ".join(line))
        monkeypatch.setenv("_SEQLOOM_COMPLETE", f"complete_{shell}")
        return seqloom()[1].split()

    return ask


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("train --recipe cmudict-c", "cmudict-cpu"),
        ("recipes tre", "trec"),
        ("train tag --model l", "lstm lstm-crf"),
        ("train vectors --model ", "skipgram"),
        ("train --model=awd", "awd-lstm"),
        ("train --model = awd", "awd-lstm"),
        ("train translate --set decoder.quer", "decoder.query=previous decoder.query=current"),
        ("train translate --set decoder.score = add", "additive"),
        ("train translate --set decoder.query =", "previous current"),
        ("train translate --set training.cli", "training.clip=1.0"),
        ("train translate --set tie", "tie_embeddings=true tie_embeddings=false"),
        ("train translate --model transformer --set decoder.cross.key", "decoder.cross.key_heads=0"),
        ("train --recipe ewt --set training.select = f", "f1"),
        ("train --recipe imdb --set encoder.cell.for", "encoder.cell.forget_bias=1.0"),
        ("train tag ud-e", "ud-ewt"),
        ("train translate ud-e", ""),
        ("train translate x.tsv --test multi30k-d", "multi30k-de-en"),
        ("train --optimizer mu", "muon"),
        ("data show ud-e", "ud-ewt"),
        ("data check ta", "table tag"),
        ("export runs/x --to o", "onnx"),
        ("import h", "hf"),
        ("evaluate runs/x y.tsv --tokenize moses:e", "moses:en moses:es"),
        ("evaluate runs/x y.tsv --metrics per,b", "per,bleu per,bits_per_character"),
        ("predict runs/x --engine c", "ct2"),
        ("embed runs/x --way s", "summary"),
        ("settings classify ba", "bag"),
    ],
)
def test_what_is_offered(offered, words, wanted):
    found = offered(*words.split(" "))
    assert found == wanted.split()


def test_metrics_are_those_of_the_runs_task(offered, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("task: translate\n")
    assert offered("evaluate", "run", "y.tsv", "--metrics", "b") == ["bleu"]


def test_files_stand_beside_datasets(offered, tmp_path):
    (tmp_path / "trees.tsv").write_text("")
    (tmp_path / "trunk").mkdir()
    assert offered("train", "classify", "tr") == ["trec", "trees.tsv", "trunk/"]
    assert offered("train", "classify", "tru") == [], "bash offers its files where there is nothing else"


def test_devices(offered, monkeypatch, tmp_path):
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (tmp_path / name).touch()
    monkeypatch.setattr(completion, "DRIVER", tmp_path)
    assert offered("train", "--device", "") == ["auto", "cpu", "cuda", "cuda:0", "cuda:1"]
    assert offered("train", "--device", "cuda", ":") == ["0", "1"]


def test_other_shells_keep_words_whole(offered):
    assert "decoder.query=previous" in "".join(offered("train", "translate", "--set", "decoder.query=p", shell="zsh"))


def test_metrics_are_those_of_the_tables():
    from seqloom.metrics.classification import LABEL_METRICS, NUMBER_METRICS
    from seqloom.metrics.span_f1 import TAG_METRICS
    from seqloom.metrics.text.text_metrics import METRICS
    from seqloom.tasks.generate import model as generate_model
    from seqloom.tasks.mask import model as mask_model
    from seqloom.tasks.registry import TASKS

    labels = (*LABEL_METRICS, *NUMBER_METRICS)
    real = {
        "translate": METRICS,
        "classify": labels,
        "table": labels,
        "tag": TAG_METRICS,
        "generate": generate_model.METRICS,
    }
    real |= {"mask": mask_model.METRICS, "vectors": ("loss",)}
    assert {task: tuple(names) for task, names in real.items()} == {
        task: completion.task_metrics(task) for task in TASKS
    }
    assert real.keys() == TASKS.keys()


def test_every_way_to_cut_texts_is_offered():
    from seqloom.data.tokenizers.tokenizers import NOT_SELECTABLE, TOKENS

    assert [kind.rstrip(":") for kind in completion.KINDS] == [kind for kind in TOKENS if kind not in NOT_SELECTABLE]


def test_nothing_heavy_is_imported():
    """Every press of the key starts a process: no torch, no numpy, no data."""
    code = """
import os, sys
from seqloom.cli.main import run
for words in ("train translate --set decoder.sc", "train translate m", "train --recipe c", "evaluate x --metrics p"):
    line = ["seqloom", *words.split()]
    os.environ |= {"COMP_WORDS": "\\n".join(line), "COMP_CWORD": str(len(line) - 1)}
    os.environ["_SEQLOOM_COMPLETE"] = "complete_bash"
    try:
        run()
    except SystemExit:
        pass
assert not {"torch", "numpy", "sacrebleu", "safetensors"} & set(sys.modules), "heavy import"
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "decoder.score=additive" in done.stdout.split()
