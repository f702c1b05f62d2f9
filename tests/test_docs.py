"""The README and the pages of docs/, in both languages: their commands and snippets run, their links lead somewhere."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
READMES = ("README.md", "README.zh-CN.md")
SUBJECTS = sorted(path.name for path in (ROOT / "docs").glob("*.md"))
TWINS = [READMES, *((f"docs/{name}", f"docs/zh/{name}") for name in SUBJECTS)]  # an English page, and its Chinese one
PAGES = [page for language in zip(*TWINS, strict=True) for page in language if (ROOT / page).is_file()]
LINKED = [*PAGES, "CONTRIBUTING.md", "CHANGELOG.md"]
LINES, BYTES = 130, {"README.md": 9_000, "README.zh-CN.md": 11_000}
PINYIN = {"wo ai bei jing": "我爱北京。", "ni hao ma": "你好吗？", "wo xi huan ping guo": "我喜欢苹果！"}


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.S)


def commands(page: str) -> list[str]:
    """The lines of its console blocks, without comments."""
    lines = (line.partition("#")[0].strip() for block in blocks(page, "console") for line in block.splitlines())
    return [line for line in lines if line]


def snippets(page: str) -> list[str]:
    """Its Python blocks, without comments, cut short: two steps, and words that the small data below has."""
    short = (("max_steps=200", "max_steps=2"), ("through", "cab"), ("though", "bad"))
    found = []
    for block in blocks(page, "python"):
        for long, brief in short:
            block = block.replace(long, brief)
        found.append(ast.unparse(ast.parse(block)))
    return found


def test_every_page_has_a_twin_in_the_other_language():
    assert sorted(path.name for path in (ROOT / "docs" / "zh").glob("*.md")) == SUBJECTS
    for one, other in (READMES, READMES[::-1]):
        assert f"({other})" in (ROOT / one).read_text().splitlines()[0]


@pytest.mark.parametrize("page", READMES)
def test_the_front_page_is_short(page):
    """The manual belongs into docs/."""
    text = (ROOT / page).read_bytes()
    assert len(text.splitlines()) <= LINES
    assert len(text) <= BYTES[page]


@pytest.mark.parametrize(("english", "chinese"), TWINS, ids=[pair[0] for pair in TWINS])
def test_both_languages_show_the_same(english, chinese):
    """A Chinese page may have more commands, of Chinese; pictures, headings and snippets are the same in number."""
    assert set(commands(english)) <= set(commands(chinese))
    assert set(snippets(english)) == set(snippets(chinese))
    assert len(list(headings(english))) == len(list(headings(chinese)))


# What the pages take for granted: `words.tsv` and the like, small.


def write_data(folder: Path) -> None:
    from tests.conftest import words, write_pairs

    write_pairs(folder / "words.tsv", [*words(80), "cab"])
    write_pairs(folder / "test.tsv", words(10, seed=5))
    texts = [f"{good} {thing} number {i}" for i in range(40) for good, thing in (("fine", "film"), ("poor", "song"))]
    files = {
        "words.txt": "abc\nchad\n",
        "texts.txt": "".join(f"{text}\n" for text in texts),
        "labelled.tsv": "".join(f"{text}\t{text.split()[0]}\n" for text in texts),
        "tagged.conll": "".join(f"{text.split()[0]} A\n{text.split()[1]} N\n\n" for text in texts),
        "book.txt": "Once upon a time there was a loom.\n" * 60,
        "hanzi.tsv": "".join(f"{source}\t{target}\n" for source, target in PINYIN.items()) * 20,
        "hanzi-test.tsv": "ni hao\t你好\n",
        "hanzi.txt": "ni hao\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "examples").symlink_to(ROOT / "examples")


class Reader:
    """Follows the pages in one folder. A command that another page has shown before is not run again; the run that a
    command needs is trained first, as its own page shows it, so that every page can be tested by itself."""

    def __init__(self, folder: Path) -> None:
        self.done: set[str] = set()
        self.makers: dict[str, str] = {}  # the command that makes a folder
        shown = (command for page in PAGES for command in commands(page) if "--output" in command)
        for command in shown:
            words = shlex.split(command)
            if "report" not in words and "predict" not in words and "--resume" not in words:
                made = words[words.index("--output") + 1]
                assert self.makers.setdefault(made, command) == command, f"{made} is made in two ways"
        write_data(folder)

    def follow(self, command: str) -> None:
        if command in self.done or not command.startswith("seqloom "):
            return
        self.done.add(command)
        words = shlex.split(command)
        for word in words:
            if self.makers.get(word, command) != command:
                self.follow(self.makers[word])
        if "train" in words and "--resume" not in words:
            words += ["--max-steps", "2", *([] if "--from" in words else ["--size", "tiny"])]
        status, error = run(words)
        assert not status, f"{command}: {error}"


def run(words: list[str]) -> tuple[object, str]:
    """A command in this process: its exit status, and the error that was printed."""
    from seqloom.cli.main import run as main

    heard, before = io.StringIO(), sys.argv
    sys.argv = words
    try:
        with contextlib.redirect_stderr(heard):
            main()
    except SystemExit as left:
        return left.code, heard.getvalue()
    finally:
        sys.argv = before
    return 0, ""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reader")


@pytest.fixture(scope="module")
def reader(folder):
    return Reader(folder)


@pytest.mark.parametrize("page", PAGES)
def test_every_command_runs(page, reader, folder, monkeypatch):
    """Every `seqloom …` line, on small data; training is cut short by later options."""
    monkeypatch.chdir(folder)
    assert page not in READMES or len(commands(page)) >= 10
    for command in commands(page):
        reader.follow(command)


@pytest.fixture(scope="module")
def ran():
    return set()


@pytest.mark.parametrize("page", [page for page in PAGES if snippets(page)])
def test_every_snippet_runs(page, ran, tmp_path, monkeypatch):
    """In order, in one folder; those of the Chinese page are the same, and do not run twice."""
    monkeypatch.chdir(tmp_path)
    if set(snippets(page)) <= ran:
        return
    write_data(tmp_path)
    for number, snippet in enumerate(snippets(page)):
        file = tmp_path / f"snippet{number}.py"
        file.write_text(snippet)
        runpy.run_path(str(file), run_name="__main__")
        ran.add(snippet)
        for drawn in re.findall(r"plot\('(.*?)'\)", snippet):
            assert (tmp_path / drawn).stat().st_size


def prose(page: str | Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.S | re.M)


def headings(page: str | Path) -> Iterator[str]:
    """The anchors that GitHub gives its headings."""
    seen: dict[str, int] = {}
    for title in re.findall(r"^#+ (.*)$", prose(page), re.M):
        title = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", title)
        anchor = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        count = seen[anchor] = seen.get(anchor, -1) + 1
        yield f"{anchor}-{count}" if count else anchor


@pytest.mark.parametrize("page", LINKED)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        assert target.resolve().is_relative_to(ROOT), link
        assert not anchor or anchor in headings(target), link


def keys(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield key
            yield from keys(below)


def options(command: Any) -> Iterator[str]:
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    for below in getattr(command, "commands", {}).values():
        yield from options(below)


OTHERS = {"--max-restarts"}  # an option of torchrun


@pytest.mark.parametrize("page", PAGES)
def test_settings_and_options_that_are_named_exist(page):
    import typer

    from seqloom.cli.main import app
    from seqloom.runs.settings.setting_table import FILE

    known = set(keys(json.loads(FILE.read_text())))
    quoted = [words for words in re.findall(r"`([^`]+)`", prose(page)) if not words.startswith("python ")]
    pairs = [re.search(r"--set (?:\w+\.)*(\w+)=|(?:^|\s)(?:data|training)\.(?!json)(\w+)", words) for words in quoted]
    named = {first or second for first, second in (found.groups() for found in pairs if found)}
    assert named - {"name", "zip"} <= known
    offered = set(options(typer.main.get_command(app))) | OTHERS
    assert {option for words in quoted for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", words)} <= offered


def test_what_contributors_are_sent_to_exists():
    """Files by their paths from the top or from seqloom/, others by name; and the tables, in capitals."""
    quoted = set(re.findall(r"`([\w./-]+)`", prose("CONTRIBUTING.md")))
    files = {name for name in quoted if re.search(r"/|\.(py|md|txt|json)$", name)}
    sources = [path for top in ("seqloom", "tests", "benchmarks") for path in (ROOT / top).rglob("*.py")]
    known = {path.name for path in sources} | {"setting_table.json"}
    assert not {n for n in files if n not in known and not any((ROOT / top / n).exists() for top in ("", "seqloom"))}
    text = "\n".join(path.read_text() for path in sources)
    tables = {name for name in quoted if name.isupper() and len(name) > 2}
    assert not {name for name in tables if not re.search(rf"^{name}\b", text, re.M)}
