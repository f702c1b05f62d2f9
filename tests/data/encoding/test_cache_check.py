"""A flipped bit in the cache of encoded data is noticed before anything trained on it is kept."""

from __future__ import annotations

import json
import random
import threading

import pytest

from seqloom.data.encoding import cache_check
from seqloom.data.prepare import pairs as corpus
from seqloom.data.prepare.pairs import DataOptions, prepare_pairs
from seqloom.data.prepare.request import PrepareRequest
from seqloom.errors import SeqloomError
from tests.conftest import words, write_pairs
from tests.damaged import flipped


@pytest.fixture
def pairs(tmp_path):
    return str(write_pairs(tmp_path / "words.tsv", words(80)))


@pytest.fixture
def large(monkeypatch):
    """Every cache counts as a large one."""
    monkeypatch.setattr(cache_check, "SMALL_CACHE", -1)


def prepared(pairs, tmp_path):
    return prepare_pairs(PrepareRequest([pairs], 0.2, DataOptions(), seed=3, cache=tmp_path / "cache"))


def arrays(folder):
    return sorted(folder.glob("*_ids.npy")) + sorted(folder.glob("*_offsets.npy"))


def test_a_small_cache_is_compared_at_once_and_made_anew(pairs, tmp_path):
    folder = prepared(pairs, tmp_path).train.folder
    whole = {file.name: file.read_bytes() for file in arrays(folder)}
    draw = random.Random(1)
    for name, raw in whole.items():
        (folder / name).write_bytes(flipped(raw, draw))
        again = prepared(pairs, tmp_path)
        assert {file.name: file.read_bytes() for file in arrays(folder)} == whole, "the same numbers again"
        assert len(again.train) + len(again.valid) == 80


@pytest.mark.usefixtures("large")
def test_a_cache_that_cannot_be_read_is_not_taken_for_whole(pairs, tmp_path, monkeypatch):
    def unreadable(folder):
        raise SeqloomError(f"{folder}: could not be read: Input/output error")

    folder = prepared(pairs, tmp_path).train.folder
    cache_check.finish_check(folder)
    cache_check._checks.clear()
    monkeypatch.setattr(cache_check, "damage", unreadable)
    cache_check.start_check(folder)
    with pytest.raises(SeqloomError, match="Input/output error"):
        cache_check.finish_check(folder)


@pytest.mark.usefixtures("large")
def test_a_large_cache_is_compared_beside_the_training(pairs, tmp_path):
    folder = prepared(pairs, tmp_path).train.folder
    cache_check.finish_check(folder)
    for file in arrays(folder)[:3]:
        cache_check._checks.clear()  # as in another process
        raw = file.read_bytes()
        file.write_bytes(flipped(raw, random.Random(2), first=128))
        prepared(pairs, tmp_path)
        with pytest.raises(SeqloomError, match=rf"{file.name} does not match its checksum; nothing trained on it"):
            cache_check.finish_check(folder)
        prepared(pairs, tmp_path)
        cache_check.finish_check(folder)
        assert file.read_bytes() == raw, "numbered anew by the next"


@pytest.mark.usefixtures("large")
def test_damage_that_breaks_the_training_is_what_is_said(pairs, tmp_path):
    folder = prepared(pairs, tmp_path).train.folder
    cache_check._checks.clear()
    offsets = folder / "train_source_offsets.npy"
    raw = bytearray(offsets.read_bytes())
    raw[-1] ^= 0x40
    offsets.write_bytes(raw)

    @cache_check.explain_damage()
    def train():
        prepared(pairs, tmp_path)
        raise IndexError("from a row that begins nowhere")

    with pytest.raises(SeqloomError, match="cache of encoded data is damaged"):
        train()


@pytest.mark.usefixtures("large")
def test_a_broken_header_is_no_whole_cache(pairs, tmp_path):
    folder = prepared(pairs, tmp_path).train.folder
    ids = folder / "train_source_ids.npy"
    raw = ids.read_bytes()
    ids.write_bytes(raw[:20] + b"!" + raw[21:])
    prepared(pairs, tmp_path)
    assert ids.read_bytes() == raw


@pytest.mark.usefixtures("large")
def test_once_a_process(pairs, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(cache_check, "damage", lambda folder: started.append((folder, threading.current_thread())))
    for _ in range(3):
        folder = prepared(pairs, tmp_path).train.folder
        cache_check.finish_check(folder)
    [(compared, thread)] = started
    assert compared == folder
    assert thread is not threading.main_thread()


@pytest.mark.usefixtures("large")
def test_nothing_trained_on_damaged_data_is_kept(pairs, tmp_path):
    import seqloom

    def train(output, resume=False, steps=4):
        training = {"max_steps": steps, "save_every": 1, "valid_every": 1, "valid_decode": 0, "batch_rows": 8}
        return seqloom.train(
            "translate",
            pairs,
            output=output,
            model="gru",
            size="tiny",
            valid="20%",
            training=training,
            quiet=True,
            device="cpu",
            cache=tmp_path / "cache",
            resume=resume,
        )

    train(tmp_path / "right", steps=2)
    [folder] = [meta.parent for meta in (tmp_path / "cache").glob("*/meta.json")]
    cache_check._checks.clear()
    ids = folder / "train_target_ids.npy"
    ids.write_bytes(flipped(ids.read_bytes(), random.Random(3), first=128))
    with pytest.raises(SeqloomError, match="cache of encoded data is damaged"):
        train(tmp_path / "wrong")
    assert not (tmp_path / "wrong" / "model.safetensors").exists()
    assert not list((tmp_path / "wrong").glob("checkpoints/step-*"))
    before = (tmp_path / "right" / "model.safetensors").read_bytes()
    train(tmp_path / "again", steps=2)
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == before, "numbered anew, the same model"


def test_a_cache_made_before_is_taken_as_it_is(pairs, tmp_path):
    """Its manifest holds the sums already; only what it names is in it."""
    folder = prepared(pairs, tmp_path).train.folder
    sums = json.loads((folder / "manifest.json").read_text())
    assert {file.name for file in folder.iterdir()} == {*sums, "manifest.json"}
    assert corpus._intact(folder)
