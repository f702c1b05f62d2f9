"""Settings and options that no training can have: status 2, and one line that names the key."""

from __future__ import annotations

import json

import pytest

import seqloom as library
from tests.cli.conftest import one_line
from tests.conftest import words, write_pairs

NINES = "9" * 5000


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_pairs(tmp_path_factory.mktemp("refused") / "words.tsv", words(30))


@pytest.fixture(scope="module")
def small(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("refused") / "run"
    library.train("translate", data, output=folder, size="tiny", training={"max_steps": 1}, quiet=True)
    return folder


@pytest.fixture
def train(seqloom, data, tmp_path):
    def call(*more: str) -> tuple[int, str, str]:
        result = seqloom(
            "train", "translate", data, "-o", tmp_path / "run", "--size", "tiny", "--max-steps", "1", *more
        )
        assert not (tmp_path / "run").exists()
        return result

    return call


@pytest.mark.parametrize(
    ("pair", "told"),
    [
        ("encoder.dim=!!int x", "dim of RecurrentEncoder takes a whole number"),
        ("encoder=!!timestamp x", "encoder: unknown kind "),
        ("training.clip=2020-99-99", "training.clip takes a number, here '2020-99-99'"),
        ("training.clip=2020-01-01", "training.clip takes a number, here '2020-01-01'"),
        ("training.compile=!!bool maybe", "training.compile takes true or false"),
        ("encoder.dropout=!!float x", "dropout of RecurrentEncoder takes a number"),
        ("encoder.dim=0b_", "dim of RecurrentEncoder takes a whole number"),
        ("training.clip=&a [*a]", "training.clip takes a number, here '&a [*a]'"),
        ("training.clip={[1]: 2}", "training.clip takes a number"),
        (f"encoder.dim={NINES}", "dim of RecurrentEncoder takes a whole number"),
        (f"training.label_smoothing=0x{'f' * 5000}", "training.label_smoothing takes"),
        ("training.warmup=" + "9" * 30, "training.warmup takes numbers of at most 64 bits"),
        ("encoder.dim=[" + "9" * 30 + "]", "dim of RecurrentEncoder takes numbers of at most 64 bits"),
        ("encoder.dim=99999999999", "dim of RecurrentEncoder is at most 1,048,576, here 99999999999"),
        ("encoder.layers=100000", "layers of RecurrentEncoder is at most 1,000, here 100000"),
        ("encoder=[]", "encoder: [] is no choice; name one of: convolution, gru"),
        ("encoder=3", "encoder: 3 is no choice; name one of: convolution, gru"),
        ("encoder={kind: []}", "encoder: unknown kind []"),
        ("encoder.cell=nope", "encoder.cell: unknown kind 'nope'"),
        ("encoder.cel=gru", "encoder: unknown setting of RecurrentEncoder 'cel'; did you mean 'cell'?"),
        ("training.clip", "--set takes key=value, here 'training.clip'"),
        ("training.clip=\x1b[2J", "training.clip takes a number, here '\\x1b[2J'"),
    ],
    ids=lambda value: value[:24] if "=" in value else "",
)
def test_a_setting_of_the_wrong_kind_is_named(train, pair, told):
    result = train("--set", pair)
    one_line(result, told)
    assert result[0] == 2
    assert len(result[2]) < 600


def test_a_kind_that_is_no_name_is_said_before_what_belongs_to_it(train):
    result = train("--set", "kind.0=language", "--set", "dropout=0.1")
    one_line(result, "unknown kind {'0': 'language'}")
    assert result[0] == 2


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_layers_without_a_width_are_refused(train, part):
    result = train("--model", "transformer", "--set", f"{part}.hidden=0", "--quiet")
    one_line(result, "hidden of a Transformer's feed-forward layers is at least 1, here 0")
    assert result[0] == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--output", ""], "the output has no name: ''; try seqloom train --help"),
        (["--folds", "1000000"], "--folds takes 2 or more and at most "),
        (["--time", "9" * 400 + "s"], "training.time takes a finite number"),
        (["--time", "soon"], "cannot read the time 'soon'"),
        (["--valid", f"5% with seed {NINES}"], "--valid: cannot read the share '5% with seed 999"),
        (["--valid", "fold 1/99999999999"], "--valid: fold 1/99999999999: there are at most 10,000 folds"),
        (["--valid", "200%"], "--valid: a validation share lies between 0% and 100%"),
        (["--device", "abacus"], "unknown device 'abacus'"),
        (["--batch-rows", "0"], "training.batch_rows must be above 0, here 0"),
        (["--min-count", "0"], "min_count"),
        (["--source-tokens", f"bpe:{NINES}"], "the size of the vocabulary goes from 260"),
    ],
    ids=lambda value: " ".join(value)[:24] if isinstance(value, list) else "",
)
def test_an_option_that_no_training_has_is_refused(train, options, told):
    result = train(*options)
    one_line(result, told)
    assert result[0] == 2
    assert len(result[2]) < 2000


