"""From files to a run folder and back: what is learned, what is kept, and that a batch changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time

import pytest
import torch
import yaml
from safetensors.torch import load_file

import seqloom
from seqloom.runs.progress import Silent
from seqloom.tasks.translate.presets import PRESETS
from seqloom.training.checkpoint import average_weights, checkpoint_folders
from seqloom.version import FORMAT
from tests.conftest import pronounce, words, write_pairs

TEXT = {"source_tokens": "chars", "target_tokens": "words"}


def train(data, output, model="gru-attention", resume=False, **training):
    settings = {"max_steps": 20, "batch_rows": 32, "learning_rate": 5e-3, **training}
    return seqloom.train(
        "translate",
        data,
        output=output,
        model=model,
        size="tiny",
        data=TEXT,
        training=settings,
        valid="10%",
        quiet=True,
        device="cpu",
        resume=resume,
    )


@pytest.mark.parametrize("model", PRESETS)
def test_every_preset_learns_32_examples_by_heart(model, tmp_path):
    chosen = words(32, seed=5, longest=5)
    data = write_pairs(tmp_path / "few.tsv", chosen)
    run = seqloom.train(
        "translate",
        data,
        output=tmp_path / "run",
        model=model,
        size="tiny",
        valid=0.0,
        data=TEXT,
        training={
            "max_steps": 150,
            "valid_every": 150,
            "learning_rate": 3e-3,
            "schedule": "constant",
            "warmup": 20,
            "label_smoothing": 0.0,
        },
        settings={"dropout": 0.0, "encoder.dropout": 0.0, "decoder.dropout": 0.0},
        quiet=True,
    )
    predicted = run.load().predict(chosen)
    right = sum(p == pronounce(w) for p, w in zip(predicted, chosen, strict=True))
    assert right >= 31, f"{right} of 32"


def test_the_run_learns_and_generalises(run):
    fresh = words(100, seed=77)
    model = seqloom.load(run)
    right = sum(p == pronounce(w) for p, w in zip(model.predict(fresh), fresh, strict=True))
    assert right > 60


def test_a_sentence_gets_the_same_answer_in_any_batch(run, capsys):
    """500 sentences alone and in batches; a difference is allowed only where the best two are a near tie."""
    model = seqloom.load(run)
    chosen = words(500, seed=21, longest=12)
    for search in (seqloom.Search(), seqloom.Search(beam=3, n_best=2)):
        batched = list(model.answers(chosen, search))
        alone = [next(iter(model.answers([text], search))) for text in chosen]
        unlike = [i for i in range(500) if batched[i][0].text != alone[i][0].text]
        with capsys.disabled():
            if unlike:
                print(f"\n{len(unlike)} of 500 differ, beam {search.beam}")
        for i in unlike:
            assert near_tie(model, chosen[i], batched[i][0].tokens, alone[i][0].tokens)


def near_tie(model, text, one, other) -> bool:
    """Whether the two candidates' log-probabilities, computed together, differ by less than 1e-5."""
    from seqloom.data.batches.collate import pad
    from seqloom.data.tokenizers.tokenizers import BOS, EOS

    source = pad([model.texts.encode(text)] * 2)
    target = pad([[BOS, *one, EOS], [BOS, *other, EOS]])
    with torch.inference_mode():
        logits = model.model(source, target.tokens[:, :-1]).log_softmax(-1)
    taken = logits.gather(2, target.tokens[:, 1:, None])[:, :, 0]
    totals = [taken[row, : target.host[row] - 1].sum().item() for row in (0, 1)]
    return abs(totals[0] - totals[1]) < 1e-5


def test_loading_gives_the_same_answers(pairs, tmp_path):
    train(pairs, tmp_path / "run")
    one, two = seqloom.load(tmp_path / "run"), seqloom.load(tmp_path / "run")
    some = words(20, seed=3)
    assert one.predict(some) == two.predict(some)
    for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_run_of_the_first_format_is_still_read(run, tmp_path):
    """Settings that came later are not in its config; they are what was always done."""
    old = shutil.copytree(run, tmp_path / "old")
    config = yaml.safe_load((old / "config.yaml").read_text())
    del config["model"]["share_embeddings"]
    for name in ("half_width", "columns", "skip_bad", "limit"):
        del config["data"][name]
    (old / "config.yaml").write_text(yaml.safe_dump({**config, "format": 1}))
    for name in ("source.json", "target.json"):
        codec = json.loads((old / name).read_text())
        del codec["half_width"]
        (old / name).write_text(json.dumps(codec))
    some = words(20, seed=3)
    assert seqloom.load(old).predict(some) == seqloom.load(run).predict(some)


