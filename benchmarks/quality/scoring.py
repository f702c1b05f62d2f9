"""What a trained recipe answers to its test data, and how good that is: in two steps, as scorers may be elsewhere."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from seqloom.data.datasets import catalog
from seqloom.data.tokenizers.tokenizers import normalization_suffix, normalize
from seqloom.metrics.text.text_metrics import score
from seqloom.runs.load import load
from seqloom.runs.recipes.recipe import Recipe
from seqloom.runs.recipes.run_recipe import search_of, test_files

TONGUES = "sigmorphon2021:test"  # the first sign of a word tells its language


def examples(name: str) -> list[Any]:
    dataset, _, split = name.partition(":")
    return list(catalog.find(dataset).examples(split))


def answered(recipe: Recipe, folder: Path, most: int | None, device: str) -> dict[str, Any]:
    """The predictions of a run, or of several together; of a language model its scores, which are made on the spot."""
    model, [name] = load(folder, device=device), test_files(recipe)
    told = {"parameters": sum(parameter.numel() for parameter in model.model.parameters())}
    if recipe.task == "generate":
        found = model.evaluate(name)
        return told | {"scores": found.metrics, "intervals": found.intervals, "signature": found.signature}
    asked = examples(name)[:most]
    if recipe.task == "tag":
        return told | {"predictions": model.predict([[word for word, _ in sentence] for sentence in asked])}
    sources = [source for source, _ in asked]
    return told | {"predictions": model.predict(sources, *([search_of(recipe)] if recipe.task == "translate" else []))}


def scores_of(told: dict[str, Any]) -> dict[str, Any]:
    """`scores` of the predictions in `told`; nothing where there are none, or where a scorer is not installed."""
    if "predictions" not in told:
        return {}
    if told["task"] == "translate":
        try:
            return _translated(told, told["predictions"], references(told))
        except ImportError as error:
            return {"unscored": str(error)}
    guesses, wanted = told["predictions"], [right for _, right in _paired(told)]
    if told["task"] == "tag":
        guesses, wanted = _flat(line.split(" ") for line in guesses), _flat(wanted)
    hits = [guess == right for guess, right in zip(guesses, wanted, strict=True)]
    return {"scores": {"accuracy": 100 * sum(hits) / len(hits)}}


def references(told: dict[str, Any]) -> list[tuple[str, ...]]:
    """What the answers to a translation's test data are compared with, folded as they are."""
    return [tuple(normalize(text, told["fold"]) for text in several) for _, several in _paired(told)]


def _paired(told: dict[str, Any]) -> list[Any]:
    [name] = told["test"]
    asked = examples(name)[: len(told["predictions"])]
    return asked if told["task"] != "tag" else [("", [tag for _, tag in sentence]) for sentence in asked]


def _flat(lines: Any) -> list[str]:
    return [one for line in lines for one in line]


def _translated(told: dict[str, Any], guesses: list[str], wanted: list[tuple[str, ...]]) -> dict[str, Any]:
    """The recipe's own metrics; beside a BLEU over other tokens that of sacreBLEU, and each language of several."""
    fold, evaluate = told["fold"], told["evaluate"]
    tokenize = evaluate.get("tokenize", "13a")
    found = score(guesses, wanted, split=str.split, metrics=evaluate["metrics"], tokenize=tokenize)
    signature = {name: one + normalization_suffix(fold) for name, one in found.signature.items()}
    told_of = {"scores": dict(found.metrics), "intervals": found.intervals, "signature": signature}
    if tokenize != "13a":
        plain = score(guesses, wanted, split=str.split, metrics=["bleu"], samples=0)
        told_of["scores"]["sacrebleu"] = plain.metrics["bleu"]
        told_of["signature"]["sacrebleu"] = plain.signature["bleu"] + normalization_suffix(fold)
    if told["test"] == [TONGUES]:
        told_of["languages"] = _by_language(guesses, _paired(told))
    return told_of


def _by_language(guesses: list[str], pairs: list[Any]) -> dict[str, float]:
    """The share of words with an error, in percent."""
    found: dict[str, list[bool]] = defaultdict(list)
    for guess, (source, targets) in zip(guesses, pairs, strict=True):
        found[source[0]].append(guess not in targets)
    return {sign: 100 * sum(wrong) / len(wrong) for sign, wrong in found.items()}
