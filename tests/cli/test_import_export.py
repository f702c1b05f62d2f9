"""`seqloom import` and `seqloom export` as a stranger uses them."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import one_line
from tests.conftest import words, write_pairs

SETTINGS = [f"--set={side}.{name}" for side in ("encoder", "decoder") for name in ("dim=16", "heads=2", "layers=1")]


@pytest.fixture
def transformer(seqloom, tmp_path):
    data = write_pairs(tmp_path / "words.tsv", words(80))
    wanted = ["--model", "transformer", "--size", "tiny", "--target-tokens", "words", "--set=embedding=16", *SETTINGS]
    status, _, err = seqloom("train", "translate", data, "--output", tmp_path / "run", "--max-steps", 3, *wanted)
    assert status == 0, err
    return tmp_path / "run"


def test_there_and_back(seqloom, transformer, tmp_path):
    status, out, _ = seqloom("export", transformer, "--to", "hf", "--output", tmp_path / "hf")
    assert status == 0
    assert "pegasus" in out
    names = {file.name for file in (tmp_path / "hf").iterdir()}
    assert names >= {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "target"}
    status, out, _ = seqloom("import", "hf", tmp_path / "hf", "--output", tmp_path / "again")
    assert status == 0
    assert "pegasus" in out
    assert "parameters" in out
    (tmp_path / "asked.txt").write_text("chad\nabba\n")
    answers = [seqloom("predict", run, tmp_path / "asked.txt") for run in (transformer, tmp_path / "again")]
    assert answers[0] == answers[1]
    for command in ("info", "evaluate"):
        more = [tmp_path / "words.tsv"] if command == "evaluate" else []
        assert seqloom(command, tmp_path / "again", *more)[0] == 0
    status, out, _ = seqloom("export", transformer, "--to", "tokenizers", "--output", tmp_path / "tokens")
    assert status == 0
    assert json.loads((tmp_path / "tokens" / "source" / "tokenizer.json").read_text())["model"]["type"] == "WordLevel"


def test_wrong_exports(seqloom, run, transformer, tmp_path):
    out = tmp_path / "out"
    one_line(seqloom("export", run, "--to", "hf", "--output", out), "encoder.kind=recurrent", "Transformers")
    one_line(seqloom("export", transformer, "--to", "hfs", "--output", out), "did you mean 'hf'")
    one_line(seqloom("export", tmp_path / "nothing", "--to", "hf", "--output", out), "no such run")
    assert not out.exists()
    out.mkdir()
    one_line(seqloom("export", transformer, "--to", "hf", "--output", out), "is there already")
    one_line(seqloom("export", transformer, "--to", "tokenizers", "--output", out), "is there already")


def test_wrong_imports(seqloom, tmp_path):
    out, folder = tmp_path / "out", tmp_path / "hf"
    one_line(seqloom("import", "hf", folder, "--output", out), "no such folder", "local")
    one_line(seqloom("import", "onnx", folder, "--output", out), "unknown kind of checkpoint", "hf")
    folder.mkdir()
    one_line(seqloom("import", "hf", folder, "--output", out), "no Hugging Face folder: it has no config.json")
    (folder / "config.json").write_text("[1]")
    one_line(seqloom("import", "hf", folder, "--output", out), "config.json: expected keys and values")
    config = {"model_type": "marian", "vocab_size": 9, "d_model": 4, "eos_token_id": 0, "decoder_start_token_id": 8}
    config |= {
        f"{side}_{size}": 1 for side in ("encoder", "decoder") for size in ("layers", "attention_heads", "ffn_dim")
    }
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 8}))
    (folder / "model.safetensors").write_bytes(b"x" * 1000)
    one_line(seqloom("import", "hf", folder, "--output", out), "tokenizer.json", "--ids")
    (folder / "model.safetensors").unlink()
    one_line(seqloom("import", "hf", folder, "--output", out, "--ids"), "has no model.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"x")
    one_line(seqloom("import", "hf", folder, "--output", out, "--ids"), "pytorch_model.bin", "save_pretrained")
    (folder / "model.safetensors").write_bytes(b"x" * 1000)
    one_line(seqloom("import", "hf", folder, "--output", out, "--ids"), "model.safetensors: damaged")
    assert not out.exists()
    one_line(seqloom("import", "hf", folder, "--output", folder, "--ids"), "is there already")
