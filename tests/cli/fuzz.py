"""Command lines and configurations by a seed: right ones, with one thing or several wrong in each."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import typer
import yaml

from seqloom.cli.main import app
from seqloom.runs.settings.setting_table import Setting, settings
from seqloom.tasks.presets import about
from seqloom.tasks.registry import TASKS
from tests.cli import hostile
from tests.conftest import words, write_pairs

FILES = {"translate": "data/pairs.tsv", "classify": "data/labelled.tsv", "tag": "data/tagged.conll"}
FILES |= {"generate": "data/book.txt", "table": "data/table.csv", "mask": "data/book.txt", "vectors": "data/book.txt"}
RECIPE = ("name", "about", "task", "train", "valid", "test", "model", "size", "data", "training", "settings", "members")
RECIPE += ("evaluate", "published", "reached", "paper")
PLAIN = ("training.max_steps", "training.epochs", "training.log_every")  # larger ones are right, and only slow


@dataclass(frozen=True)
class Case:
    """Words after `seqloom`; or, where `settings` are, what --set would have to make of a task's model. `files` are
    written first."""

    kind: str
    words: list[str]
    settings: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)


def make_files(folder: Path) -> None:
    """Data of every task, and what is none."""
    folder.mkdir()
    write_pairs(folder / "pairs.tsv", words(40))
    book = "Once upon a time there was a loom that wove a long red thread.\n" * 20
    texts = [
        f"{good} {thing} number {i}\t{good}" for i in range(10) for good, thing in (("fine", "film"), ("poor", "song"))
    ]
    tagged = "".join(f"film{i % 5} A\nfine N\n\n" for i in range(20))
    table = "a,b,y\n" + "".join(f"{i},{i % 3},{'u' if i % 2 else 'v'}\n" for i in range(40))
    texts = {"book.txt": book, "labelled.tsv": "\n".join(texts), "tagged.conll": tagged, "table.csv": table}
    texts |= {"empty": "", "empty.yaml": "", "vectors": "loom 0.1 0.2\nred 0.3 0.4\n", "blank.tsv": "\n\n\n"}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "bytes").write_bytes(bytes(range(256)) * 8)
    (folder / "null").symlink_to("/dev/null")
    (folder / "full").symlink_to("/dev/full")


@cache
def keys(task: str, model: str) -> list[Setting]:
    return settings(task, model, "tiny")


@cache
def options(*command: str) -> dict[str, bool]:
    """The options of a command, and whether they take a value."""
    here: Any = typer.main.get_command(app)
    for word in command:
        here = here.commands[word]
    found = [one for one in here.params if one.opts[0].startswith("-")]
    return {name: not one.is_flag for one in found for name in (*one.opts, *one.secondary_opts) if name != "-o"}


class Fuzz:
    """Cases by a seed. `place`: the folder that commands are given in, with `data/` of `make_files` and `runs/`.

    A training is of few rows and one step. What would be right and take long is left out; so is what is right and
    writes outside, as `-o ..` may.
    """

    def __init__(self, seed: int, runs: list[str], rehearsed: float = 0.5) -> None:
        self.draw, self.runs, self.rehearsed = random.Random(seed), runs, rehearsed

    def case(self, number: int) -> Case:
        make: Callable[[int], Case] = self.draw.choices(
            [self.setting, self.written, self.training, self.other], (5, 2, 3, 3)
        )[0]
        return make(number)

    def setting(self, number: int) -> Case:
        task, model = self._task_and_model()
        return Case("setting", [task, model], [self._set(task, model) for _ in range(self.draw.choice((1, 1, 1, 2)))])

    def training(self, number: int) -> Case:
        """`train`, with options, settings and now and then a slip in the words."""
        draw, (task, model) = self.draw, self._task_and_model()
        file = draw.choice([*FILES.values(), *hostile.PLACES, *hostile.SETS]) if self._once_in(8) else FILES[task]
        line = ["train", task, file, "--size", "tiny", "--batch-rows", "8", "--max-steps", "1", "--model", model]
        line += ["--set", "training.valid_decode=4"]
        line += ["--dry-run"] if draw.random() < self.rehearsed else ["--quiet"]
        for _ in range(draw.choice((0, 1, 1, 2, 3))):
            line += self._option("train")
        for _ in range(draw.choice((0, 1, 1, 2))):
            line += ["--set", self._set(task, model)]
        output = draw.choice(hostile.ONLY["--output"]) if self._once_in(12) else f"out/{number}"
        return Case("train", [*self._slipped(line), "--output", output, "--device", "cpu"])

    def other(self, number: int) -> Case:
        """Every other command on its right arguments, with options, wrong files and slips."""
        draw = self.draw
        run = draw.choice(hostile.PLACES) if self._once_in(10) else draw.choice(self.runs)
        file = draw.choice([*hostile.PLACES, *hostile.SETS]) if self._once_in(6) else draw.choice(list(FILES.values()))
        given = [file] if draw.random() < 0.9 else draw.choice([[], [file, file], [run, file]])
        task = draw.choice([*TASKS, draw.choice(hostile.VALUES)])
        name = draw.choice([*hostile.SETS, "nope", *hostile.TEXTS])
        commands = {
            ("predict",): [run, *given],
            ("evaluate",): [run, *given],
            ("generate",): [run, "--length", "5"],
            ("embed",): [run, *given],
            ("info",): [run],
            ("report",): [run, *draw.choice([[], [draw.choice(self.runs)]]), "--output", f"out/{number}.html"],
            ("export",): [run, "--to", draw.choice(hostile.OPTIONS["--to"]), "--output", f"out/{number}"],
            ("import",): [
                draw.choice(["hf", "hf", "x"]),
                draw.choice([run, *hostile.PLACES]),
                "--output",
                f"out/{number}",
            ],
            ("data", "check"): [task, *given],
            ("data", "list"): [],
            ("data", "show"): [name],
            ("data", "get"): [draw.choice(["copy", "nope", *hostile.TEXTS]), "--output", f"out/{number}"],
            ("recipes",): [name],
            ("settings",): [task],
        }
        command = draw.choice(list(commands))
        line = [*command, *commands[command]]
        for _ in range(draw.choice((0, 1, 1, 2, 3)) if options(*command).keys() - {"--help"} else 0):
            line += self._option(*command)
        return Case(" ".join(command), self._slipped(line))

    def written(self, number: int) -> Case:
        """A model or a recipe in YAML, right but for a few places."""
        draw, (task, model) = self.draw, self._task_and_model()
        path = f"out/{number}.yaml"
        end = ["--dry-run"] if draw.random() < self.rehearsed else ["--quiet"]
        end += ["--max-steps", "1", "--batch-rows", "8", "--device", "cpu", "--output", f"out/{number}"]
        if self._once_in(2):
            parts = {one.key: one.default for one in keys(task, model) if not one.key.startswith("data.")}
            tree = {"training": {}, "preset": model, "size": "tiny"}
            for key in draw.sample(list(parts), min(len(parts), 6)):
                _put(tree, key, parts[key])
            line = ["train", task, FILES[task], "--model", path, *end]
        else:
            tree = {"about": "x", "task": task, "train": str(Path("..") / FILES[task]), "model": model, "size": "tiny"}
            tree |= {"training": {"valid_decode": 4}, "data": {"limit": 40}}
            if self._once_in(6):
                tree["members"] = [
                    {"seed": 1},
                    draw.choice([{"seed": 2}, {"seed": "a"}, {"model": "x"}, self._tree(1)]),
                ]
            tree |= {name: self._tree(1) for name in draw.sample(RECIPE, draw.choice((0, 1, 1, 2)))}
            end = end[:-2] if self._once_in(4) else end  # then its own name says where the run goes
            line = draw.choice([["train", "--recipe", path, *end], ["recipes", path]])
        for _ in range(draw.choice((0, 1, 2))):
            self._spoil(tree)
        text = self._yaml(tree if draw.random() < 0.95 else self._tree(0))
        return Case("yaml", line, files={path: text})

    def _task_and_model(self) -> tuple[str, str]:
        task = self.draw.choice(list(TASKS))
        return task, self.draw.choice(list(about(task)))

    def _once_in(self, times: int) -> bool:
        return self.draw.randrange(times) == 0

    def _set(self, task: str, model: str) -> str:
        """`key=value`, of which at least one is likely to be wrong."""
        one = self.draw.choice(keys(task, model))
        key = one.key
        if key in PLAIN:
            return f"{key}={self.draw.choice(hostile.STEPS)}"
        if self._once_in(5):
            key = key.rpartition(".")[0] or key
        if self._once_in(12):
            key += self.draw.choice([".kind", ".x", ".dim", ".0", ".", "..kind"])
        if self._once_in(12):
            key = self._slip(key)
        value = self.draw.choice(one.choices) if one.choices and self._once_in(4) else self._value()
        return self._slip(key) if self._once_in(30) else f"{key}={value}"

    def _value(self) -> str:
        if self._once_in(6):
            return str(self.draw.randint(-3, 40))
        value = self.draw.choice(hostile.VALUES)
        return self._slip(value) if self._once_in(8) else value

    def _option(self, *command: str) -> list[str]:
        """An option of the command; `--install-completion` is none of these, and what would take long is left out."""
        takes = options(*command)
        name = self.draw.choice([name for name in takes if name not in ("--help", "--set")])
        if not takes[name]:
            return [name]
        if name in hostile.ONLY:
            return [name, self.draw.choice(hostile.ONLY[name])]
        usual = hostile.OPTIONS.get(name, hostile.NUMBERS)
        return [name, self.draw.choice(usual if self.draw.random() < 0.7 else hostile.VALUES)]

    def _slipped(self, line: list[str]) -> list[str]:
        """Now and then a slip in one of the words; not in where something is written."""
        if not self._once_in(12):
            return line
        place = self.draw.randrange(len(line))
        safe = line[place] in ("--output", "--max-steps", "--length") or line[place - 1] in (
            "--output",
            "--max-steps",
            "--length",
        )
        return line if safe else [*line[:place], self._slip(line[place]), *line[place + 1 :]]

    def _slip(self, word: str) -> str:
        letters = list(word)
        for _ in range(self.draw.randint(1, 3)):
            place = self.draw.randrange(len(letters) + 1)
            what = self.draw.choice(("add", "drop", "change"))
            if what == "add" or not letters:
                letters.insert(place, self.draw.choice(string.printable[:95].replace("/", "") + "é中\u202e"))
            elif what == "drop":
                letters.pop(min(place, len(letters) - 1))
            else:
                letters[min(place, len(letters) - 1)] = self.draw.choice(string.ascii_letters + "._-=")
        return "".join(letters)

    def _tree(self, depth: int) -> Any:
        """Any YAML: a value, keys and values, a list."""
        kind = self.draw.random()
        if kind < 0.5 or depth > 3:
            return self._value()
        if kind < 0.8:
            names = self.draw.choices(
                [*RECIPE, "kind", "encoder", "decoder", "layers", "dim", "beam", "seed", "per"], k=3
            )
            return {name: self._tree(depth + 1) for name in names}
        return [self._tree(depth + 1) for _ in range(self.draw.randint(0, 3))]

    def _spoil(self, tree: dict[str, Any]) -> None:
        """Another value, another name, or nothing, somewhere in it."""
        here = tree
        while here:
            key = self.draw.choice(list(here))
            if isinstance(here[key], dict) and here[key] and self.draw.random() < 0.75:
                here = here[key]
                continue
            what = self.draw.choice(("value", "value", "name", "gone"))
            value = here.pop(key)
            if what != "gone" and key not in ("max_steps", "epochs"):
                here[self._slip(key) if what == "name" else key] = value if what == "name" else self._tree(2)
            return

    def _yaml(self, tree: Any) -> str:
        """As text, whose values may be tags, dates and anything else that YAML reads."""
        text = json.dumps(tree, ensure_ascii=False) if self._once_in(3) else _plain(tree)
        if self._once_in(10):
            place = self.draw.randrange(len(text) + 1)
            text = text[:place] + self.draw.choice(hostile.VALUES) + text[place:]
        return self._slip(text) if self._once_in(10) else text


def _plain(tree: Any, indent: str = "") -> str:
    """Block style with values as they are, not quoted: `!!int x` stays a tag."""
    if isinstance(tree, dict) and tree:
        return "".join(f"\n{indent}{key}: {_plain(value, indent + '  ')}" for key, value in tree.items())
    if isinstance(tree, list) and tree:
        return "".join(f"\n{indent}- {_plain(value, indent + '  ')}" for value in tree)
    return (
        tree if isinstance(tree, str) else yaml.safe_dump(tree, default_flow_style=True).removesuffix("...\n").strip()
    )


def _put(tree: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    for name in path:
        inner = tree.get(name)
        tree[name] = inner if isinstance(inner, dict) else {} if inner is None else {"kind": inner}
        tree = tree[name]
    if not isinstance(tree.get(last), dict):
        tree[last] = value
