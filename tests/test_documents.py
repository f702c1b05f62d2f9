"""JSON and YAML of anybody: bounded in depth, size and aliases, quickly."""

from __future__ import annotations

import json
import os

import pytest
import yaml

from seqloom import documents
from seqloom.documents import DEPTH, parse_json, parse_yaml, read_json, read_text, read_yaml
from seqloom.errors import SeqloomError
from seqloom.runs.settings.set_option import parse_value
from tests.hostile import BOMB, within

NODES = 2000  # else it takes seconds to have so many
JSON = {
    "[" * 100_000: "nested more than 100 deep",
    '{"a":' * 100_000: "nested more than 100 deep",
    "[" * (DEPTH + 1) + "]" * (DEPTH + 1): "nested more than 100 deep",
    '{"a":' * DEPTH + "[]" + "}" * DEPTH: "nested more than 100 deep",
    "9" * 5000: "too large",
    "-" + "9" * 20: "too large",
    str(2**64): "too large",
    '"\\ud800"': "half a character",
    '{"\\uDFFF": 1}': "half a character",
    "{]": "line 1 column 2",
    "": "line 1 column 1",
}
YAML = {
    BOMB: "more than 2,000 values, aliases counted",
    BOMB.replace("[l", "{l: 1}, [l") + "k: {<<: *j}": "",
    "a: " + "[" * 100_000 + "]" * 100_000: "nested more than 100 deep",
    "{" * 3000: "nested more than 100 deep",
    "- " * 3000: "nested more than 100 deep",
    "\n".join(f"{' ' * depth}a:" for depth in range(1000)): "nested more than 100 deep",
    "[" + "a," * (NODES + 1) + "]": "more than 2,000 values",
    "&a\nm: &m {kind: *m}": "an alias stands for what it is part of",
    "&m [*m]": "an alias stands for what it is part of",
    "9" * 5000: "more than 100 digits",
    "1" + ":1" * 300_000: "more than 100 digits",
    "x" * (documents.YAML_LONGEST + 1): "more than 1,048,576 characters",
    "!!int x": "not of the type that its tag says",
    "!!float x": "not of the type that its tag says",
    "!!bool x": "not of the type that its tag says",
    "!!binary x": "nothing here takes",
    "!!set {a}": "nothing here takes",
    "{1: 2}": "the key '1' is no text",
    "{[a]: 2}": "is no text",
}


@pytest.mark.parametrize("text", JSON, ids=lambda text: text[:12])
def test_json_that_is_refused(text):
    with within(5), pytest.raises(SeqloomError, match=f"^here: cannot be read: .*{JSON[text]}") as caught:
        parse_json(text, "here")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", YAML, ids=lambda text: text[:12])
def test_yaml_that_is_refused(text, monkeypatch):
    monkeypatch.setattr(documents, "NODES", NODES)
    with within(10), pytest.raises((SeqloomError, yaml.YAMLError)) as caught:
        parse_yaml(text, "here")
    if YAML[text]:
        assert isinstance(caught.value, SeqloomError)
        assert str(caught.value).startswith("here")
        assert YAML[text] in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [None, 1.5, -(2**63), 2**64 - 1, "😀\n[" * 200, {"a": [1, {"b": None}]}, {"many": [[1, "a"]] * 500}],
    ids=lambda value: str(value)[:12],
)
def test_what_is_as_usual_is_read_as_ever(value):
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert parse_json(text, "here") == value
        assert parse_json(text.encode(), "here") == value
    if not isinstance(value, int) or abs(value) < 2**63:
        assert parse_yaml(yaml.safe_dump(value, allow_unicode=True), "here") == value


def test_depth_just_within():
    assert parse_json("[" * DEPTH + "]" * DEPTH, "here")
    assert parse_yaml("[" * (DEPTH - 1) + "]" * (DEPTH - 1), "here")


def test_aliases_as_people_and_yaml_write_them():
    same = [1, 2]
    assert parse_yaml(yaml.safe_dump({"a": same, "b": same}), "here") == {"a": same, "b": same}
    assert parse_yaml("base: &b {x: 1}\nmore: {<<: *b, y: 2}", "here")["more"] == {"x": 1, "y": 2}


@pytest.mark.parametrize("text", ["2020-99-99", "2020-01-01", "!!timestamp x", "=", "a: [", "[" * 200])
def test_a_setting_that_is_no_value_is_text(text):
    assert parse_value(text) == text.removeprefix("!!timestamp ")


def test_files(tmp_path):
    file = tmp_path / "a.json"
    for raw, told in {b"\xff": "utf-8", b"[1]": "expected keys and values", b"{": "column 2"}.items():
        file.write_bytes(raw)
        with pytest.raises(SeqloomError, match=told) as caught:
            read_json(file)
        assert str(caught.value).startswith(str(file))
    file.write_text("a: 1\nb: [")
    with pytest.raises(SeqloomError, match=r"a.json:2: not YAML"):
        read_yaml(file)
    file.write_text("a: \0")
    with pytest.raises(SeqloomError, match=r"not YAML: .*#x0000") as caught:
        read_yaml(file)
    assert "\n" not in str(caught.value)
    with pytest.raises(SeqloomError, match="no such file"):
        read_json(tmp_path / "b.json")
    with pytest.raises(SeqloomError, match="null"):
        read_json(tmp_path / "a\0b.json")


def test_a_file_without_end_is_not_read_to_its_end(tmp_path, monkeypatch):
    (tmp_path / "zeros.json").symlink_to("/dev/zero")
    with pytest.raises(SeqloomError, match="longer than 1,000 bytes"):
        read_text(tmp_path / "zeros.json", 1000)
    monkeypatch.setattr(documents, "LONGEST", 1 << 20)
    with pytest.raises(SeqloomError, match="longer than 1,048,576 bytes"):
        read_json(tmp_path / "zeros.json")
    (tmp_path / "small.json").write_text("{}")
    assert read_json(tmp_path / "small.json") == {}
    assert os.path.islink(tmp_path / "zeros.json")
