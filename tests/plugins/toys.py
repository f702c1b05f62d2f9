"""A package outside Seqloom that brings one toy of each kind: modules, entry points and the facts of its version."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

PACKAGE, VERSION, MODULE = "seqloom-toys", "0.3", "seqloom_toys"


class Toy(NamedTuple):
    name: str
    entry: str  # object in the module of its kind
    source: str  # that module
    train: str  # words of `seqloom train`; FILE stands for a file of labelled texts
    predict: str = ""  # words of `seqloom predict`


SCORES = '''
from torch import nn
from torch.nn import functional as F

class Biaffine(nn.Module):
    """qᵀ W k + wᵀ k (Dozat & Manning 2017, section 2.2)."""

    def __init__(self, query_dim: int, key_dim: int, bias: bool = False) -> None:
        super().__init__()
        self.project = nn.Linear(key_dim, query_dim + 1, bias=bias)

    def keys(self, k):
        return self.project(k)

    def as_dot(self, q, k):
        return F.pad(q, (0, 1), value=1.0), k

    def forward(self, q, k):
        return F.pad(q, (0, 1), value=1.0) @ k.mT
'''
CELLS = '''
from torch.nn import functional as F

from seqloom.parts.recurrent.cells import Cell

class Ugrnn(Cell):
    """z = σ(…), h' = z⊙h + (1−z)⊙tanh(W x + U h + b) (Collins et al. 2017)."""

    gates = 2
    names = ("update", "state")

    def step(self, gates, state):
        z, new = (gates + F.linear(state[0], self.recurrent)).chunk(2, -1)
        h = z.sigmoid() * state[0] + (1 - z.sigmoid()) * new.tanh()
        return (h,), (z.sigmoid(), h)
'''
MIXERS = '''
from torch import nn

from seqloom.parts.mixers.mixer_table import SelfAttention

class Gated(SelfAttention):
    """σ(G x) ⊙ attention (Qiu et al. 2025)."""

    def __init__(self, dim: int, heads: int, score) -> None:
        super().__init__(dim, heads, score)
        self.gate = nn.Linear(dim, dim)

    def forward(self, x, visible, state=None, position=None):
        mixed, state = super().forward(x, visible, state, position)
        return self.gate(x).sigmoid() * mixed, state
'''
POSITIONS = '''
import torch
from torch import nn

from seqloom.parts.positions.position import Position

class Ramp(Position):
    """x + t w."""

    def __init__(self, dim: int, head_dim: int, slope: float = 0.01) -> None:
        super().__init__(dim, head_dim)
        self.weight, self.slope = nn.Parameter(torch.ones(dim)), slope

    def forward(self, x, offset=0):
        steps = torch.arange(offset, offset + x.size(1), device=x.device, dtype=x.dtype)
        return x + self.slope * steps[:, None] * self.weight
'''
NORMS = '''
import torch
from torch import nn

class ScaleNorm(nn.Module):
    """g x / |x| (Nguyen & Salazar 2019)."""

    across = False

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(dim**0.5))

    def forward(self, x, lengths=None):
        return self.scale * x / x.norm(dim=-1, keepdim=True).clamp(min=1e-5)
'''
ENCODERS = '''
from torch import nn

from seqloom.models.protocols import Encoded
from seqloom.parts.visibility import mean

class Bag(nn.Module):
    """Every position by itself."""

    def __init__(self, input_dim: int, dim: int = 16) -> None:
        super().__init__()
        self.hidden = nn.Linear(input_dim, dim)
        self.dim, self.final_dims, self.layer_dims = dim, (), (dim,)

    def forward(self, x, lengths):
        states = self.hidden(x).tanh()
        return Encoded(states=states, lengths=lengths, summary=mean(states, lengths), layers=(states,))
'''
DECODERS = '''
from seqloom.models.decoders import DECODERS

class Own(DECODERS["attentive"]):
    """The attentive decoder by another name."""
'''
OBJECTIVES = '''
from seqloom.training.objectives.labels import LabelObjective
from seqloom.training.objectives.objective import Loss

class Focal(LabelObjective):
    """−Σ (1 − p)^γ log p of the right label (Lin et al. 2017, section 3.2)."""

    targets = ("label",)

    def __init__(self, model, gamma: float = 2.0) -> None:
        super().__init__(model)
        self.gamma = gamma

    def loss(self, logits, batch) -> Loss:
        right = logits.log_softmax(-1).gather(1, batch.target.clamp(min=0)[:, None])[:, 0]
        weight = (1 - right.exp()) ** self.gamma if self.training else 1.0
        return Loss((-weight * right).masked_fill(batch.target < 0, 0.0).sum(), batch.count)
'''
DECODINGS = '''
from seqloom.decoding.greedy import decode_stepwise

def ranked(stepper, source, limits, search, indices, rank: int = 0):
    """The token of this rank at every step."""
    return decode_stepwise(stepper, source, limits, lambda logits, *_: logits.topk(rank + 1).indices[:, -1], 1, search)
