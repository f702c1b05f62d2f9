"""What every worker shares: the talk over pipes, the batches, and a training step as everybody writes it.

A worker reads a line of JSON and answers with one; it runs under its own interpreter and knows nothing of seqloom.

    {"do": "make", "name": …, "order": {…}}  →  {"parameters": 5549611}
    {"do": "go", "name": …, "passes": 1}     →  {"seconds": 3.1, "losses": […]} or {"seconds": 0.4, "lengths": […]}
    {"do": "check", "name": …}               →  {"rows": 1024, "tokens": 7311, "threads": 2, "precision": "fp32", …}
    {"do": "drop", "name": …}                →  {}

Whatever goes wrong is an answer too: {"error": "one line"}.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from importlib import metadata
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from peers.checking import checked
from peers.several import Several
from torch import Tensor, nn
from torch.nn import functional as F

PAD, BOS, EOS, UNK = 0, 1, 2, 3  # seqloom's; the batches hold them
RATE, DECAY, CLIP, BETAS, EPS = 3e-4, 0.01, 1.0, (0.9, 0.98), 1e-9
NEVER = -1e9  # bias of what may not be written when decoding, so that nobody stops early
SEED = 1


class Raw(NamedTuple):
    """A batch as it was written: rows padded after. Of a language model only `target` is there, one token longer."""

    source: Tensor | None  # [B, S], <eos> last
    source_lengths: Tensor | None  # [B]
    target: Tensor  # [B, T], <bos> first, <eos> last
    target_lengths: Tensor  # [B]


class Order(NamedTuple):
    """What to make: the model's sizes, those of the vocabularies, and how it is to be run."""

    kind: str
    model: dict[str, Any]
    source_size: int
    target_size: int
    steps: int
    beam: int
    device: torch.device
    threads: int
    precision: str
    compiled: bool
    batches: list[Raw]
    compute: str = ""  # how the precision is had, where there is a choice: see `Decoding`
    workers: int = 1

    @property
    def decodes(self) -> bool:
        return self.kind == "decode"

    @property
    def longest(self) -> int:
        """How many positions a model with a table of them needs: rounded up, and with room for what is decoded."""
        widths = [part.size(1) for raw in self.batches for part in (raw.source, raw.target) if part is not None]
        return -(-max(*widths, self.steps + 2) // 8) * 8

    @property
    def half(self) -> bool:
        return self.precision == "bf16"

    @property
    def weights(self) -> torch.dtype:
        """Of a model that decodes: in half precision its own weights are halved, if that is not left to autocast."""
        return torch.bfloat16 if self.half and self.compute != "autocast" else torch.float32

    def cast(self) -> Any:
        """The context of a training step's forward pass, and of decoding by autocast."""
        return torch.autocast(self.device.type, torch.bfloat16) if self.half else nullcontext()


class Entrant(Protocol):
    parameters: int

    def go(self, passes: int) -> Any:
        """All batches, so many times: the work that is timed."""
        ...

    def told(self, done: Any) -> dict[str, Any]:
        """What came out, for JSON; not timed."""
        ...


Maker = Callable[[Order], Entrant]


def serve(makers: Mapping[str, Maker], packages: tuple[str, ...] = (), shares: bool = True) -> None:
    """Answers until the input ends. What libraries print goes to stderr: stdout is for answers alone. `shares`: several
    workers are as many processes; a library that has workers of its own is left to them."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    made: dict[str, tuple[Entrant, Order]] = {}
    versions = {"torch": torch.__version__} | {name: metadata.version(name) for name in packages}
    print(json.dumps({"versions": versions}), file=answers)
    for line in sys.stdin:
        try:
            answer = _answer(json.loads(line), made, makers, shares)
        except Exception as error:
            answer = {"error": one_line(error)}
        print(json.dumps(answer), file=answers)


def _answer(
    asked: dict[str, Any], made: dict[str, tuple[Entrant, Order]], makers: Mapping[str, Maker], shares: bool
) -> dict[str, Any]:
    name = asked["name"]
    if asked["do"] == "make":
        order = read_order(asked["order"])
        torch.set_num_threads(order.threads)
        torch.manual_seed(SEED)
        several = shares and order.workers > 1
        made[name] = Several(name, asked["order"]) if several else makers[asked["order"]["variant"]](order), order
        return {"parameters": made[name][0].parameters}
    if asked["do"] == "drop":
        _dropped(made.pop(name, None))
        return {}
    entrant, order = made[name]
    torch.set_num_threads(order.threads)  # others of this process may run by other numbers
    if asked["do"] == "check":
        return checked(entrant, order.device, order.compiled)
    return timed(entrant, order.device, asked["passes"])


def _dropped(one: tuple[Entrant, Order] | None) -> None:
    if one is not None and isinstance(one[0], Several):
        one[0].drop()
    del one
    _free()


def timed(entrant: Entrant, device: torch.device, passes: int) -> dict[str, Any]:
    gc.collect()
    cuda = device.type == "cuda"
    if cuda:
        entrant.go(1)  # the others' turns have cooled it down, and its memory was given back
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
    start = time.perf_counter()
    done = entrant.go(passes)
    if cuda:
        torch.cuda.synchronize(device)
    seconds = time.perf_counter() - start
    memory = {"memory": torch.cuda.max_memory_allocated(device) / 1e9} if cuda else {}
    answer = {"seconds": seconds, **memory, **entrant.told(done)}
    if cuda:
        del done
        torch.cuda.empty_cache()  # for the others
    return answer


def read_order(order: dict[str, Any]) -> Order:
    torch_device = torch.device(order["device"])
    names = ("kind", "model", "steps", "beam", "threads", "precision", "compiled", "compute", "workers")
    kept = {name: order[name] for name in names if name in order}
    first, every = order.get("share", (0, 1))
    with np.load(order["batches"], allow_pickle=False) as file:
        source_size, target_size = file["sizes"].tolist()
        batches = list(_batches(file))[first::every]
    return Order(source_size=source_size, target_size=target_size, device=torch_device, batches=batches, **kept)


def _batches(file: Mapping[str, np.ndarray]) -> Iterator[Raw]:
    number = 0
    while f"target_{number}" in file:
        names = ("source", "source_lengths", "target", "target_lengths")
        found = [f"{name}_{number}" for name in names]
        yield Raw(*(torch.from_numpy(file[name]) if name in file else None for name in found))
        number += 1


def one_line(error: BaseException) -> str:
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0][:200]}" if said else type(error).__name__


def _free() -> None:
    gc.collect()
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class Given(NamedTuple):
    """A batch as plain torch wants it; mask and lengths are None where every source is as long as the widest."""

    source: Tensor  # [B, S]; of a language model the same as tokens
    tokens: Tensor  # [B, T], what is read
    labels: Tensor  # [B, T], PAD where there is none
    real: Tensor | None  # [B, S], True at tokens
    lengths: Tensor | None  # [B], on the host


def given(raw: Raw, device: torch.device) -> Given:
    tokens, labels = raw.target[:, :-1].contiguous().to(device), raw.target[:, 1:].contiguous().to(device)
    if raw.source is None or raw.source_lengths is None:
        return Given(tokens, tokens, labels, None, None)
    width = raw.source.size(1)
    ragged = bool((raw.source_lengths < width).any())
    real = (torch.arange(width) < raw.source_lengths[:, None]).to(device) if ragged else None
    return Given(raw.source.to(device), tokens, labels, real, raw.source_lengths if ragged else None)


def adamw(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, RATE, BETAS, eps=EPS, weight_decay=DECAY, fused=True)


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in trained(model))


class Training:
    """Forward, cross-entropy, backward, clipping to 1.0, fused AdamW. `logits`: (model, batch) -> [B, T, V]."""

    def __init__(self, model: nn.Module, logits: Callable[[Any, Given], Tensor], order: Order) -> None:
        self.model, self.logits, self.order = model.to(order.device).train(), logits, order
        self.parameters, self.trained = count(model), trained(model)
        self.optimiser = adamw(self.trained)
        self.ready = [given(raw, order.device) for raw in order.batches]
        shapes = {batch.tokens.shape for batch in self.ready}  # of several the first would be compiled for nothing
        any_shape = True if len(shapes) > 1 else None
        self.loss = torch.compile(self._loss, dynamic=any_shape) if order.compiled else self._loss

    def _loss(self, batch: Given) -> Tensor:
        logits = self.logits(self.model, batch)
        return F.cross_entropy(logits.flatten(0, 1).float(), batch.labels.flatten(), ignore_index=PAD)

    def go(self, passes: int) -> list[Tensor]:
        return [self._step(batch) for _ in range(passes) for batch in self.ready]

    def _step(self, batch: Given) -> Tensor:
        with self.order.cast():
            loss = self.loss(batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.trained, CLIP)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return loss.detach()

    def told(self, done: list[Tensor]) -> dict[str, Any]:
        return {"losses": torch.stack(done).tolist()}

    def did(self, done: list[Tensor]) -> dict[str, int]:
        tokens = sum(int((batch.labels != PAD).sum()) for batch in self.ready)
        return {"rows": sum(len(batch.tokens) for batch in self.ready), "tokens": tokens}


class Decoding:
    """`write`: (model, batch, order) -> rows of ids, exactly `order.steps` of them each."""

    def __init__(self, model: Any, write: Callable[[Any, Given, Order], list[list[int]]], order: Order) -> None:
        self.model = model.to(order.device, order.weights).eval()
        if order.compiled:
            self.model.compile(dynamic=True)
        self.write, self.order, self.parameters = write, order, count(model)
        self.ready = [given(raw, order.device) for raw in order.batches]

    @torch.inference_mode()
    def go(self, passes: int) -> list[list[list[int]]]:
        with nullcontext() if self.order.weights is torch.bfloat16 else self.order.cast():
            return [self.write(self.model, batch, self.order) for _ in range(passes) for batch in self.ready]

    def told(self, done: list[list[list[int]]]) -> dict[str, Any]:
        return {"lengths": sorted({len(row) for rows in done for row in rows})}

    def did(self, done: list[list[list[int]]]) -> dict[str, int]:
        return {"rows": sum(map(len, done)), "tokens": sum(len(row) for rows in done for row in rows)}


def silence(bias: Tensor) -> None:
    """None of the special tokens, so that decoding takes as many steps as it may."""
    with torch.no_grad():
        bias[[PAD, BOS, EOS, UNK]] = NEVER
