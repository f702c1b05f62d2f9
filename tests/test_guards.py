"""What keeps the house in order: directions of imports, public names, sizes, citations, help."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import seqloom

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "seqloom"
FILES = sorted(PACKAGE.rglob("*.py"))

# A room may import from rooms on lower shelves, never from its own neighbours or above.
SHELVES = [
    {"plugins"},
    {"errors", "version", "plural", "former_paths"},
    {"safety", "documents", "setting_names"},
    {"files", "options", "language"},
    {"build", "acceleration", "hardware"},
    {"data"},
    {"parts"},
    {"models"},
    {"decoding", "metrics"},
    {"training"},
    {"fast"},
    {"inspection", "laws"},
    {"tasks"},
    {"reporting"},
    {"runs"},
    {"serving"},
    {"cli"},
    {"__main__"},
]
HEIGHT = {room: height for height, shelf in enumerate(SHELVES) for room in shelf}


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_point_one_way(file):
    room = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if room == "__init__":
        return  # the front door knows where everything is
    assert room in HEIGHT, f"{room} has no shelf: give it one in SHELVES"
    for name in imports(ast.parse(file.read_text())):
        if not name.startswith("seqloom."):
            continue
        other = name.split(".")[1]
        assert other == room or HEIGHT[other] < HEIGHT[room], f"{room} may not import {name}"


SPEED = re.compile(
    r"seqloom\.fast|\b(fast|faster|fastest|slow|slower|quick|quicker|oneDNN|Triton|BLAS|speed|vectorized)\b"
)


@pytest.mark.parametrize("room", ["parts", "models", "decoding", "training"])
def test_the_textbook_says_no_word_about_speed(room):
    """Nor does it name its fast twins: those name it (see seqloom/acceleration.py)."""
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in sorted((PACKAGE / room).rglob("*.py"))
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if SPEED.search(line)
    ]
    assert not found, "\n".join(found)


# Words that earlier versions had for things the field has its own words for: see the table in CONTRIBUTING.md.
PRIVATE_NAMES = {
    *("slope", "slopes", "guess", "guesses", "guessed", "told", "judge", "judged", "hunt", "tape", "taped", "abreast"),
    *("lean", "leanly", "onward", "spoken", "speakable", "stripes", "mended", "plainly", "numbering", "emptied"),
    *("entrance", "eye", "eyes", "foldable", "whoever", "nobody"),
}
PRIVATE_PROSE = re.compile(
    r"\b(guess(es|ed|ing)?|slopes?|mend(s|ed)?|whoever|speakable|abreast|leanly|a tape|as yet|at hand"
    r"|worth its while|goes on plainly|onward)\b"
)
# Where they are right: earlier names and paths, names in state dicts, ALiBi's slopes, operators of torch, JSON keys.
NAMED_SO = {
    "setting_names.py": None,
    "former_paths.py": None,
    "models/encoders/image.py": {"eye"},
    "parts/positions/relative.py": {"slopes"},
    "fast/attention/short_gpu.py": {"slopes"},
    "fast/residual_norm/gpu.py": {"slopes"},
    "fast/feedforward/gpu.py": {"slopes"},
    "metrics/classification.py": {"guessed"},
    "reporting/sections/labels.py": {"guessed"},
    "reporting/sections/masked_tokens.py": {"guesses"},
    "tasks/mask/evaluation.py": {"guesses"},
}


def test_private_words_do_not_come_back():
    found = []
    for file in FILES:
        allowed = NAMED_SO.get(str(file.relative_to(PACKAGE)), set())
        if allowed is None:
            continue
        with file.open(encoding="utf-8") as lines:
            for token in tokenize.generate_tokens(lines.readline):
                words = set(token.string.lower().split("_")) if token.type == tokenize.NAME else set()
                bad = words & PRIVATE_NAMES - allowed
                if token.type in (tokenize.COMMENT, tokenize.STRING):
                    bad = {match[0] for match in PRIVATE_PROSE.finditer(token.string)} - {*allowed}
                found += [f"{file.relative_to(ROOT)}:{token.start[0]}: {word}" for word in sorted(bad)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md")))
def test_documents_speak_the_field_s_words(page):
    found = [line for line in (ROOT / page).read_text().splitlines() if PRIVATE_PROSE.search(line)]
    assert not found


def test_public_names_are_pinned():
    expected = ["Run", "Search", "SeqloomError", "Translator", "__version__", "load", "plain", "train", "watch"]
    assert seqloom.__all__ == expected
    assert all(getattr(seqloom, name) is not None for name in expected)


def entries(folder: Path) -> list[str]:
    """Modules and sub-packages of a folder."""
    return [
        path.name
        for path in folder.iterdir()
        if path.name not in ("__init__.py", "__pycache__") and (path.suffix == ".py" or any(path.glob("*.py")))
    ]


def test_folders_are_small_enough_to_read():
    """At most 12 modules and sub-packages each; the commands have a file each, and the root is the list of rooms."""
    folders = {file.parent for file in FILES} - {PACKAGE, PACKAGE / "cli"}
    crowded = {str(folder.relative_to(ROOT)): len(found) for folder in folders if len(found := entries(folder)) > 12}
    assert not crowded


def functions(file: Path) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef):
            yield node


def test_files_and_functions_stay_short():
    """Files of about 300 lines; nine functions in ten under 40 lines and none much longer."""
    long_files = {str(f.relative_to(ROOT)): n for f in FILES if (n := len(f.read_text().splitlines())) > 320}
    assert not long_files
    lengths = {
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for file in FILES
        for node in functions(file)
    }
    over = {place: n for place, n in lengths.items() if n > 60 and "seqloom/cli/" not in place}
    assert not over
    assert sorted(lengths.values())[int(0.9 * len(lengths))] <= 40


def test_functions_take_few_arguments():
    """Seven at most; constructors, whose keywords are a configuration, the front door, and kernels, which know no
    structures, are spared."""
    spared = {"__init__", "train"}
    for file in FILES:
        if "cli" in file.parts:
            continue
        for node in functions(file):
            if any(isinstance(mark, ast.Call) and ast.unparse(mark.func) == "jit" for mark in node.decorator_list):
                continue
            count = len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs)
            assert node.name in spared or count <= 7, f"{file}:{node.lineno} {node.name} takes {count}"


TABLES = {
    "seqloom.parts.recurrent.cells.CELLS",
    "seqloom.parts.attention.scores.SCORES",
    "seqloom.parts.mixers.mixer_table.MIXERS",
    "seqloom.parts.mixers.mixer_table.CROSSES",
    "seqloom.parts.attention.normalizers.NORMALIZERS",
    "seqloom.parts.positions.position_table.POSITIONS",
    "seqloom.parts.layers.activations.ACTIVATIONS",
    "seqloom.parts.layers.norm.NORMS",
    "seqloom.parts.layers.pooling.POOLINGS",
    "seqloom.models.encoders.ENCODERS",
    "seqloom.models.decoders.stacks.STACKS",
    "seqloom.models.encoders.image.IMAGE_ENCODERS",
    "seqloom.models.encoders.image.FEATURE_MAP_ENCODERS",
    "seqloom.parts.layers.output_layers.TOKEN_OUTPUTS",
    "seqloom.models.language_model.LANGUAGE_MODELS",
    "seqloom.models.decoders.DECODERS",
    "seqloom.models.seq2seq.MODELS",
    "seqloom.models.classifier.CLASSIFIERS",
    "seqloom.models.table_model.ROW_MODELS",
    "seqloom.data.tokenizers.tokenizers.TOKENS",
    "seqloom.data.datasets.parsers.READERS",
    "seqloom.metrics.text.text_metrics.METRICS",
    "seqloom.parts.layers.crf.TAG_OUTPUTS",
    "seqloom.models.encoders.characters.CHARACTER_ENCODERS",
    "seqloom.models.tagger.TAGGERS",
    "seqloom.metrics.span_f1.TAG_METRICS",
    "seqloom.metrics.classification.LABEL_METRICS",
    "seqloom.metrics.classification.NUMBER_METRICS",
    "seqloom.training.objectives.objective_table.OBJECTIVES",
    "seqloom.decoding.decoding_table.DECODINGS",
    "seqloom.training.optim.schedule.SCHEDULES",
}


@pytest.mark.parametrize("table", sorted(TABLES))
def test_every_table_entry_says_what_it_is_and_where_it_comes_from(table):
    home, _, name = table.rpartition(".")
    for key, entry in getattr(import_module(home), name).items():
        if isinstance(entry, Mapping):
            continue  # another entry with some keywords set
        text = inspect.getdoc(entry) or ""
        assert re.search(r"\b(19|20)\d\d\b|Annex|RFC", text), f"{table}[{key!r}] has no citation"


def test_no_table_is_forgotten():
    """A capital name that maps strings to classes or functions is a table and must be listed above."""
    for file in FILES:
        if file.name == "__init__.py" or "cli" in file.parts:
            continue
        home = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        module = import_module(home)
        for name, value in vars(module).items():
            listed = f"{getattr(value, '__module__', home)}.{name}" in TABLES
            if name.isupper() and isinstance(value, dict) and any(callable(entry) for entry in value.values()):
                owner = next(iter(v for v in value.values() if callable(v))).__module__
                known = listed or f"{home}.{name}" in TABLES or any(t.endswith(f".{name}") for t in TABLES)
                assert known, f"{home}.{name} (entries from {owner}) is not in TABLES"


def test_nothing_unsafe_is_called():
    bad = re.compile(r"torch\.load\(|\bpickle\b|\bmarshal\b|yaml\.load\(|shell=True|(?<![.\w])eval\(|(?<![.\w])exec\(")
    for file in FILES:
        for number, line in enumerate(file.read_text().splitlines(), 1):
            assert not bad.search(line) or "nothing is pickled" in line, f"{file}:{number}: {line.strip()}"


# Where JSON is parsed without the bounds of documents.py, and why it may be.
PARSED = {
    "documents.py": "the bounded parser itself",
    "data/formats/json_lines.py": "lines of data, of which a deep value or a long number is an error of its line",
    **dict.fromkeys(
        ("data/prepare/texts.py", "data/prepare/pairs.py", "data/prepare/language.py"),
        "our cache, compared with its sums",
    ),
    **dict.fromkeys(
        ("data/encoding/encode_workers.py", "runs/many/parallel_jobs.py", "training/distributed/processes.py"),
        "from another process of ours",
    ),
    **dict.fromkeys(
        ("data/tokenizers/tokenizers.py", "data/tokenizers/tokenizer_json.py"),
        "what the library of tokenizers has just written",
    ),
    **dict.fromkeys(("data/datasets/from_packages.py", "runs/settings/setting_table.py"), "a file of a package"),
}


def test_json_and_yaml_are_read_in_one_place():
    """By seqloom/documents.py, which bounds how large and how deep they are, and in the files listed above."""
    parses = re.compile(r"json\.loads?\(|yaml\.(safe_)?load|yaml\.compose|JSONDecoder\(")
    found = {str(file.relative_to(PACKAGE)) for file in FILES if parses.search(file.read_text())}
    assert found - {"runs/interop/export_example.py"} == PARSED.keys()  # the example is not ours to run


def test_help_needs_no_torch():
    code = """
import sys
from seqloom.cli.main import app
try:
    app(["--help"])
except SystemExit:
    pass
assert not {"torch", "numpy", "sacrebleu"} & set(sys.modules), "heavy import"
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*words, name))


def test_every_command_has_help():
    import typer
    from typer.testing import CliRunner

    from seqloom.cli.main import app

    assert len(list(commands(typer.main.get_command(app)))) > 10
    for words in commands(typer.main.get_command(app)):
        result = CliRunner().invoke(app, [*words, "--help"])
        assert result.exit_code == 0
        assert "Usage" in result.output
