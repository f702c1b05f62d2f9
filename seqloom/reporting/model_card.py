"""A model card: README.md with the front matter that model hubs read (Mitchell et al. 2019 for what a card tells)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import yaml

from seqloom.plural import counted
from seqloom.reporting.html.elements import clean
from seqloom.reporting.number_format import article, duration, finite, whole
from seqloom.reporting.pages.run_page import verdict
from seqloom.reporting.run_facts import HELD_OUT, Facts, Record, base_name, metric
from seqloom.reporting.sections import evaluation as evaluated
from seqloom.reporting.task_words import wording
from seqloom.version import IMPORTED

OURS = "<!-- Written by seqloom, which writes it anew; delete this line to keep what you change. -->"
# ISO 639-1, as the ends of parallel files' names: train.en train.de
LANGUAGES = (
    "af am ar az be bg bn bs ca cs cy da de el en eo es et eu fa fi fr ga gl gu he hi hr hu hy id is it ja ka kk km kn "
    "ko la lt lv mk ml mn mr ms my ne nl no pa pl pt ro ru si sk sl sq sr sv sw ta te th tl tr uk ur uz vi xh yo zh zu"
)


def card(facts: Facts) -> str:
    """What the model is, how to use it, what it was trained on, how good it is, and what it is not."""
    front = yaml.safe_dump(front_matter(facts), sort_keys=False, allow_unicode=True, width=10**6)
    sections = [
        f"# {plain(facts.name)}",
        " ".join(_about(facts)),
        f"## Use\n\n{_use(facts)}",
        f"## Scores\n\n{_scores(facts)}",
        f"## Data\n\n{_data(facts)}",
        f"## Limits\n\n{_limits(facts)}",
        f"## Repeat it\n\n{_repeat(facts)}",
        OURS,
    ]
    return f"---\n{front}---\n\n" + "\n\n".join(sections) + "\n"


def is_ours(text: str) -> bool:
    """Whether a README was written by us, and nobody took it over."""
    return OURS in text


def front_matter(facts: Facts) -> dict[str, Any]:
    languages = _languages(facts)
    words = wording(facts.config)
    task = "translation" if languages else words.pipeline
    found: dict[str, Any] = {"library_name": "seqloom"}
    if languages:
        found["language"] = languages
    model = (facts.config.get("preset") or {}).get("model", "")
    found["tags"] = ["seqloom", words.kind, *([model] if re.fullmatch(r"[a-z-]+", str(model)) else [])]
    found["pipeline_tag"] = task
    results = [_result(facts, name, record, task) for name, record in facts.records.items()]
    if results:
        found["metrics"] = list(dict.fromkeys(one["type"] for result in results for one in result["metrics"]))
        found["model-index"] = [{"name": _line(facts.name), "results": results}]
    return found


def _result(facts: Facts, name: str, record: Record, task: str) -> dict[str, Any]:
    values = (record.get("metrics") or {}).items()
    return {
        "task": {"type": task, "name": str(facts.config.get("task", "translate"))},
        "dataset": {
            "name": _line(_files(facts, "train")) or "unknown",
            "type": "custom",
            "split": {"valid": "validation"}.get(name, name),
        },
        "metrics": [
            {"type": key, "name": metric(key).title, "value": round(float(value), 3), "verified": False}
            for key, value in values
            if finite(value) is not None
        ],
    }


def _languages(facts: Facts) -> list[str]:
    """Of two parallel files whose names say so; else they are not known."""
    given = (facts.config.get("inputs") or {}).get("train")
    if not isinstance(given, list) or len(given) != 2:
        return []
    names = [PurePath(str(file).removesuffix(".gz")) for file in given]
    ends = [name.suffix.lstrip(".") for name in names]
    return ends if names[0].stem == names[1].stem and set(ends) <= set(LANGUAGES.split()) and ends[0] != ends[1] else []


def _about(facts: Facts) -> Iterator[str]:
    size = f" with {whole(facts.parameters)} parameters" if facts.parameters else ""
    name = f"{article(facts.model)} {tick(base_name(facts.model))} model"
    yield f"{name}{size} that {wording(facts.config).does},"
    time = f" in {duration(facts.seconds)}" if facts.seconds else ""
    trained = f"trained on {tick(_files(facts, 'train'))} by Seqloom{time}."
    yield f"imported from {tick(facts.imported)} by Seqloom." if facts.imported else trained
    if facts.start:
        yield f"It started from the weights and vocabularies of the run {tick(facts.start)}."
    yield verdict(facts)
    yield "`report.html` beside this file shows its curves, errors and examples."


def _use(facts: Facts) -> str:
    sample = _sample(facts)
    return (
        "```console\n"
        f"echo {shlex.quote(sample)} | seqloom predict {shlex.quote(_line(facts.name))}\n"
        "```\n\n"
        "```python\n"
        "import seqloom\n\n"
        f"model = seqloom.load({_line(facts.name)!r})\n"
        f"model.predict([{sample!r}])\n"
        "```"
    )


def _sample(facts: Facts) -> str:
    """A source to try: one that it was evaluated on, if it is short and cannot end the code block."""
    chosen = (facts.record[1].get("examples") or {}) if facts.record else {}
    for kind in ("best", "random"):
        for one in chosen.get(kind) or []:
            text = _line(one.get("source", ""))
            if 0 < len(text) <= 60 and "`" not in text:
                return text
    return "a source text"


def _scores(facts: Facts) -> str:
    if not facts.records:
        return "None: nothing was held out, or the model was not evaluated."
    return "\n\n".join(_score_table(name, record) for name, record in facts.records.items())


def _score_table(name: str, record: Record) -> str:
    lines = [f"{HELD_OUT.get(name, name)}: {plain(evaluated.told(record))}", ""]
    lines += ["| metric | score | 95 % interval | signature |", "|---|---:|---:|---|"]
    for key, value in (record.get("metrics") or {}).items():
        signature = tick((record.get("signature") or {}).get(key, "")).replace("|", "\\|")  # a bar would end the cell
        shown = evaluated.shown(key, value)
        lines.append(f"| {plain(metric(key).title)} | {shown} | {evaluated.spread(record, key)} | {signature} |")
    return "\n".join(lines)


def _data(facts: Facts) -> str:
    lines = [f"- training: {tick(_files(facts, 'train')) or 'not known'}{_pairs(facts, 'train')}"]
    if facts.files("valid"):
        lines.append(f"- validation: {tick(_files(facts, 'valid'))}{_pairs(facts, 'valid')}")
    for side in ("source", "target"):
        told = [tick(facts.cut(side)), whole(facts.size(side)) if facts.size(side) else ""]
        if any(told):
            lines.append(f"- {side} tokens: {', '.join(filter(None, told))}{' of them' if all(told) else ''}")
    skipped = facts.data.get("skipped") or {}
    if skipped.get("count"):
        were = "was" if skipped["count"] == 1 else "were"
        lines.append(f"- **{counted(skipped['count'], 'broken lines')} of the data {were} left out**")
    return "\n".join(lines)


def _pairs(facts: Facts, which: str) -> str:
    count = facts.amount(which)
    return f", {counted(count, facts.unit)}" if count else ""


def _limits(facts: Facts) -> str:
    longest = finite((facts.config.get("decoding") or {}).get("longest"))
    brought = (facts.config.get("preset") or {}).get("size") == IMPORTED  # and its bound with it, no length of data
    lines = ["- It knows only what its training data shows: other kinds of text get answers too, and poor ones."]
    if longest and not brought:
        tokens = counted(round(longest) - 2, "tokens")  # without <bos> and <eos>
        lines.append(f"- The longest target it was trained on has {tokens}; longer ones are guesswork.")
    if not facts.records:
        lines.append("- Its quality was not measured on held-out data.")
    elif "test" not in facts.records:
        lines.append(
            "- The scores are on the validation data by which it was chosen; on new data expect a little less."
        )
    lines.append("- What the data holds of errors and prejudice, it has learned too.")
    return "\n".join(lines)


def _repeat(facts: Facts) -> str:
    words = [PurePath(word).name if PurePath(word).is_absolute() else _line(word) for word in facts.command]
    versions = facts.environment.get("packages") or {}
    made = [f"seqloom {facts.config.get('seqloom', '')}", *(f"{k} {v}" for k, v in versions.items() if k == "torch")]
    python = facts.environment.get("python")
    made += [f"Python {python}"] if python else []
    block = fenced(shlex.join(words), "console") if words else "The settings are in `config.yaml`."
    return f"{block}\n\nMade with {tick(', '.join(made))}. Every setting is in `config.yaml`."


def _files(facts: Facts, which: str) -> str:
    """Names without folders: a card is published, and nobody else has those folders."""
    given = facts.given(which)
    return ", ".join(one if re.fullmatch(r"fold \d+/\d+", one) else base_name(one) for one in given)


def _line(text: Any) -> str:
    return " ".join(clean(str(text)).split())


def tick(text: Any) -> str:
    """As a code span, whatever it holds; nothing for nothing."""
    line = _line(text)
    if not line:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    air = " " if "`" in line else ""
    return f"{fence}{air}{line}{air}{fence}"


def fenced(text: str, language: str) -> str:
    """As a code block, whatever it holds."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"


def plain(text: Any) -> str:
    """As text within a line of Markdown that means only itself."""
    return re.sub(r"([\\`*_\[\]<>#|~&])", r"\\\1", _line(text))
