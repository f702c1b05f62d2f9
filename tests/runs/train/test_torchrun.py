"""Two processes are one: the same losses and weights, the same answer after a kill, the same run with more or fewer."""

from __future__ import annotations

import json
import os
import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import seqloom
from seqloom.runs.folder.metrics_log import TIMING_KEYS
from seqloom.training.checkpoint import average_weights, checkpoint_folders
from tests.conftest import words, write_pairs
from tests.runs.train.launched import torchrun

STEPS = 24  # six epochs; validated after half of them
# A higher rate makes a Transformer amplify the last bit of a sum, as it would with another number of threads.
MODELS = {"gru-attention": {"accumulate": 1}, "transformer": {"accumulate": 2, "learning_rate": 1e-4}}
CALM = {"dropout": 0.0, "encoder.dropout": 0.0, "decoder.dropout": 0.0}


def case(home: Path, name: str, model: str = "gru-attention", **training) -> dict:
    """Four batches an epoch, the last of a single row: with two ranks, one gets none."""
    common = {"max_steps": STEPS, "batch_rows": 32, "log_every": 1, "valid_every": STEPS // 2, "schedule": "constant"}
    return {
        "files": str(home / "train.tsv"),
        "output": str(home / name),
        "model": model,
        "size": "tiny",
        "valid": str(home / "valid.tsv"),
        "data": {"source_tokens": "chars", "target_tokens": "words"},
        "training": {**common, "learning_rate": 1e-3, "warmup": 20, **training},
        "settings": CALM,
        "quiet": True,
    }


def alone(wanted: dict) -> seqloom.Run:
    return seqloom.train("translate", device="cpu", **wanted)


def ends_well(process) -> None:
    told = process.communicate(timeout=300)[1]
    assert process.returncode == 0, told
    assert told == "", "torch or we have something to complain of"


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("torchrun")
    write_pairs(folder / "train.tsv", words(97))
    write_pairs(folder / "valid.tsv", words(15, seed=9))
    (folder / "odd.tsv").write_text("".join(f"{word}\tCH CH CH\n" for word in words(15, seed=9)))
    return folder


@pytest.fixture(scope="module")
def launched(home) -> Path:
    """All that needs two processes and no kill, in one launch."""
    alone(case(home, "up", max_steps=STEPS // 2))
    cases = [
        *(case(home, f"{model}-ddp", model, average_checkpoints=2, **more) for model, more in MODELS.items()),
        *(
            case(home, f"{model}-shard", model, average_checkpoints=2, shard=True, **more)
            for model, more in MODELS.items()
        ),
        *(case(home, f"down-{shard}", max_steps=STEPS // 2, shard=shard) for shard in (False, True)),
        case(home, "sgd-shard", optimizer="sgd", learning_rate=0.1, shard=True),
        *(averaging(home, f"asgd-{shard}", max_steps=30, shard=shard) for shard in (False, True)),
        *(averaging(home, f"asgd-{shard}", max_steps=40, shard=shard) | {"resume": True} for shard in (False, True)),
        case(home, "up", max_steps=STEPS) | {"resume": True},
        case(home, "timed", max_steps=None, time=0.5, schedule="cosine"),
        noisy(home, "undisturbed"),
        *counting(home),
    ]
    ends_well(torchrun(cases, home))
    return home


def averaging(home: Path, name: str, **training) -> dict:
    """What is held out says nothing but the rarest sound: the better the training, the worse its score."""
    wanted = case(
        home, name, optimizer="asgd", asgd_patience=1, learning_rate=0.1, valid_every=5, select="loss", **training
    )
    return wanted | {"valid": str(home / "odd.tsv")}


def counting(home: Path) -> list[dict]:
    """Norms that count, six steps at once and in two halves."""
    norms = {f"{side}.norm_kind": kind for side, kind in (("encoder", "batch"), ("decoder", "power"))}
    cases = []
    for shard in (False, True):
        for name, steps in (("whole", 6), ("cut", 3), ("cut", 6)):
            wanted = case(home, f"counted-{name}-{shard}", "transformer", max_steps=steps, valid_every=3, shard=shard)
            cases.append(wanted | {"settings": {**CALM, **norms}, "resume": (name, steps) == ("cut", 6)})
    return cases


def noisy(home: Path, name: str) -> dict:
    """With dropout everywhere, in bf16, and checkpoints between validations."""
    dropout = dict.fromkeys(CALM, 0.3)
    return case(home, name, save_every=4, valid_every=20, precision="bf16", max_steps=40) | {"settings": dropout}


@pytest.fixture(scope="module")
def single(home) -> dict[str, Path]:
    runs = {model: alone(case(home, f"{model}-one", model, **more)) for model, more in MODELS.items()}
    return {model: run.folder for model, run in runs.items()}


def history(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def same_course(one: Path, other: Path, steps: int = STEPS) -> None:
    """Every logged loss to 1e-5, every token counted once, the weights at the end close."""
    ours, theirs = ([line for line in history(folder) if "learning_rate" in line] for folder in (one, other))
    assert [line["step"] for line in ours] == [line["step"] for line in theirs] == list(range(1, steps + 1))
    for a, b in zip(ours, theirs, strict=True):
        assert a["tokens"] == b["tokens"]
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5, abs=1e-5), a["step"]
        assert a["norm"] == pytest.approx(b["norm"], rel=1e-2), a["step"]
    ours, theirs = (
        {line["step"]: line["valid"] for line in history(f) if "best" in line and "step" in line} for f in (one, other)
    )
    for step in theirs:
        assert ours[step] == pytest.approx(theirs[step], rel=1e-4), step
    ours, theirs = (
        load_file(checkpoint_folders(folder / "checkpoints")[-1] / "weights.safetensors") for folder in (one, other)
    )
    assert ours.keys() == theirs.keys()
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-3) for name in ours)


@pytest.mark.parametrize("kind", ["ddp", "shard"])
@pytest.mark.parametrize("model", MODELS)
def test_two_processes_are_one(launched, single, model, kind):
    folder = launched / f"{model}-{kind}"
    same_course(folder, single[model])
    assert json.loads((folder / "env.json").read_text())["processes"] == 2
    assert len(seqloom.load(folder).predict(["abc"])) == 1


def test_files_are_those_of_one_process(launched, single):
    for kind in ("ddp", "shard"):
        for name in ("weights.safetensors", "training.safetensors"):
            ours, theirs = (
                {
                    key: (t.shape, t.dtype)
                    for key, t in load_file(checkpoint_folders(f / "checkpoints")[-1] / name).items()
                }
                for f in (launched / f"transformer-{kind}", single["transformer"])
            )
            assert ours.items() >= theirs.items()
            assert set(ours) - set(theirs) <= {"random.1.cpu"}
        lines = history(launched / f"transformer-{kind}")
        mean = average_weights(launched / f"transformer-{kind}" / "checkpoints", 2)
        kept = load_file(launched / f"transformer-{kind}" / "model.safetensors")
        assert lines[-1]["average"] == 2
        assert lines[-1]["best"] == all(torch.equal(kept[name], mean[name]) for name in mean)


@pytest.mark.parametrize("shard", [False, True])
def test_two_processes_resume_as_one(launched, single, shard, capfd):
    wanted = case(launched, f"down-{shard}") | {"resume": True, "quiet": False}
    alone(wanted)
    same_course(launched / f"down-{shard}", single["gru-attention"])
    assert "saved by 2 processes, resumed by 1" in capfd.readouterr().err


def test_sgd_of_shards_is_sgd(launched):
    same_course(launched / "sgd-shard", alone(case(launched, "sgd-one", optimizer="sgd", learning_rate=0.1)).folder)


def test_averaged_weights_are_those_of_one_process(launched):
    """In between the two were stopped and gone on with: of shards the mean is joined and cut again."""
    one = alone(averaging(launched, "asgd-one", max_steps=40)).folder
    for two in (launched / f"asgd-{shard}" for shard in (False, True)):
        same_course(two, one, 40)
        begun = [[line["averaging"] for line in history(folder) if "averaging" in line] for folder in (two, one)]
        assert begun[0] == begun[1]
        assert 10 < begun[0][0] < 30
        ours, theirs = (
            load_file(checkpoint_folders(f / "checkpoints")[-1] / "training.safetensors") for f in (two, one)
        )
        plain = load_file(checkpoint_folders(two / "checkpoints")[-1] / "weights.safetensors")
        for name, weights in plain.items():
            assert torch.allclose(ours[f"mean.model.{name}"], theirs[f"mean.model.{name}"], atol=1e-4), name
            assert not torch.equal(ours[f"mean.model.{name}"], weights), name


def test_one_process_resumes_as_two(launched, single):
    same_course(launched / "up", single["gru-attention"])


def test_a_killed_rank_is_started_again_and_ends_the_same(launched):
    process = torchrun([noisy(launched, "killed")], launched, restarts=1)
    wait_for_step(process, launched / "killed", 20)
    os.kill(worker(process.pid, rank=1), signal.SIGKILL)
    told = process.communicate(timeout=120)[1]
    assert process.returncode == 0, told
    assert "Traceback" not in told
    same(launched / "killed", launched / "undisturbed")


def test_a_time_limit_ends_all_ranks_at_one_step(launched):
    """The rate follows the clock here, and the first rank's clock is everybody's: else ranks would drift or hang."""
    seconds = [line["seconds"] for line in history(launched / "timed") if "learning_rate" in line]
    assert seconds[-2] < 0.5 + 2 * max(b - a for a, b in pairwise(seconds))
    assert (launched / "timed" / "model.safetensors").exists()


@pytest.mark.slow
def test_a_lost_rank_ends_the_others_soon_with_one_line(home):
    process = torchrun([case(home, "lost", max_steps=100000)], home)
    wait_for_step(process, home / "lost", 10)
    started = time.monotonic()
    os.kill(worker(process.pid, rank=1), signal.SIGKILL)
    told = process.communicate(timeout=60)[1]
    assert process.returncode != 0
    assert time.monotonic() - started < 40
    ours = [line for line in told.splitlines() if line.startswith("seqloom:")]
    assert len(ours) == 1, told
    assert "rank 0 of 2" in ours[0]
    assert "lost the other processes" in ours[0]


@pytest.mark.slow
@pytest.mark.parametrize("all_of_them", [True, False])
def test_a_signal_saves_once_and_ends_all(home, all_of_them):
    """To torchrun, which hands it on, or to one rank, which tells the others."""
    folder = home / f"asked-{all_of_them}"
    process = torchrun([case(home, folder.name, max_steps=100000)], home)
    wait_for_step(process, folder, 10)
    os.kill(process.pid if all_of_them else worker(process.pid, rank=1), signal.SIGTERM)
    process.communicate(timeout=60)
    last = checkpoint_folders(folder / "checkpoints")[-1]
    assert last.name.endswith("-interrupted")
    steps = [line["step"] for line in history(folder) if "learning_rate" in line]
    assert steps == list(range(1, int(last.name.split("-")[1]) + 1))


@pytest.mark.slow
def test_what_is_refused_is_said_once_and_not_resumed_by_a_restart(home):
    """torchrun starts again whatever failed; a run that was there before must not go on by that."""
    alone(case(home, "there", max_steps=2))
    process = torchrun([case(home, "there", max_steps=5)], home, restarts=1)
    told = process.communicate(timeout=60)[1]
    assert process.returncode != 0
    assert told.count("already holds a run") == 2  # once an attempt
    assert history(home / "there")[-1]["step"] == 2
    process = torchrun([case(home, "stdin") | {"files": "-"}], home)
    assert process.communicate(timeout=60)[1].count("cannot share standard input") == 1


@pytest.mark.slow
def test_three_ranks_restart_to_the_last_bit_too(home):
    """With three the order of a sum matters: DDP must add in the same order after a restart."""
    ends_well(torchrun([noisy(home, "three")], home, processes=3))
    process = torchrun([noisy(home, "three-killed")], home, processes=3, restarts=1)
    wait_for_step(process, home / "three-killed", 20)
    os.kill(worker(process.pid, rank=2), signal.SIGKILL)
    told = process.communicate(timeout=120)[1]
    assert process.returncode == 0, told
    same(home / "three-killed", home / "three")


@pytest.mark.slow
def test_one_process_under_torchrun_is_plain(home):
    ends_well(torchrun([noisy(home, "torchrun-one")], home, processes=1))
    alone(noisy(home, "plain-one"))
    same(home / "torchrun-one", home / "plain-one")


@pytest.mark.slow
@pytest.mark.parametrize("rows", [3, 1])
def test_streams_that_ranks_share_unevenly_go_on_after_a_resume(home, rows):
    """Of three rows one rank carries the states of two, of one row none."""
    (home / "text.txt").write_text("the cat sat on the mat.\n" * 20)

    def text(name: str, steps: int) -> dict:
        wanted = case(home, f"{name}-{rows}", "lstm", batch_rows=rows, max_steps=steps, precision="bf16", valid_every=4)
        more = {"task": "generate", "files": str(home / "text.txt"), "valid": "10%", "data": {"length": 16}}
        return wanted | more | {"settings": {}}

    ends_well(torchrun([text("through", 8), text("stopped", 4), text("stopped", 8) | {"resume": True}], home))
    last = [checkpoint_folders(home / f"{name}-{rows}" / "checkpoints")[-1] for name in ("through", "stopped")]
    ours, theirs = (load_file(folder / "training.safetensors") for folder in last)
    assert {name for name in ours if name.startswith("carried.1.")} == (
        set() if rows == 1 else {"carried.1.0", "carried.1.1"}
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in ours if name.startswith(("carried", "optimiser")))


def wait_for_step(process, folder: Path, goal: int) -> None:
    journal = folder / "metrics.jsonl"
    while process.poll() is None and (not journal.exists() or journal.read_text().count('"learning_rate"') < goal):
        time.sleep(0.005)
    assert process.poll() is None, process.communicate()[1]


def worker(torchrun: int, rank: int) -> int:
    """The process of a rank: the child whose environment says so."""
    for child in Path(f"/proc/{torchrun}/task/{torchrun}/children").read_text().split():
        if f"RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            return int(child)
    raise AssertionError(f"torchrun has no rank {rank}")


def same(one: Path, other: Path) -> None:
    """To the last bit, and no line of the journal missing or double."""
    last, expected = checkpoint_folders(one / "checkpoints")[-1], checkpoint_folders(other / "checkpoints")[-1]
    assert last.name == expected.name
    for name in ("weights.safetensors", "training.safetensors"):
        a, b = load_file(last / name), load_file(expected / name)
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a), name
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    lines = [[{k: v for k, v in line.items() if k not in TIMING_KEYS} for line in history(run)] for run in (one, other)]
    assert lines[0] == lines[1]


def test_what_norms_count_is_one_on_all_ranks(launched):
    """Saved and resumed to the last bit, with the model copied or sharded; and a loaded run has the statistics."""
    for shard in (False, True):
        whole, cut = (
            load_file(
                checkpoint_folders(launched / f"counted-{name}-{shard}" / "checkpoints")[-1] / "weights.safetensors"
            )
            for name in ("whole", "cut")
        )
        assert whole.keys() == cut.keys()
        assert all(torch.equal(whole[name], cut[name]) for name in whole)
        statistics = {name for name in whole if name.split(".")[-1] in ("mean", "variance", "power")}
        assert {name.split(".")[-1] for name in statistics} == {"mean", "variance", "power"}
        assert not any(whole[name].eq(whole[name].round()).all() for name in statistics)
        loaded = dict(seqloom.load(launched / f"counted-whole-{shard}").texts.model.named_buffers())
        kept = load_file(launched / f"counted-whole-{shard}" / "model.safetensors")
        assert all(torch.equal(loaded[name], kept[name]) for name in statistics)
