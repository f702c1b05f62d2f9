"""Mixers through the front door: set by name, trained, loaded, generating; and runs from before there was a choice."""

import pytest
import yaml

import seqloom
from seqloom import SeqloomError

SMALL = {
    f"{side}.{name}": value for side in ("encoder", "decoder") for name, value in {"dim": 16, "heads": 2}.items()
} | {"embedding": 16}


def translator(pairs, folder, settings):
    training = {"max_steps": 2, "batch_rows": 8}
    return seqloom.train(
        "translate",
        pairs,
        output=folder,
        model="transformer",
        size="tiny",
        valid="10%",
        training=training,
        settings={**SMALL, **settings},
        quiet=True,
    )


def test_a_translator_with_two_mixers(pairs, tmp_path):
    settings = {"encoder.mixer": "window", "encoder.mixer.window": 3, "decoder.mixer": "linear"}
    translator(pairs, tmp_path / "run", settings)
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["model"]
    assert config["encoder"]["mixer"] == {"kind": "window", "window": 3}
    assert config["decoder"]["mixer"] == {"kind": "linear"}
    one, two = seqloom.load(tmp_path / "run").predict(["abc", "chad"])
    assert [one, two] == [*seqloom.load(tmp_path / "run").predict(["abc"]), two]


def test_what_cannot_write_is_said_in_one_line(pairs, tmp_path):
    with pytest.raises(SeqloomError, match="mixer 'linformer' sees what comes after") as caught:
        translator(pairs, tmp_path / "run", {"decoder.mixer": "linformer"})
    assert "\n" not in str(caught.value)
    with pytest.raises(SeqloomError, match="window of Window is at least 1, here 0"):
        translator(pairs, tmp_path / "run", {"encoder.mixer": "window", "encoder.mixer.window": 0})


def test_a_run_from_before_there_was_a_choice(pairs, tmp_path):
    folder = tmp_path / "run"
    translator(pairs, folder, {})
    wanted = seqloom.load(folder).predict(["abc", "cab"])
    config = yaml.safe_load((folder / "config.yaml").read_text())
    for side in ("encoder", "decoder"):
        assert config["model"][side].pop("mixer")["kind"] == "attention"
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    assert seqloom.load(folder).predict(["abc", "cab"]) == wanted
