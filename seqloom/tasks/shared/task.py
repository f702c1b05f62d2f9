"""What a task is: all that `runs` knows of each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, Unpack, overload

import torch
from torch import nn

from seqloom.data.batches.batch_source import PreparedData
from seqloom.data.files.columns import ReadOptions
from seqloom.data.formats.pairs import OnNote
from seqloom.data.prepare.request import PrepareRequest
from seqloom.decoding.batched import Answer
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError
from seqloom.metrics.metric_table import METRICS, task_metrics
from seqloom.tasks.shared.evaluation import Evaluation
from seqloom.tasks.shared.predictor import LoadedRun, PredictKeywords
from seqloom.training.distributed.processes import Ranks
from seqloom.training.objectives.objective import Objective
from seqloom.training.settings import Training

# The scores of the held-out data, by the objective as it is now (perhaps wrapped for several processes).
Validator = Callable[[nn.Module, Training, Ranks], dict[str, float]]
Data = TypeVar("Data", bound=PreparedData)


class Runner(Protocol):
    """A trained model, loaded from its run folder. Remembers nothing between calls."""

    folder: Path
    config: dict[str, Any]
    device: torch.device

    @property
    def model(self) -> nn.Module: ...

    @property
    def unseen_unit(self) -> str:
        """What `unknown` returns: characters or words."""
        ...

    def reading(self, columns: str | None = None, skip_bad: bool | None = None) -> ReadOptions:
        """How files are read: as those of the training, but for what is given."""
        ...

    def read(self, files: list[str], reading: Any) -> tuple[list[Any], list[str]]:
        """The examples of files, and notes on them."""
        ...

    def sources(self, file: str, reading: Any = None, on_note: OnNote | None = None) -> Iterator[Any]:
        """The sources in a file, as `answers` takes them, one a line."""
        ...

    def unknown(self, source: Any) -> list[str]:
        """The characters or words of a source that are not in the vocabulary."""
        ...

    def warn_of_long(self, sources: Iterable[Any]) -> Iterator[Any]:
        """The sources for `answers`, with a warning before the first very long one."""
        ...

    def answer_json(self, source: Any, answer: Answer) -> dict[str, Any]:
        """Further facts of an answer for JSON."""
        ...

    @overload
    def predict(self, sources: str, search: Search | None = None, **ways: Unpack[PredictKeywords]) -> str: ...
    @overload
    def predict(
        self, sources: str, search: Search | None = None, *, n_best: int, **keywords: Unpack[PredictKeywords]
    ) -> list[str]: ...
    @overload
    def predict(
        self, sources: Iterable[Any], search: Search | None = None, **keywords: Unpack[PredictKeywords]
    ) -> list[str]: ...
    @overload
    def predict(
        self, sources: Iterable[Any], search: Search | None = None, *, n_best: int, **keywords: Unpack[PredictKeywords]
    ) -> list[list[str]]: ...
    def predict(self, sources: Any, search: Search | None = None, **keywords: Any) -> Any:
        """The best answer to each source, or to a single one; with `n_best` a list of so many, best first."""
        ...

    def answers(
        self, sources: Iterable[Any], search: Search | None = None, rows: int = 64, ahead: int = 16
    ) -> Iterator[list[Answer]]:
        """The best answers of each source with their scores, in order, as a stream."""
        ...

    def evaluate(
        self, files: Any, search: Any = None, *, metrics: Sequence[str] | None = None, reading: Any = None
    ) -> Evaluation:
        """Scores on files of examples, or on the test split of a dataset by name."""
        ...

    def evaluation_details(self, examples: Sequence[Any]) -> dict[str, Any]:
        """What an evaluation found on examples in memory, as values for a report; fit for `json.dump`."""
        ...

    def dummy_forward(self, length: int) -> None:
        """One example of `length` tokens through the model: what `seqloom info` counts."""
        ...


class Model(Runner, Protocol):
    """What `seqloom.load` gives, as a type checker knows it: a `Runner`, and what its own task adds, which only the run
    says (a Translator's `attention`, a TagModel's `spans`, …)."""

    def evaluate(
        self, files: Any, search: Any = None, *, metrics: Sequence[str] | None = None, reading: Any = None, **how: Any
    ) -> Evaluation: ...

    def evaluation_details(self, examples: Sequence[Any], *how: Any, **more: Any) -> dict[str, Any]: ...

    def __getattr__(self, name: str) -> Any: ...


class Task(Protocol[Data]):
    """One task shape: a subclass, of which a module of `tasks` has one by the name TASK. What has a body here is as
    most tasks have it."""

    name: str
    models: Mapping[str, Any]  # the table that `build` and `complete` choose from
    kind: str  # the entry of it that presets mean
    vocabularies: tuple[str, ...]  # names of the files beside the weights
    options: type  # the dataclass of the config's `data` section, a `Reading`
    training: Mapping[str, Any]  # settings that suit the task, above all `select`
    can_ensemble: bool = False  # whether several models that have the same vocabularies predict together
    samples_in_training: bool = False  # whether `training_sample` has something to show

    @property
    def family(self) -> str:
        """The task whose objectives and metrics are for this one too: the one that it derives from, or itself."""
        return next((vars(one)["name"] for one in reversed(type(self).__mro__) if "name" in vars(one)), self.name)

    @property
    def scores(self) -> tuple[str, ...]:
        """What the validator may give: all that `training.select` may name."""
        return ("loss", *(name for name in task_metrics(self.family) if METRICS[name].selects and name != "loss"))

    def prepare(self, request: PrepareRequest[Any]) -> Data:
        """Read the data and turn it into ids."""
        ...

    def sizes(self, vocabularies: Mapping[str, Any]) -> dict[str, Any]:
        """The keywords without a default of the model's constructor."""
        ...

    def decoding(self, data: Data, before: Mapping[str, Any]) -> dict[str, Any]:
        """The config's `decoding` section: what predictions need to know that only the data says. `before`: that of
        the run that goes on or that this one starts from."""
        ...

    def objective(self, model: nn.Module, settings: Training, config: Mapping[str, Any]) -> Objective:
        """What is trained, as `training.objective` names it: called with a batch of the source, gives a `Loss`."""
        ...

    def validator(self, model: nn.Module, data: Data, config: Mapping[str, Any], device: torch.device) -> Validator: ...

    def runner(self, run: LoadedRun) -> Runner: ...

    def select(self, data: Data) -> str | None:
        """The score to choose the best model by, where the data decides it."""
        return None

    def training_sample(self, runner: Any) -> str:
        """Something to see of what the model does, at every validation."""
        return ""

    def ensemble(self, models: Sequence[nn.Module], vocabularies: Mapping[str, Any]) -> nn.Module:
        """One model of several that have the same vocabularies."""
        raise SeqloomError(f"models of {self.name} do not predict together")