def test_the_config_hides_nothing_and_repeats_the_run(pairs, tmp_path):
    run = train(pairs, tmp_path / "one")
    config = yaml.safe_load((tmp_path / "one" / "config.yaml").read_text())
    assert config["format"] == FORMAT
    assert config["model"]["decoder"]["score"] == {"kind": "additive", "hidden": 0}
    assert config["model"]["encoder"]["cell"] == {"kind": "gru", "reset_gate": "after", "norm": False, "zoneout": 0.0}
    model = tmp_path / "model.yaml"
    model.write_text(yaml.safe_dump({"model": config["model"], "training": config["training"]}))
    again = seqloom.train(
        "translate", pairs, output=tmp_path / "two", model=str(model), valid="10%", data=TEXT, quiet=True, device="cpu"
    )
    one, two = (load_file(r.folder / "model.safetensors") for r in (run, again))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_same_seed_same_model_other_seed_other_model(pairs, tmp_path):
    runs = [train(pairs, tmp_path / str(i), seed=seed, max_steps=5) for i, seed in enumerate((1, 1, 2))]
    a, b, c = (load_file(run.folder / "model.safetensors") for run in runs)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not all(torch.equal(a[name], c[name]) for name in a)


def test_best_is_kept_and_last_goes_on(pairs, tmp_path):
    run = train(pairs, tmp_path / "run", max_steps=30, valid_every=10, learning_rate=5e-3)
    marked = [line for line in run.history() if line.get("best")]
    scores = [line["valid"]["per"] for line in run.history() if "valid" in line]
    assert marked[-1]["valid"]["per"] == min(scores) == run.best["scores"]["per"]
    best = load_file(run.folder / "model.safetensors")
    kept = {
        json.loads((f / "training.json").read_text())["step"]: f for f in checkpoint_folders(run.folder / "checkpoints")
    }
    assert list(kept) == [10, 20, 30]
    chosen = load_file(kept[run.best["step"]] / "weights.safetensors")
    assert all(torch.equal(best[name], chosen[name]) for name in best)


def test_patience_stops(pairs, tmp_path):
    run = train(pairs, tmp_path / "run", max_steps=500, valid_every=2, learning_rate=1e-9, patience=3)
    assert run.step == 8  # the first is the best, then three that are no better
    again = seqloom.train("translate", pairs, output=run.folder, valid="10%", resume=True, quiet=True)
    assert again.step == 8


