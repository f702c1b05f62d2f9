"""A model card: README.md with the front matter that model hubs read (sections after Mitchell et al. 2019)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import yaml

from seqloom.language import _, amount
from seqloom.reporting.html.elements import clean
from seqloom.reporting.number_format import article, duration, finite, whole
from seqloom.reporting.pages.run_page import verdict
from seqloom.reporting.run_facts import Facts, Record, base_name, metric
from seqloom.reporting.sections import evaluation
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
        _(" ").join(_about(facts)),
        f"## {_('Use')}\n\n{_use(facts)}",
        f"## {_('Scores')}\n\n{_scores(facts)}",
        f"## {_('Data')}\n\n{_data(facts)}",
        f"## {_('Limits')}\n\n{_limits(facts)}",
        f"## {_('How to repeat it')}\n\n{_repeat(facts)}",
        OURS,
    ]
    return f"---\n{front}---\n\n" + "\n\n".join(sections) + "\n"


def is_ours(text: str) -> bool:
    """Whether a README was written by Seqloom and not taken over by its user."""
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
    """Those that two parallel files are named by: train.en, train.de; else none."""
    given = (facts.config.get("inputs") or {}).get("train")
    if not isinstance(given, list) or len(given) != 2:
        return []
    names = [PurePath(str(file).removesuffix(".gz")) for file in given]
    ends = [name.suffix.lstrip(".") for name in names]
    return ends if names[0].stem == names[1].stem and set(ends) <= set(LANGUAGES.split()) and ends[0] != ends[1] else []


def _about(facts: Facts) -> Iterator[str]:
    values = {
        "a": article(facts.model),
        "model": tick(base_name(facts.model)),
        "parameters": whole(facts.parameters),
        "does": _(wording(facts.config).does),
        "origin": _origin(facts),
    }
    if facts.parameters:
        yield _("{a} {model} model with {parameters} parameters that {does}, {origin}.", **values)
    else:
        yield _("{a} {model} model that {does}, {origin}.", **values)
    if facts.start:
        yield _("It started from the weights and vocabularies of the run {run}.", run=tick(facts.start))
    yield verdict(facts)
    yield _("`report.html` beside this file shows its curves, errors and examples.")


def _origin(facts: Facts) -> str:
    if facts.imported:
        return _("imported by Seqloom from {name}", name=tick(facts.imported))
    trained = _("trained by Seqloom on {data}", data=tick(_files(facts, "train")))
    return _("{trained} in {time}", trained=trained, time=duration(facts.seconds)) if facts.seconds else trained


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
    """A source to try: one of the evaluation, if it is short and cannot end the code block."""
    chosen = (facts.record[1].get("examples") or {}) if facts.record else {}
    for kind in ("best", "random"):
        for one in chosen.get(kind) or []:
            text = _line(one.get("source", ""))
            if 0 < len(text) <= 60 and "`" not in text:
                return text
    return _("a source text")


def _scores(facts: Facts) -> str:
    if not facts.records:
        return _("None: nothing was held out, or the model was not evaluated.")
    return "\n\n".join(_score_table(name, record) for name, record in facts.records.items())


def _score_table(name: str, record: Record) -> str:
    lines = [f"{evaluation.held_out(name)}{_(': ')}{plain(evaluation.method_text(record))}", ""]
    lines += [f"| {_('metric')} | {_('score')} | {_('95 % interval')} | {_('signature')} |", "|---|---:|---:|---|"]
    for key, value in (record.get("metrics") or {}).items():
        signature = tick((record.get("signature") or {}).get(key, "")).replace("|", "\\|")  # a bar would end the cell
        shown = evaluation.score_text(key, value)
        lines.append(
            f"| {plain(_(metric(key).title))} | {shown} | {evaluation.interval_text(record, key)} | {signature} |"
        )
    return "\n".join(lines)


def _data(facts: Facts) -> str:
    unknown = _("not known")
    lines = [_("- training: {data}", data=f"{tick(_files(facts, 'train')) or unknown}{_amount(facts, 'train')}")]
    if facts.files("valid"):
        lines.append(_("- validation: {data}", data=f"{tick(_files(facts, 'valid'))}{_amount(facts, 'valid')}"))
    for side, title in (("source", _("- source tokens: {tokens}")), ("target", _("- target tokens: {tokens}"))):
        size = _("vocabulary of {size}", size=whole(facts.size(side))) if facts.size(side) else ""
        if tokens := _(", ").join(filter(None, (tick(facts.tokenizer(side)), size))):
            lines.append(title.format(tokens=tokens))
    skipped = facts.data.get("skipped") or {}
    if skipped.get("count"):
        text = _("{lines} of the data left out.", lines=amount(skipped["count"], "broken lines"))
        lines.append(f"- **{text}**")
    return "\n".join(lines)


def _amount(facts: Facts, which: str) -> str:
    count = facts.amount(which)
    return f"{_(', ')}{amount(count, facts.unit)}" if count else ""


def _limits(facts: Facts) -> str:
    longest = finite((facts.config.get("decoding") or {}).get("longest"))
    imported = (facts.config.get("preset") or {}).get("size") == IMPORTED  # its limit says nothing of its data
    lines = [_("It knows only what its training data shows: for other kinds of text its predictions are poor.")]
    if longest and not imported:
        tokens = amount(round(longest) - 2, "tokens")  # without <bos> and <eos>
        lines.append(
            _("The longest target in its training data has {tokens}; longer ones are unreliable.", tokens=tokens)
        )
    if not facts.records:
        lines.append(_("Its quality was not measured on held-out data."))
    elif "test" not in facts.records:
        lines.append(
            _("The scores are on the validation data by which it was chosen; on new data expect a little less.")
        )
    lines.append(_("It has also learned the errors and prejudices in its data."))
    return "\n".join(f"- {line}" for line in lines)


def _repeat(facts: Facts) -> str:
    words = [PurePath(word).name if PurePath(word).is_absolute() else _line(word) for word in facts.command]
    versions = facts.environment.get("packages") or {}
    made = [f"seqloom {facts.config.get('seqloom', '')}", *(f"{k} {v}" for k, v in versions.items() if k == "torch")]
    python = facts.environment.get("python")
    made += [f"Python {python}"] if python else []
    block = fenced(shlex.join(words), "console") if words else _("The settings are in `config.yaml`.")
    made_with = _("Made with {versions}. Every setting is in `config.yaml`.", versions=tick(", ".join(made)))
    return f"{block}\n\n{made_with}"


def _files(facts: Facts, which: str) -> str:
    """Names without folders: a card is published, and its readers do not have those folders."""
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
