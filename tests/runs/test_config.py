"""Configs of older runs."""

from __future__ import annotations

import pytest
import yaml

import seqloom
from seqloom.errors import SeqloomError
from seqloom.runs import config as configs
from tests.conftest import words, write_pairs


def test_a_run_from_before_an_option_resumes(tmp_path):
    """What it does not say is the default; anything else is still another setting."""
    data, folder = write_pairs(tmp_path / "few.tsv", words(40)), tmp_path / "run"
    settings = {"size": "tiny", "valid": "10%", "quiet": True, "output": folder}
    seqloom.train("translate", data, training={"max_steps": 2}, **settings)
    older = yaml.safe_load((folder / "config.yaml").read_text())
    del older["data"]["half_width"]
    (folder / "config.yaml").write_text(yaml.safe_dump(older))
    with pytest.raises(SeqloomError, match=r"data\.half_width: False -> True"):
        seqloom.train("translate", data, data={"half_width": True}, resume=True, **settings)
    assert seqloom.train("translate", data, training={"max_steps": 3}, resume=True, **settings).step == 3


def test_a_newer_format_is_named(tmp_path):
    (tmp_path / "config.yaml").write_text("format: 99\n")
    with pytest.raises(SeqloomError, match=r"newer Seqloom \(format 99, this one reads up to \d+\); upgrade seqloom"):
        configs.load(tmp_path)