def test_average_is_the_mean_of_checkpoints(pairs, tmp_path):
    run = train(pairs, tmp_path / "run", max_steps=40, save_every=5, average_checkpoints=3, learning_rate=5e-3)
    three = [
        load_file(folder / "weights.safetensors") for folder in checkpoint_folders(run.folder / "checkpoints")[-3:]
    ]
    mean = average_weights(run.folder / "checkpoints", 3)
    for name, value in mean.items():
        assert torch.allclose(value, sum(weights[name] for weights in three) / 3, atol=1e-6)
    line = run.history()[-1]
    assert line["average"] == 3
    kept = load_file(run.folder / "model.safetensors")
    assert all(torch.equal(kept[name], mean[name]) for name in mean) == line["best"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_leaves(pairs, tmp_path, number):
    folder, handler = tmp_path / "run", signal.getsignal(number)

    def interrupt():
        while not (folder / "metrics.jsonl").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    threading.Thread(target=interrupt, daemon=True).start()
    run = train(pairs, folder, max_steps=100000, log_every=1)
    assert run.signal == number
    assert (
        json.loads((checkpoint_folders(folder / "checkpoints")[-1] / "training.json").read_text())["step"] == run.step
    )
    assert signal.getsignal(number) is handler
    more = seqloom.train(
        "translate", pairs, output=folder, valid="10%", resume=True, training={"max_steps": run.step + 2}, quiet=True
    )
    assert more.step == run.step + 2


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_of_two_signals_only_a_second_ctrl_c_leaves_at_once(pairs, tmp_path, second):
    """As when the terminal closes after Ctrl-C, or the parent of several trainings dies."""

    class Twice(Silent):
        def show(self, share, facts):
            for number in (signal.SIGINT, second):
                os.kill(os.getpid(), number)

    def go() -> seqloom.Run:
        training = {"max_steps": 50, "batch_rows": 32}
        return seqloom.train(
            "translate", pairs, output=tmp_path / "run", model="gru", size="tiny", data=TEXT, training=training,
            valid="10%", device="cpu", progress=Twice(),
        )  # fmt: skip

    if second == signal.SIGINT:
        with pytest.raises(KeyboardInterrupt):
            go()
        assert not (tmp_path / "run" / "checkpoints").exists()
    else:
        assert go().signal == signal.SIGINT
        assert [one.name for one in checkpoint_folders(tmp_path / "run" / "checkpoints")] == [
            "step-000000001-interrupted"
        ]


def test_who_comes_second_leaves_the_first_ones_run_alone(pairs, tmp_path, monkeypatch):
    """Both saw an empty folder; while one still read its data, the other trained there."""
    from seqloom.runs.train import build_session as runs

    real = runs.prepare_data

    def meanwhile(*given):
        monkeypatch.setattr(runs, "prepare_data", real)
        train(pairs, tmp_path / "run", max_steps=2)
        return real(*given)

    monkeypatch.setattr(runs, "prepare_data", meanwhile)
    with pytest.raises(seqloom.SeqloomError, match="already holds a run; add --resume"):
        train(pairs, tmp_path / "run", max_steps=3)
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["training"]["max_steps"] == 2


def test_an_interrupted_run_averages_the_same_checkpoints(pairs, tmp_path):
    whole = train(pairs, tmp_path / "whole", max_steps=12, save_every=3, average_checkpoints=3)
    half = train(pairs, tmp_path / "half", max_steps=7, save_every=3, average_checkpoints=3)
    checkpoints = half.folder / "checkpoints"
    (checkpoints / "step-000000007").rename(checkpoints / "step-000000007-interrupted")
    again = train(pairs, half.folder, resume=True, max_steps=12, save_every=3, average_checkpoints=3)
    names = [[folder.name for folder in checkpoint_folders(run.folder / "checkpoints")] for run in (whole, again)]
    assert names[0] == names[1] == ["step-000000006", "step-000000009", "step-000000012"]


def test_a_kill_between_two_renames_loses_nothing(tmp_path):
    from seqloom.files import new_folder, tidy

    (tmp_path / ".step-1.old").mkdir()
    (tmp_path / ".step-2.tmp").mkdir()
    tidy(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]
    for text in ("one", "two"):
        with new_folder(tmp_path / "step-1") as new:
            (new / "file").write_text(text)
    assert (tmp_path / "step-1" / "file").read_text() == "two"
    with new_folder(tmp_path / "step-1", keep_existing=True) as new:
        (new / "file").write_text("three")
    assert (tmp_path / "step-1" / "file").read_text() == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


def test_two_who_fill_one_folder_do_not_meet(tmp_path):
    """Two threads, or two containers in which both are process 1: the first that ends wins, and both are whole."""
    from seqloom.files import clear_damaged, damage, new_folder

    place = tmp_path / "cache"
    with new_folder(place, keep_existing=True) as first:
        (first / "a").write_text("one")
        with new_folder(place, keep_existing=True) as second:
            (second / "a").write_text("two")
        clear_damaged(place)  # what somebody has just finished stays
        assert (place / "a").read_text() == "two"
    assert (place / "a").read_text() == "two"
    assert damage(place) is None
    (place / "a").write_text("changed")
    clear_damaged(place)
    assert list(tmp_path.iterdir()) == []


def test_a_validation_file_and_a_share(pairs, tmp_path):
    valid = write_pairs(tmp_path / "valid.tsv", words(30, seed=50))
    common = {"model": "gru", "size": "tiny", "data": TEXT, "training": {"max_steps": 2}, "quiet": True}
    by_file = seqloom.train("translate", pairs, output=tmp_path / "a", valid=valid, **common)
    assert "valid" in by_file.history()[-1]
    by_share = seqloom.train("translate", pairs, output=tmp_path / "b", valid=0.2, **common)
    assert by_share.best is not None
    without = seqloom.train("translate", pairs, output=tmp_path / "c", valid=0.0, **common)
    assert without.best is None
    assert (without.folder / "model.safetensors").exists()


def test_parallel_files_and_bpe(tmp_path):
    chosen = words(200)
    (tmp_path / "x.en").write_text("".join(" ".join(word) + "\n" for word in chosen))
    (tmp_path / "x.de").write_text("".join(pronounce(word) + "\n" for word in chosen))
    run = seqloom.train(
        "translate",
        [tmp_path / "x.en", tmp_path / "x.de"],
        output=tmp_path / "run",
        model="transformer",
        size="tiny",
        data={"source_tokens": "words", "target_tokens": "bpe:280"},
        training={"max_steps": 3},
        quiet=True,
    )
    assert len(run.load().predict(["a b c"])) == 1


def test_attention_is_a_distribution_over_source_tokens(run, tmp_path):
    model = seqloom.load(run)
    seen = model.attention("chaff")
    assert seen.source == ["c", "h", "a", "f", "f", "<eos>"]
    assert seen.target[-1] == "<eos>"
    assert seen.weights.shape == (1, len(seen.target), 6)
    assert abs(seen.weights.sum(-1) - 1).max() < 1e-5
    assert "chaff"[0] in seen.text()
    seen.plot(tmp_path / "map.svg")
    assert (tmp_path / "map.svg").stat().st_size > 1000
    forced = model.attention("chaff", target="CH AH F")
    assert forced.target == ["CH", "AH", "F", "<eos>"]


def test_attention_of_each_family(pairs, tmp_path):
    for model in ("lstm-attention", "transformer"):
        run = train(pairs, tmp_path / model, model=model, max_steps=2)
        seen = run.load().attention("abc", target="AH B K")
        assert seen.weights.shape[1:] == (4, 4)
        assert abs(seen.weights.sum(-1) - 1).max() < 1e-5
    run = train(pairs, tmp_path / "lstm", model="lstm", max_steps=2)
    with pytest.raises(seqloom.SeqloomError, match="no attention"):
        run.load().attention("abc")
