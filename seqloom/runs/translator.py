"""A trained model, loaded from its run folder: predict, evaluate, look."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seqloom.data import registry
from seqloom.data.codec import Codec
from seqloom.data.columns import Reading
from seqloom.data.read import Example
from seqloom.data.skip import examples as read_examples
from seqloom.data.tokens import BOS, EOS
from seqloom.decoding.search import Search
from seqloom.decoding.texts import Answer, Bound, Texts
from seqloom.errors import SeqloomError, known
from seqloom.looking.attention import AttentionMap, attention_maps
from seqloom.metrics.score import score
from seqloom.metrics.text import advice
from seqloom.models.seq2seq import MODELS
from seqloom.parts.choose import build
from seqloom.runs import config as configs
from seqloom.runs.environment import choose_device
from seqloom.training.checkpoint import load_weights, read_tensors
from seqloom.training.objective import TeacherForcing
from seqloom.training.validate import group_by_source, likelihood, paired_batches


@dataclass(frozen=True)
class Evaluation:
    """Scores in percent (perplexity is a number of choices) with their 95 % intervals and signatures."""

    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    signature: dict[str, str]
    count: int
    predictions: list[str]
    notes: tuple[str, ...] = ()  # what the user should know, in sentences

    def to_json(self) -> dict[str, Any]:
        return {
            "metrics": {name: _finite(value) for name, value in self.metrics.items()},
            "intervals": {name: [_finite(low), _finite(high)] for name, (low, high) in self.intervals.items()},
            "signature": self.signature,
            "count": self.count,
        }


class Translator:
    """What `seqloom.load` gives. Remembers nothing between calls."""

    def __init__(self, folder: Path, config: dict[str, Any], texts: Texts) -> None:
        self.folder, self.config, self.texts = folder, config, texts

    @property
    def model(self) -> Any:
        return self.texts.model

    def reading(self, columns: str | None = None, skip_bad: bool | None = None) -> Reading:
        """How files are read: as those of the training, but for what is given."""
        data = self.config["data"]
        bad = data.get("skip_bad", False) if skip_bad is None else skip_bad
        return Reading(columns=columns or data.get("columns"), skip_bad=bad)

    def predict(self, sources: Sequence[str], search: Search | None = None) -> list[str]:
        """The best target of each source."""
        if isinstance(sources, str):
            raise SeqloomError("predict takes a list of texts: model.predict([text])")
        return [answers[0].text for answers in self.texts.answers(sources, search or Search())]

    def answers(
        self, sources: Iterable[str], search: Search | None = None, rows: int = 64, ahead: int = 16
    ) -> Iterator[list[Answer]]:
        """The best answers of each source with their scores, in order, as a stream."""
        return self.texts.answers(sources, search or Search(), rows, ahead)

    def evaluate(
        self,
        files: str | Path | Sequence[str | Path],
        search: Search | None = None,
        *,
        metrics: Sequence[str] | None = None,
        together: bool = False,
        tokenize: str = "13a",
        reading: Reading | None = None,
    ) -> Evaluation:
        """Scores on files of examples, or on the test split of a dataset by name.

        `together`: lines with one source are one example with several references. `reading`: which columns, and what
        about broken lines; as the run was trained unless given.
        """
        names = [files] if isinstance(files, str | Path) else list(files)
        found = registry.resolve(names, "test", self.config["task"])
        own = self.reading() if found == list(map(str, names)) else Reading()  # a dataset has its own columns
        examples, notes = read_examples(found, reading or own)
        if not examples:
            raise SeqloomError(f"{', '.join(map(str, names))}: no examples")
        if together:
            examples = [Example(s, tuple(t), names[0], 0) for s, t in group_by_source(examples).items()]  # pyright: ignore
        predictions = self.predict([example.source for example in examples], search)
        judged = self.judge(examples, predictions, metrics=metrics, tokenize=tokenize)
        return replace(judged, notes=(*notes, *judged.notes))

    def judge(
        self,
        examples: Sequence[Example],
        predictions: list[str],
        *,
        metrics: Sequence[str] | None = None,
        tokenize: str = "13a",
    ) -> Evaluation:
        """Scores of predictions that were made already, one for each example."""
        references = [tuple(map(self.texts.target.normal, example.targets)) for example in examples]
        scores = score(
            predictions,
            references,
            split=self.texts.target.pieces,
            metrics=metrics,
            tokenize=tokenize,
        )
        values = dict(scores.metrics)
        if metrics is None:
            values["perplexity"] = self._perplexity(examples)
        # What both sides lost before they were compared.
        target = self.texts.target
        lost = f"{'|folded' if target.fold else ''}{'|half-width' if target.half_width else ''}"
        signature = {name: text + lost for name, text in scores.signature.items()}
        hint = advice(references, tokenize) if "bleu" in values else None
        notes = () if hint is None else (hint,)
        return Evaluation(values, scores.intervals, signature, scores.count, predictions, notes)

    def _perplexity(self, examples: Sequence[Example]) -> float:
        """Of the first reference of each example, <eos> counted."""
        target = self.texts.target
        pairs = [(self.texts.encode(e.source), [BOS, *target.encode(e.targets[0]), EOS]) for e in examples]
        objective = TeacherForcing(self.texts.model)
        return likelihood(objective, paired_batches(pairs), self.texts.device)["perplexity"]

    def attention(self, source: str, target: str | None = None, layer: str | None = None) -> AttentionMap:
        """Where the model looks while it writes its own answer, or `target`; the last layer unless named."""
        if target is None:
            tokens = next(self.texts.answers([source], Search()))[0].tokens
        else:
            tokens = tuple(self.texts.target.encode(target))
        maps = attention_maps(self.texts, source, tokens)
        return maps[list(maps)[-1] if layer is None else known(layer, maps, "layer")]


def load(run: str | Path, device: str = "auto") -> Translator:
    """The best model of a run folder."""
    folder = Path(run)
    config = configs.load(folder)
    place = choose_device(device)
    source, target = codecs_of(folder)
    model = build(MODELS, config["model"], source_size=source.size, target_size=target.size)
    if not (folder / "model.safetensors").exists():
        raise SeqloomError(f"{folder}: has no model yet: its training stopped before the first validation; --resume it")
    load_weights(model, read_tensors(folder / "model.safetensors"), folder / "model.safetensors")
    data, bound = config["data"], Bound(**config["decoding"])
    model = model.to(place).eval()
    texts = Texts(model, source, target, bound, place, max_length=data["max_length"], cut=data["cut"])
    return Translator(folder, config, texts)


def codecs_of(folder: Path) -> tuple[Codec, Codec]:
    """The vocabularies of a run."""
    return _codec(folder / "source.json"), _codec(folder / "target.json")


def _finite(value: float) -> float | None:
    """JSON has no word for what is not a number."""
    return value if math.isfinite(value) else None


def _codec(path: Path) -> Codec:
    try:
        return Codec.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError) as error:
        raise SeqloomError(f"{path}: vocabulary missing or damaged ({error})") from error