def test_tokens_that_come_with_a_model_alone(train):
    one_line(train("--source-tokens", "tokenizer", "--shard"), "tokens 'tokenizer' come with an imported model")


def test_a_bomb_of_aliases_is_a_text(train):
    layers = ", ".join(
        f"{one}: &{one} [{', '.join([f'*{other}'] * 9)}]" for other, one in zip("abcdefgh", "bcdefghi", strict=True)
    )
    one_line(train("--set", f"training.clip={{a: &a [x], {layers}}}"), "training.clip takes a number")
    one_line(train("--set", f"training.clip={'[' * 5000}"), "training.clip takes a number")


@pytest.mark.parametrize("task", ["translate", "mask"])
def test_tokens_that_all_are_rare_train_a_model_of_unknowns(seqloom, data, tmp_path, task):
    line = ("train", task, data, "-o", tmp_path / "run", "--size", "tiny", "--max-steps", "1", "--quiet")
    assert seqloom(*line, "--min-count", "1000000")[::2] == (0, "")


def test_only_translations_are_exported(seqloom, tmp_path):
    (tmp_path / "book.txt").write_text("a loom wove a thread\n" * 20)
    table = "a,b,y\n" + "".join(f"{one},{one % 3},{'u' if one % 2 else 'v'}\n" for one in range(40))
    (tmp_path / "table.csv").write_text(table)
    for task, file in (("vectors", "book.txt"), ("table", "table.csv")):
        run = tmp_path / task
        library.train(task, tmp_path / file, output=run, size="tiny", training={"max_steps": 1}, quiet=True)
        for form in ("tokenizers", "hf"):
            result = seqloom("export", run, "--to", form, "-o", tmp_path / "out")
            one_line(result, f"{run}: is a model of the task {task}; what is exported is of translate")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["../elsewhere", "/elsewhere", "..", "", "a\nb"])
def test_a_recipe_writes_nowhere_but_in_runs(seqloom, data, tmp_path, monkeypatch, name):
    """Without --output its own name says where, and it may come from a stranger."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    recipe = {"name": name, "about": "x", "task": "translate", "train": str(data), "model": "gru", "size": "tiny"}
    (tmp_path / "here" / "x.yaml").write_text(json.dumps(recipe))
    for line in (["train", "--recipe", "x.yaml", "--max-steps", "1", "--quiet"], ["recipes", "x.yaml"]):
        one_line(seqloom(*line), "is no name: a folder in runs/ is called by it")
    assert [file.name for file in tmp_path.rglob("*")] == ["here", "x.yaml"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["predict", "RUN", "FILE", "--beam", "0"], "beam and n-best are at least 1"),
        (["predict", "RUN", "FILE", "--beam", "9" * 30], "beam and n-best are at most 1,000,000"),
        (["predict", "RUN", "FILE", "--batch", "9" * 30], "--batch"),
        (["predict", "RUN", "FILE", "--threshold", "2"], "--threshold is a confidence of 0 to 1"),
        (["predict", "RUN", "FILE", "--output", ""], "the output has no name: ''"),
        (["evaluate", "RUN", "FILE", "--predictions", ""], "the output has no name: ''"),
        (["export", "RUN", "--to", "nope", "-o", "x"], "unknown form 'nope'"),
        (["settings", "nope"], "unknown task 'nope'"),
        (["train", "trnslate", "FILE", "-o", "x"], "unknown task 'trnslate'; did you mean 'translate'?"),
    ],
    ids=lambda value: " ".join(value)[-24:] if isinstance(value, list) else "",
)
def test_other_commands_refuse_with_2_too(seqloom, small, data, line, told):
    result = seqloom(*({"RUN": small, "FILE": data}.get(word, word) for word in line))
    one_line(result, told)
    assert result[0] == 2
