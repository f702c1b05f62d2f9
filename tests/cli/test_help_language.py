"""--lang: by option, variable and locale; help and pages in Chinese, errors in English."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from itertools import pairwise

import pytest

from seqloom.cli import help_language
from seqloom.cli.chinese_lines import breaks
from tests.cli.conftest import one_line

CHINESE = re.compile(r"[\u4e00-\u9fff]")


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("SEQLOOM_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("arguments", "environment", "chinese"),
    [
        (["--help"], {}, False),
        (["--lang", "zh", "--help"], {}, True),
        (["--help", "--lang=zh"], {}, True),
        (["report", "--help", "--lang", "zh"], {}, True),
        (["--help"], {"SEQLOOM_LANG": "zh"}, True),
        (["--help"], {"LANG": "zh_CN.UTF-8"}, True),
        (["--help"], {"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, False),
        (["--lang", "en", "--help"], {"SEQLOOM_LANG": "zh"}, False),
        (["--lang", "en", "--help"], {"SEQLOOM_LANG": "nonsense"}, False),
    ],
)
def test_the_language_of_help(seqloom, monkeypatch, arguments, environment, chinese):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    status, out, err = seqloom(*arguments)
    assert (status, err) == (0, "")
    assert bool(CHINESE.search(out)) == chinese
    assert ("Usage:" in out) != chinese
    assert os.environ.get("SEQLOOM_LANG") == environment.get("SEQLOOM_LANG")  # put back


@pytest.mark.parametrize("command", [(), ("train",), ("data", "check"), ("embed",), ("import",)], ids=" ".join)
def test_help_in_chinese_is_whole(seqloom, command):
    shown = seqloom("--lang", "zh", *command, "--help")[1]
    assert {"Usage", "Options", "Arguments", "Commands", "default", "required", "Show"}.isdisjoint(
        re.findall("[A-Za-z]+", shown)
    )
    english = seqloom(*command, "--help")[1]
    assert "Usage" in english  # and English again
    assert not CHINESE.search(english)
    options = re.findall(r"--[a-z][a-z-]+", english)
    assert set(options) <= set(re.findall(r"--[a-z][a-z-]+", shown))


@pytest.mark.parametrize("command", [(), ("report",), ("train",)], ids=" ".join)
def test_an_unknown_language(seqloom, monkeypatch, command):
    result = seqloom(*command, "--lang", "fr", "--help")
    one_line(result, "--lang: unknown language 'fr'. Choose from: en, zh")
    assert result[0] == 2
    monkeypatch.setenv("SEQLOOM_LANG", "fr")
    result = seqloom(*command, "--help")
    one_line(result, "SEQLOOM_LANG: unknown language 'fr'")
    assert result[0] == 2


def test_errors_stay_english(seqloom):
    result = seqloom("--lang", "zh", "report", "no-such-folder")
    one_line(result, "no such run")
    assert not CHINESE.search(result[2])
    one_line(seqloom("--lang", "zh", "trian"), "no such command 'trian'; did you mean 'train'?")
    one_line(seqloom("--lang"), "requires an argument")


def test_a_report_in_chinese(seqloom, run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    for arguments in (("--lang", "zh", "report", copy), ("report", copy, "--lang", "zh")):
        (copy / "report.html").unlink()
        (copy / "README.md").unlink()
        assert seqloom(*arguments)[0] == 0
        assert '<html lang="zh-CN">' in (copy / "report.html").read_text(encoding="utf-8")
        assert "## 局限" in (copy / "README.md").read_text(encoding="utf-8")
    assert seqloom("report", copy)[0] == 0
    assert '<html lang="en">' in (copy / "report.html").read_text(encoding="utf-8")
    assert "## Limits" in (copy / "README.md").read_text(encoding="utf-8")  # a card of ours is written anew


def test_what_is_started_meanwhile_has_the_same_language():
    print_it = [sys.executable, "-c", "import os; print(os.environ['SEQLOOM_LANG'])"]
    with help_language.chosen(["train", "--lang", "zh"]):
        assert subprocess.run(print_it, capture_output=True, text=True, check=True).stdout == "zh\n"


def test_english_reads_no_table():
    code = """
import sys
from itertools import pairwise
from seqloom.cli.main import run
sys.argv = ["seqloom", "--help"]
try:
    run()
except SystemExit:
    pass
from seqloom import language
assert language.table.cache_info().currsize <= 1, "a table was read"
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("训练模型", 4, ["训练", "模型"]),
        ("训练，模型", 4, ["训", "练，", "模型"]),  # no line begins with a comma
        ("用 --lang zh 选择", 8, ["用", "--lang", "zh 选择"]),
        ("（默认：7）。", 8, ["（默认：", "7）。"]),
        ("log_probability；", 10, ["log_probab", "ility；"]),
        ("一\n二", 10, ["一", "二"]),
        ("", 10, [""]),
    ],
)
def test_lines_of_chinese(text, width, lines):
    places = [0, *breaks(text, width), len(text)]
    assert [text[a:b].rstrip() for a, b in pairwise(places)] == lines