'''
SCHEDULES = '''
def halving(at, every: int = 1000) -> float:
    """Halved after so many updates (as in He et al. 2016)."""
    return at.peak * at.warm * 0.5 ** ((at.step - 1) // every)
'''
OPTIMIZERS = '''
import torch

from seqloom.training.optim.optimizer_table import Optimizer

def adagrad(model, groups, settings, eps: float = 1e-10):
    """Duchi et al. 2011."""
    return torch.optim.Adagrad(groups, lr=settings.learning_rate, eps=eps)

ADAGRAD = Optimizer(adagrad, momentum=False)
'''
METRICS = '''
import numpy as np

from seqloom.metrics.metric import CorpusScore
from seqloom.metrics.metric_table import LOWER, Metric

def odd_length(examples):
    """Share of predictions that are not as long as a reference."""
    pairs = zip(examples.predictions, examples.references, strict=True)
    table = [[len(text) not in {len(line) for line in several}, 1] for text, several in pairs]
    return CorpusScore(np.array(table, float).reshape(-1, 2), lambda sums: 100 * sums[0] / max(sums[1], 1), "toy")

ODD = Metric("lengths that differ", "%", LOWER, "not as long as a reference", {"texts": odd_length}, selects=True)
'''
DATASETS = """
from seqloom.data.datasets.dataset import Dataset

def parity(dataset, split):
    for number in range(dataset.sizes[split]):
        bits = f"{number:06b}"
        yield " ".join(bits), "odd" if bits.count("1") % 2 else "even"

PARITY = Dataset(
    name="parity", task="classify", about="bits → whether their sum is odd", sizes={"train": 64, "test": 64},
    licence="CC0", citation="Minsky and Papert 1969", home="https://example.org", reader=parity,
    data={"tokens": "words"},
)
"""
TASKS = """
from seqloom.tasks.about import About, Wording

ABOUT = About(
    home="seqloom_toys.tasks",
    line="a mood for a text",
    check="labels",
    examples="classify",
    reads=("classify",),
    words=Wording("predicts a mood", "text-classification", "moods", "texts", "text"),
)
"""
TASK_MODULES = {
    "task": """
from seqloom.tasks.classify.task import Classify

class Moods(Classify):
    name = "moods"

TASK = Moods()
""",
    "presets": "from seqloom.tasks.classify.presets import ABOUT, DEFAULT, PRESETS, preset, suited\n",
}

TOYS = {
    "scores": Toy("biaffine", "Biaffine", SCORES, "translate FILE --set decoder.score=biaffine"),
    "cells": Toy("ugrnn", "Ugrnn", CELLS, "translate FILE --model gru --set encoder.cell=ugrnn"),
    "mixers": Toy("gated", "Gated", MIXERS, "translate FILE --model transformer --set decoder.mixer=gated"),
    "positions": Toy("ramp", "Ramp", POSITIONS, "translate FILE --model transformer --set encoder.position=ramp"),
    "norms": Toy("scale", "ScaleNorm", NORMS, "translate FILE --model transformer --set decoder.norm_kind=scale"),
    "encoders": Toy("bag", "Bag", ENCODERS, "classify FILE --set encoder=bag"),
    "decoders": Toy("own", "Own", DECODERS, "translate FILE --set decoder=own"),
    "objectives": Toy("focal", "Focal", OBJECTIVES, "classify FILE --set training.objective=focal"),
    "decodings": Toy("ranked", "ranked", DECODINGS, "translate FILE", "--decoding ranked"),
    "schedules": Toy("halving", "halving", SCHEDULES, "translate FILE --schedule halving"),
    "optimizers": Toy("adagrad", "ADAGRAD", OPTIMIZERS, "translate FILE --optimizer adagrad"),
    "metrics": Toy("odd_length", "ODD", METRICS, "translate FILE --set training.select=odd_length"),
    "datasets": Toy("parity", "PARITY", DATASETS, "classify parity"),
    "tasks": Toy("moods", "ABOUT", TASKS, "moods FILE"),
}


def write_package(site: Path, version: str = VERSION, **more: str) -> None:
    """The package as pip leaves it. `more`: further entries, `kind='name = module:object'`."""
    home = site / MODULE
    (home / "tasks").mkdir(parents=True, exist_ok=True)
    (home / "__init__.py").write_text("")
    for kind, toy in TOYS.items():
        place = home / "tasks" / "__init__.py" if kind == "tasks" else home / f"{kind}.py"
        place.write_text(toy.source, encoding="utf-8")
    for name, source in TASK_MODULES.items():
        (home / "tasks" / f"{name}.py").write_text(source, encoding="utf-8")
    entries = {kind: f"{toy.name} = {MODULE}.{kind}:{toy.entry}" for kind, toy in TOYS.items()}
    write_facts(site, PACKAGE, version, {kind: "\n".join([line, more.get(kind, "")]) for kind, line in entries.items()})


def write_facts(site: Path, package: str, version: str, entries: dict[str, str]) -> None:
    """METADATA and entry_points.txt of a package."""
    for old in site.glob(f"{package.replace('-', '_')}-*.dist-info"):
        for file in old.iterdir():
            file.unlink()
        old.rmdir()
    facts = site / f"{package.replace('-', '_')}-{version}.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    groups = (f"[seqloom.{kind}]\n{lines}\n" for kind, lines in entries.items())
    (facts / "entry_points.txt").write_text("\n".join(groups))
