"""The front of the command line: usage errors, versions, completion, colours, pipes."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from seqloom.version import __version__
from tests.cli.conftest import one_line
from tests.conftest import words, write_pairs

COMMAND = [sys.executable, "-c", "from seqloom.cli.main import run; run()"]


def shell(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    words = [*COMMAND, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, env=os.environ | environment, timeout=120)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["trian"], "no such command 'trian'; did you mean 'train'? Try seqloom --help"),
        (["data", "chek"], "no such command 'chek'; did you mean 'check'? Try seqloom data --help"),
        (["train", "translate", "x", "--ouput", "y"], "--ouput; did you mean '--output'? Try seqloom train --help"),
        (
            ["train", "translate", "x"],
            "missing option '--output' / '-o': a folder for the run; try seqloom",
        ),
        (["train"], "name a task and files, as in: seqloom train translate words.tsv -o runs/words; or a --recipe"),
        (["train", "translate", "x", "-o"], "'-o' requires an argument; try seqloom train --help"),
        (["train", "translate", "x", "-o", "y", "--epochs", "two"], "'--epochs'"),
        (["demo", "--steps", "0"], "'--steps'"),
        (["--wrong"], "no such option"),
        (["setings"], "no such command 'setings'; did you mean 'settings'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_usage_error_is_one_line(seqloom, arguments, told):
    result = seqloom(*arguments)
    one_line(result, told)
    assert result[0] == 2


def test_a_command_is_guessed_by_older_typers_too(seqloom, monkeypatch):
    from seqloom.cli import main

    error = main.UsageError("No such command 'chekc'.")
    error.ctx = type("Context", (), {"command": type("Group", (), {"commands": {"check": 0, "show": 0}})})
    error.ctx.command_path = "seqloom data"
    assert main._usage_message(error) == "no such command 'chekc'; did you mean 'check'? Try seqloom data --help"


def test_the_help_of_train_has_the_usual_options_first(seqloom, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    shown = seqloom("train", "--help")[1]
    usual, *more = re.split(r"╭─ (?!Arguments)", shown)[1:]
    names = re.findall(r"--([a-z-]+)", "\n".join(line[:30] for line in usual.splitlines()))
    assert len([name for name in dict.fromkeys(names) if name != "help"]) == 10
    titles = [part.split(" ─")[0] for part in more]
    assert titles == [
        "Which data",
        "How text becomes tokens",
        "How to train",
        "What to start from",
        "Several trainings or processes",
        "What is printed",
    ]


def test_no_command_shows_the_help(seqloom):
    for command in ([], ["data"]):
        status, out, err = seqloom(*command)
        assert (status, err) == (2, "")
        assert "Usage" in out


def test_versions_need_no_torch(seqloom):
    status, out, _ = seqloom("--version")
    assert status == 0
    assert re.fullmatch(rf"seqloom {re.escape(__version__)} \(python 3\.\d+\.\d+, torch \S+\)\n", out)
    code = "import sys; sys.argv = ['seqloom', '--version']; from seqloom.cli.main import run\n"
    code += "try: run()\nexcept SystemExit: pass\nassert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion_for_any_shell_whichever_is_running(name):
    shown = shell("--show-completion", name)
    assert shown.returncode == 0
    assert f"_SEQLOOM_COMPLETE=complete_{name}" in shown.stdout


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("seqloom tr", ["train"]),
        ("seqloom train --model trans", ["transformer", "transformer-crf"]),
        ("seqloom train cl", ["classify"]),
        ("seqloom train --size ", ["tiny", "small", "base"]),
        ("seqloom train --schedule c", ["constant", "cosine"]),
        ("seqloom train --source-tokens ", ["chars", "words", "terms", "jieba", "bytes", "bpe:"]),
        ("seqloom train --target-tokens j", ["jieba"]),
        ("seqloom train --half", ["--half-width"]),
    ],
)
def test_values_are_completed(line, offered):
    place = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_SEQLOOM_COMPLETE": "complete_bash"}
    assert shell(**place).stdout.split() == offered


def test_ctrl_c_is_130_and_no_traceback(seqloom, monkeypatch):
    from seqloom.runs import load as loading

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(loading, "load", interrupted)
    status, out, err = seqloom("predict", "run", "file")
    assert (status, out) == (130, "")
    assert "Traceback" not in err


def test_a_reader_that_leaves_is_no_error(run, tmp_path):
    """`seqloom predict … | head`: once with more output than a pipe holds, once with less than a buffer."""
    for count in (3, 4000):
        file = write_pairs(tmp_path / f"{count}.tsv", words(min(count, 900)) * max(count // 900, 1))
        command = [*COMMAND, "predict", str(run), str(file), "--scores"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 1


@pytest.mark.parametrize(("variable", "banned"), [("NO_COLOR", r"\x1b\[[\d;]*(3[0-7]|9[0-7])m"), ("TERM", r"\x1b")])
def test_no_colours_where_they_are_not_wanted(variable, banned):
    """In a real terminal: `script` of its own, made by the pty module."""
    code = "import pty, sys; sys.exit(pty.spawn([sys.executable, '-c', sys.argv[1], '--help']) >> 8)"
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    environment |= {"TERM": "xterm-256color", "COLUMNS": "100"}

    def shown(**changed: str) -> str:
        done = [sys.executable, "-c", code, COMMAND[2]]
        return subprocess.run(done, capture_output=True, text=True, env=environment | changed, timeout=60).stdout

    assert re.search(banned, shown()), "in colour unless told otherwise"
    plain = shown(**{variable: "1" if variable == "NO_COLOR" else "dumb"})
    assert "Usage" in plain
    assert not re.search(banned, plain)
