"""`seqloom laws`: which law a broken part breaks and how small the case is; and what is wrong with a file."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from seqloom.cli import laws as command
from seqloom.laws.case import Case
from seqloom.laws.checking import check
from seqloom.laws.common import devices
from seqloom.laws.compare import LawError, NotApplicable, difference, require_close
from seqloom.laws.kinds import KINDS
from seqloom.laws.subjects import drawn, pieces
from seqloom.laws.user_file import parts_of
from tests.cli.conftest import one_line

BROKEN = Path(__file__).with_name("broken_parts.py")
OWN = Path(__file__).parents[2] / "examples" / "own_cell.py"
TABLES = [(kind, name) for kind, one in KINDS.items() for name in one.table]


@pytest.mark.parametrize(("kind", "name"), TABLES)
@pytest.mark.parametrize("seed", [0, 7])
def test_our_own_parts_obey(kind, name, seed):
    (part,) = parts_of(name, kind)
    found = list(check(part, KINDS[kind], KINDS[kind].laws, seed))
    assert not [(one.law.name, one.message) for one in found if one.outcome == "broken"]
    assert sum(one.outcome == "holds" for one in found) > len(found) / 2


@pytest.fixture(scope="module")
def results():
    """Of every part in broken_parts.py, by name: its broken laws."""
    found = {}
    for part in parts_of(str(BROKEN)):
        every = check(part, KINDS[part.kind], KINDS[part.kind].laws)
        found[part.name] = {one.law.name: one for one in every if one.outcome == "broken"}
    return found


TINY = Case(rows=1, steps=1, input_dim=1, dim=1, heads=1, lengths=(1,), decimals=0)
# Of each part: a law it breaks, something that is said of it, and at most how many rows, steps and dims it takes.
CASES = [
    ("PeekingCell", "causality", r"the output at step 1 changes by \S+ when the input at step 2 does", (1, 2, 1)),
    (
        "PeekingCell",
        "prefix",
        r"at row 1, step 1, feature 1 is \S+ with all steps at once, and \S+ in pieces",
        (1, 2, 1),
    ),
    ("WrongNamesCell", "reporting", "the activation 'state' is .* and the new state has", (1, None, 1)),
    ("FewNamesCell", "reporting", "`step` returns 2 activations, and `names` has 1", (1, None, 1)),
    ("RememberingCell", "repeat", r"gives \S+ at row 1, step 1, feature 1 the first time and \S+ later", (1, 1, 1)),
    ("SinglePrecisionCell", "dtype", "with weights and inputs of float64 the output is float32", (1, 1, 1)),
    ("DetachedCell", "gradients", r"the gradient of \w+ at \[1, 1\] is \S+, and small changes of it give", (1, 2, 1)),
    ("InPlaceCell", "finite", "RuntimeError: one of the variables .* modified by an inplace operation", (1, 1, 1)),
    ("OverwritingCell", "in-place", "`step` writes into the old state", (1, None, 1)),
    ("BatchCell", "padding", r"(in the padding changes an output|alone gives)", (None, None, 1)),
    ("UnsavedCell", "saving", "a tensor is neither a Parameter nor a buffer", (1, 1, 1)),
    ("FusedCell", "twin", r"the plain code gives \S+ at row 1, step 2, feature 1, and the fast code", (1, 2, 1)),
    ("InfiniteCell", "finite", "the output at row 1, step 1, feature 1 is -?(nan|inf)", (1, 1, 1)),
    (
        "NarrowCell",
        "shapes",
        r"tensor 1 of the state that `step` returns is \[1, 1\], and \[1, 2\] is right",
        (1, None, 2),
    ),
    ("ListCell", "shapes", "the state that `step` returns is list, and not a tuple", (1, None, 1)),
    ("RaisingCell", "shapes", "ZeroDivisionError: no step today", (1, None, 1)),
    ("WrongDotScore", "as_dot", "at row 1, query 1, key 1, and the score is", (1, 1, 1)),
    ("KeysScore", "keys", r"`keys` gives \S+ at row 1, key 1, feature 1", (1, 1, 1)),
    ("SquareScore", "shapes", "RuntimeError: einsum", (1, 1, 1)),
    ("AheadMixer", "causality", r"the output at step 1 changes by \S+ when the input at step 2 does", (1, 2, 1)),
    ("GrowingMixer", "bounded", "the state grows: 3 numbers after 1 steps, 4 after 2", (1, 1, 1)),
    ("PaddingNorm", "padding", r"-7 in the padding changes an output from \S+ to", (None, None, 1)),
    ("SecretlyAcrossNorm", "positions", "in training, a position alone gives .*`across` must be True", (1, 2, 1)),
]


@pytest.mark.parametrize(("name", "law", "message", "sizes"), CASES, ids=[f"{name} {law}" for name, law, *_ in CASES])
def test_a_broken_part_breaks_its_law_in_a_small_case(results, name, law, message, sizes):
    found = results[name][law]
    assert re.search(message, found.message), found.message
    for size, most in zip(("rows", "steps", "dim"), sizes, strict=True):
        assert size not in found.law.sizes or getattr(found.case, size) <= (most or 9), size
    assert sum(found.case.lengths) <= 3 or "lengths" not in found.law.sizes
    assert found.case.decimals in (0, 1)


def test_what_breaks_no_law_is_found_to_break_none(results):
    assert results["Plain"] == {}
    assert results["MeanMixer"] == {}
    assert results.keys() == {name for name, *_ in CASES} | {"Plain", "MeanMixer"}


def test_only_what_is_broken_is_reported(results):
    """Most mistakes break one law or two; what would follow from the first is not said again."""
    single = {name for name, broken in results.items() if len(broken) == 1}
    assert {"WrongNamesCell", "SinglePrecisionCell", "DetachedCell", "UnsavedCell", "RaisingCell"} <= single
    assert {"WrongDotScore", "GrowingMixer", "PaddingNorm"} <= single
    repeated = [one for one in results["InPlaceCell"].values() if one.case is None]
    assert repeated
    assert all(one.message == "the same failure as in the law finite" for one in repeated)


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(BROKEN.read_text().splitlines(), 1) if text in line)


def test_an_error_has_the_line_of_the_users_file(results):
    assert results["RaisingCell"]["shapes"].line == line_of("no step today")
    h = line_of("class InPlaceCell(Plain):") + 4  # the tanh, whose output is written over
    assert results["InPlaceCell"]["finite"].line == h


def test_the_example_of_the_documents_obeys(seqloom):
    status, out, err = seqloom("laws", OWN)
    assert (status, err) == (0, "")
    assert out.splitlines()[0] == "UgrnnCell (cell), seed 0"
    assert out.splitlines()[-1] == "12 hold, 0 broken, 1 do not apply"
    assert len(out.splitlines()) == 2 + len(KINDS["cell"].laws)
    assert "`all_steps` gives what the loop over `step` gives, with the same gradients. (it has no `all_steps`)" in out


def test_a_broken_law_makes_the_status_one(seqloom):
    status, out, err = seqloom("laws", BROKEN, "--name", "PeekingCell", "--law", "causality,saving")
    assert (status, err) == (1, "")
    first, causality, case, numbers, saving, counts = out.splitlines()
    assert first == "PeekingCell (cell), seed 0"
    assert " ".join(causality.split()) == "broken causality What comes later changes no earlier output."
    assert re.search(r"→ rows 1, steps 2, input dim 1, dim 1: the output at step 1 changes by \S+ when the input", case)
    assert re.search(r"→ input = \[\[\[.*\]\]\]; weight = \[\[.*\]\]; recurrent = ", numbers)
    assert saving.split()[:2] == ["holds", "saving"]
    assert counts == "1 hold, 1 broken, 0 do not apply"
    assert "(broken_parts.py:" in seqloom("laws", BROKEN, "--name", "RaisingCell")[1]


def test_json(seqloom):
    status, out, _ = seqloom("laws", BROKEN, "--name", "AheadMixer", "--json", "--seed", 3)
    assert status == 1
    found = json.loads(out)
    assert (found["seed"], found["holds"]) == (3, False)
    (part,) = found["parts"]
    assert (part["name"], part["kind"]) == ("AheadMixer", "mixer")
    laws = {one["law"]: one for one in part["laws"]}
    assert list(laws) == [law.name for law in KINDS["mixer"].laws]
    assert laws["causality"]["outcome"] == "broken"
    assert laws["causality"]["case"].items() >= {"rows": 1, "steps": 2, "dim": 1}.items()
    assert laws["saving"]["outcome"] == "holds"
    assert json.loads(seqloom("laws", "lstm", "--json")[1])["holds"]


@pytest.mark.parametrize(
    ("words", "kind"), [(["--kind", "cell", "lstm"], "cell"), (["linear"], "mixer"), (["rms"], "norm")]
)
def test_parts_of_the_tables_by_name(seqloom, words, kind):
    status, out, err = seqloom("laws", *words)
    assert (status, err) == (0, "")
    assert out.startswith(f"{words[-1]} ({kind}), seed 0\n")


def test_in_chinese(seqloom):
    status, out, _ = seqloom("--lang", "zh", "laws", BROKEN, "--name", "PeekingCell", "--law", "causality,twin")
    assert status == 1
    assert "不成立" in out
    assert "后面的输入不改变前面的输出。" in out
    assert re.search(r"第 2 步的输入变了，步 1 的输出就改变 \S+", out)
    assert not re.search("[a-z]{3,} [a-z]{3,}", re.sub(r"causality|input|[a-z]+ =|PeekingCell.*\n", "", out)), out


PLAIN = "from functools import partial\nfrom tests.cli.broken_parts import Cell, MeanMixer, Plain\n"
FILES = {
    "tanh": "def tanh(input_dim, dim):\n    return Plain(input_dim, dim)\n",  # a function that makes a part
    "Late": "Late = partial(Plain, zoneout=0.1)\n",  # a class with settings
    # One of few sizes.
    "Even": "class Even(Plain):\n    def __init__(self, input_dim, dim):\n"
    "        assert dim % 8 == 0\n        super().__init__(input_dim, dim)\n",
    # A base class without a step is not a part, nor is what begins with an underscore.
    "Real": "class Base(Cell):\n    names = ('state',)\nclass Real(Base):\n    def step(self, gates, state):\n"
    "        return Plain.step(self, gates, state)\nclass _Hidden(Plain):\n    pass\n",
    "mean": "def mean(dim, heads, score):\n    return MeanMixer(dim, heads, score)\n",
}


@pytest.mark.parametrize("name", FILES)
def test_what_is_found_in_a_file(seqloom, tmp_path, name):
    (tmp_path / "parts.py").write_text(PLAIN + FILES[name])
    status, out, _ = seqloom("laws", tmp_path / "parts.py", "--law", "shapes,prefix,causality")
    assert status == 0, out
    assert out.splitlines()[0].startswith(f"{name} (")
    assert out.count("seed 0") == 1


CELL = "from seqloom.parts.recurrent.cells import Cell\n"
WRONG = {
    "no.py": (None, ["no.py: no such file"]),
    "syntax.py": ("x = 1\ndef f(:\n", ["syntax.py:2: invalid syntax"]),
    "empty.py": (
        "x = 1\n",
        ["no part found in it; looked for cell: a subclass of Cell", "score: ", "mixer: ", "norm: "],
    ),
    "imports.py": ("import math\nimport no_such_module\n", ["imports.py:2: ModuleNotFoundError: No module named 'no_"]),
    "raises.py": ("def f():\n    return 1 / 0\nf()\n", ["raises.py:2: ZeroDivisionError: division by zero"]),
    "ends.py": ("import sys\nsys.exit(3)\n", ["ends Python when it is run; put that below if __name__ == '__main__'"]),
    "zeros.py": ("x = 1\0\n", ["zeros.py: ", "null bytes"]),
    "needs.py": (
        f"{CELL}class Slow(Cell):\n    def __init__(self, input_dim, dim, decay): pass\n",
        ["a cell is made by Slow(input_dim=…, dim=…), but Slow needs decay too; give it a default"],
    ),
    "lacks.py": (
        f"{CELL}class Slow(Cell):\n    def __init__(self, dim): pass\n",
        ["a cell is made by Slow(input_dim=…, dim=…), but Slow takes no input_dim"],
    ),
    "text.txt": ("hello", ["text.txt: not a file of Python (.py)"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_one_line(seqloom, tmp_path, name):
    text, parts = WRONG[name]
    if text is not None:
        (tmp_path / name).write_text(text)
    result = seqloom("laws", tmp_path / name)
    one_line(result, *parts)
    assert result[0] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lsmt"], "unknown part 'lsmt'; did you mean 'lstm'"),
        (["--kind", "cell", "linear"], "unknown cell 'linear'"),
        (["--kind", "sell", "lstm"], "unknown kind 'sell'; did you mean 'cell'?"),
        (["lstm", "--law", "prefix,causal"], "unknown law 'causal'; did you mean 'causality'?"),
        ([OWN, "--name", "Ugrn"], "unknown class 'Ugrn'; did you mean 'UgrnnCell'?"),
        ([OWN, "--name", "Recall"], "Recall is not recognized as cell: a subclass of Cell"),
        ([OWN, "--kind", "norm"], "no part found in it; looked for an nn.Module with `across`"),
        (["lstm", "--name", "LstmCell"], "--name is of a class in a file"),
        (["."], "a directory, not a file of Python"),
    ],
)
def test_wrong_words_are_one_line(seqloom, words, message):
    result = seqloom("laws", *words)
    one_line(result, message)
    assert result[0] == 2


def test_neighbors_of_a_file_can_be_imported_and_what_it_prints_is_no_result(seqloom, tmp_path):
    shutil.copy(OWN, tmp_path / "neighbor_cell.py")
    text = "from neighbor_cell import UgrnnCell\nprint('hello')\nclass Mine(UgrnnCell):\n    pass\n"
    (tmp_path / "mine.py").write_text(text)
    status, out, err = seqloom("laws", tmp_path / "mine.py", "--json", "--law", "shapes")
    assert status == 0
    assert [part["name"] for part in json.loads(out)["parts"]] == ["Mine"]
    assert err == "hello\n"


def test_the_kinds_that_are_completed_are_those_there_are():
    assert set(command.KINDS) == KINDS.keys()


def test_smaller_cases_are_smaller_and_leave_other_sizes_alone():
    case = Case()
    for smaller in case.smaller(("steps", "dim")):
        assert smaller.size < case.size
        assert (smaller.rows, smaller.input_dim, smaller.lengths) == (case.rows, case.input_dim, case.lengths)
    assert next(iter(case.smaller(("rows", "steps", "input_dim", "dim", "heads", "lengths")))).size < TINY.size + 3
    assert not list(TINY.smaller(("rows", "steps", "dim")))


def test_pieces():
    assert pieces(6) == [(1, 1, 1, 1, 1, 1), (2, 4), (1, 3, 2), (5, 1)]
    assert all(sum(way) == n for n in (1, 2, 3, 9) for way in pieces(n))


def test_numbers_that_differ_are_named():
    one = drawn(2, 3, 4)
    other = one.clone()
    other[1, 2, 0] += 1
    assert difference(one, one) is None
    assert difference(other, one).index == (1, 2, 0)
    with pytest.raises(LawError, match=r"^row 2, step 3, feature 1: 1$"):
        require_close(other, one, "{place}: {difference}")
    other[0, 0, 0] = float("nan")
    with pytest.raises(LawError, match="the output at row 1, step 1, feature 1 is nan"):
        require_close(other, one, "{place}")
    for wrong in (one[:1], one.float()):
        with pytest.raises(LawError, match="is right"):
            require_close(wrong, one, "")


def test_a_law_without_its_device_does_not_apply(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert isinstance(devices(lambda: None), NotApplicable)
