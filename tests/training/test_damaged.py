"""A damaged checkpoint is passed over, damaged weights are refused: nothing else is ever made of them."""

from __future__ import annotations

import json
import random

import pytest
import safetensors.torch
import torch

from seqloom.errors import SeqloomError
from seqloom.files import damage
from seqloom.training import checkpoint
from tests.damaged import KINDS, damaged, flipped, put, taken


def tensors(step):
    draw = torch.Generator().manual_seed(step)
    return {"w": torch.randn(20, 10, generator=draw), "b": torch.randn(3, generator=draw), "n": torch.tensor(step)}


def save(parent, step):
    values = {"step": step, "best": None, "journal": 5 * step, "fingerprint": "é"}
    return checkpoint.save(parent, tensors(step), {"order": torch.randperm(50) + step}, values, 3)


@pytest.fixture
def parent(tmp_path):
    for step in (1, 2):
        save(tmp_path, step)
    return tmp_path


def content(found):
    return found.values, {name: t.tolist() for name, t in {**found.weights, **found.tensors}.items()}


def try_damaged(parent, seed, count):
    """Each is passed over for the older one, or changes nothing."""
    old, new = checkpoint.checkpoint_folders(parent)
    others, files = taken(old), taken(new)
    whole = {folder: content(checkpoint.newest(parent)[0]) for folder in (new,)}
    put(new, {})
    older, _ = checkpoint.newest(parent)
    assert older is not None
    draw, seen = random.Random(seed), set()
    for _ in range(count):
        kind, changed = damaged(files, others, draw)
        put(new, changed)
        found, problems = checkpoint.newest(parent)
        assert found is not None
        if found.folder == old:
            assert content(found) == content(older), kind
            [problem] = problems
            assert str(new) in problem, kind
            assert "\n" not in problem, kind
        else:
            assert content(found) == whole[new], f"{kind}: went unnoticed"
        seen.add(kind)
    return seen


def test_damaged_checkpoints_are_passed_over(parent):
    try_damaged(parent, seed=5, count=60)


@pytest.mark.slow
def test_a_thousand_damaged_checkpoints_are_passed_over(parent):
    assert try_damaged(parent, seed=4, count=1000) == KINDS.keys()


def test_where_none_is_whole_nothing_begins_anew(parent):
    for folder in checkpoint.checkpoint_folders(parent):
        (folder / "weights.safetensors").write_bytes(b"")
    with pytest.raises(SeqloomError, match="no checkpoint is intact"):
        checkpoint.newest(parent)


def test_a_manifest_that_names_only_some_is_none(parent):
    newest = checkpoint.checkpoint_folders(parent)[-1]
    sums = json.loads((newest / "manifest.json").read_text())
    for name in sums:
        (newest / "manifest.json").write_text(json.dumps({key: value for key, value in sums.items() if key != name}))
        found, [problem] = checkpoint.newest(parent)
        assert found is not None
        assert found.values["step"] == 1
        assert name in problem


def test_a_file_that_the_manifest_leaves_out(parent):
    newest = checkpoint.checkpoint_folders(parent)[-1]
    assert damage(newest) is None
    (newest / "more.npy").write_bytes(b"")
    assert damage(newest) == "more.npy is not in manifest.json"
    assert damage(newest, beside=("more.npy",)) is None


def test_what_file_managers_leave_is_no_damage(parent):
    (checkpoint.checkpoint_folders(parent)[-1] / ".DS_Store").write_bytes(b"\0")
    found, problems = checkpoint.newest(parent)
    assert found is not None
    assert (found.values["step"], problems) == (2, [])


def test_what_cannot_be_read_just_now_is_not_passed_over(parent, monkeypatch):
    """Passing over would delete it, and it may be whole."""

    def refuse(path):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("seqloom.files.sha256", refuse)
    with pytest.raises(SeqloomError, match=r"step-000000002.*: could not be read: Too many open files"):
        checkpoint.newest(parent)


def test_every_flipped_bit_of_weights_is_noticed(tmp_path):
    path, draw = tmp_path / "model.safetensors", random.Random(6)
    checkpoint.save_weights(path, tensors(1))
    whole = path.read_bytes()
    for _ in range(60):
        path.write_bytes(flipped(whole, draw))
        if checkpoint.CHECKSUM.encode() in path.read_bytes():
            with pytest.raises(SeqloomError, match="damaged"):
                checkpoint.read_tensors(path)
        else:  # the name of the sum itself was hit, and the tensors are whole
            found = checkpoint.read_tensors(path)
            assert all(torch.equal(found[name], tensor) for name, tensor in tensors(1).items())


def test_weights_without_a_sum_are_taken_as_they_are(tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(tensors(1), path)
    assert torch.equal(checkpoint.read_tensors(path)["w"], tensors(1)["w"])


def test_the_sum_is_of_every_kind_of_tensor(tmp_path):
    kinds = {"bf16": torch.ones(3, dtype=torch.bfloat16), "bool": torch.tensor([True]), "none": torch.zeros(0, 2)}
    kinds |= {"one": torch.tensor(3), "turned": torch.arange(6).view(2, 3).T}
    checkpoint.save_weights(tmp_path / "model.safetensors", kinds)
    found = checkpoint.read_tensors(tmp_path / "model.safetensors")
    assert all(torch.equal(found[name], tensor) for name, tensor in kinds.items())
    assert checkpoint.checksum(kinds) != checkpoint.checksum(kinds | {"one": torch.tensor(3.0)})
