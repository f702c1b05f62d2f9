"""Distributed training: ranks, collective operations, and failing together.

Ranks exchange tensors, or JSON as bytes in a tensor; nothing is pickled. They are started by torchrun; with a single
process there is no group, and every function returns its argument.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from seqloom.errors import SeqloomError

Value = TypeVar("Value")
TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
STEP_TIMEOUT, DATA_TIMEOUT = timedelta(minutes=30), timedelta(days=1)  # how long one rank waits for another
CONNECTION_ERRORS = (
    "gloo",
    "nccl",
    "connection closed",
    "connection reset",
    "broken pipe",
    "process group",
    "tcpstore",
)
DTYPES = {str(t): t for t in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.uint8)}


@dataclass(frozen=True)
class Launch:
    """The environment variables of torchrun, which are read only here."""

    rank: int = 0
    world: int = 1
    local: int = 0  # rank on its machine
    attempt: int = 0  # restarts by the torchrun of this machine
    name: str | None = None  # of that torchrun: the same for all attempts

    @classmethod
    def of(cls, variables: Mapping[str, str] = os.environ) -> Launch:
        if not all(name in variables for name in TORCHRUN):
            return cls()
        numbers = [int(variables[name]) for name in TORCHRUN[:3]]
        # The run's id alone is not enough: without --rdzv-id it may be "none", and scripts give the same twice.
        name = f"{variables.get('TORCHELASTIC_RUN_ID', 'none')} {socket.gethostname()} {os.getppid()}"
        return cls(*numbers, attempt=int(variables.get("TORCHELASTIC_RESTART_COUNT", "0")), name=name)


class Ranks:
    """The processes of one training. The first of them writes, shows and decides."""

    def __init__(self, launch: Launch, device: torch.device) -> None:
        self.launch, self.device = launch, device
        self.rank, self.world = launch.rank, launch.world
        # For collectives on the CPU, with a long timeout, since preparing data may take hours.
        self._hosts: Any = dist.new_group(backend="gloo", timeout=DATA_TIMEOUT) if self.distributed else None
        self.launches = [Launch(*fields) for fields in self.all_gather(astuple(launch))]

    @property
    def distributed(self) -> bool:
        return self.world > 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.world}"

    def all_reduce(self, numbers: Tensor) -> Tensor:
        """The sum over all ranks, on the device; the host does not wait for it until it is read."""
        if self.distributed:
            dist.all_reduce(numbers)
        return numbers

    def broadcast(self, value: Value) -> Value:
        """The first rank's value, a JSON one, on every rank."""
        if not self.distributed:
            return value
        raw = _bytes(value) if self.first else torch.empty(0, dtype=torch.uint8)
        size = torch.tensor(raw.numel())
        dist.broadcast(size, 0, group=self._hosts)
        raw = raw if self.first else raw.new_empty(int(size))
        dist.broadcast(raw, 0, group=self._hosts)
        return value if self.first else json.loads(raw.numpy().tobytes())

    def all_gather(self, value: Value) -> list[Value]:
        """Every rank's value, a JSON one, on every rank. All wait for the last."""
        if not self.distributed:
            return [value]
        raw = _bytes(value)
        sizes = [int(size) for size in self.all_gather_tensors(torch.tensor([raw.numel()]))]
        padded = torch.nn.functional.pad(raw, (0, max(sizes) - raw.numel()))
        every = self.all_gather_tensors(padded)
        return [json.loads(one[:size].numpy().tobytes()) for one, size in zip(every, sizes, strict=True)]

    def all_gather_tensors(self, tensor: Tensor) -> list[Tensor]:
        """A tensor of one shape, on the host, from every rank."""
        if not self.distributed:
            return [tensor]
        every = [torch.empty_like(tensor) for _ in range(self.world)]
        dist.all_gather(every, tensor.contiguous(), group=self._hosts)
        return every

    def broadcast_tensors(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The first rank's tensors on every rank, each sent when it is looked up."""
        return SharedTensors(tensors, self) if self.distributed else tensors

    def run_on_first(self, work: Callable[[], Value]) -> Value:
        """Run on the first rank and broadcast its JSON result. If it fails, all ranks end and one reports why."""
        if not self.distributed:
            return work()
        if self.first:
            try:
                result = work()
            except Exception:
                self.broadcast({"failed": True})
                raise
            self.broadcast({"failed": False, "result": result})
            return result
        outcome: dict[str, Any] = self.broadcast({})
        if outcome["failed"]:
            sys.exit(1)
        return outcome["result"]

    @contextmanager
    def fail_together(self) -> Iterator[None]:
        """A barrier: an error on any rank ends all ranks, and is reported once. No exchange within the block."""
        problem = None
        try:
            yield
        except SeqloomError as error:
            if not self.distributed:
                raise
            problem = error
        problems = self.all_gather(None if problem is None else str(problem))
        failed = next((rank for rank, text in enumerate(problems) if text is not None), None)
        if failed is None:
            return
        if problem is None or failed != self.rank:
            sys.exit(1)
        raise problem if self.first else SeqloomError(f"{self} on {socket.gethostname()}: {problem}") from problem

    def in_turn(self, work: Callable[[], Value]) -> Value:
        """Run on the first rank, then on the first of every other machine, then on the rest: later ones find the caches
        of earlier ones, whether machines share their files or not."""
        mine = 0 if self.first else 1 if self.launch.local == 0 else 2
        made: list[Value] = []
        for group in range(3):
            with self.fail_together():
                if group == mine:
                    made.append(work())
        return made[0]


ALONE = Ranks(Launch(), torch.device("cpu"))


class SharedTensors(Mapping[str, Tensor]):
    """Tensors of the first rank. A lookup is a collective: all ranks must look up the same names in the same order."""

    def __init__(self, held: Mapping[str, Tensor], ranks: Ranks) -> None:
        self._held, self._ranks = held, ranks
        self._forms = ranks.broadcast({name: [str(t.dtype), list(t.shape)] for name, t in held.items()})

    def __getitem__(self, name: str) -> Tensor:
        kind, shape = self._forms[name]
        first = self._ranks.first
        tensor = self._held[name] if first else torch.empty(shape, dtype=DTYPES[kind])
        tensor = tensor.detach().to(self._ranks.device).contiguous()
        dist.broadcast(tensor, 0)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._forms)

    def __len__(self) -> int:
        return len(self._forms)


@contextmanager
def connected(launch: Launch, device: torch.device) -> Iterator[Ranks]:
    """The process group within the block. A lost process is a one-line error, not a traceback."""
    if launch.world == 1:
        yield Ranks(launch, device)
        return
    ours = not dist.is_initialized()
    whole = False
    try:
        if ours:
            _connect(device)
        yield Ranks(launch, device)
        whole = True
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and not any(word in str(error).lower() for word in CONNECTION_ERRORS):
            raise
        why = str(error).strip().splitlines()[0][:200]
        raise SeqloomError(
            f"rank {launch.rank} of {launch.world} on {socket.gethostname()}: lost the other processes; one of them "
            f"has probably ended, and its own message says why ({why})"
        ) from error
    finally:
        # NCCL would wait here for a lost process; exiting frees everything as well.
        if ours and dist.is_initialized() and (whole or device.type == "cpu"):
            dist.destroy_process_group()


def _connect(device: torch.device) -> None:
    store, rank, world = next(rendezvous("env://", timeout=STEP_TIMEOUT))
    store = PrefixStore(_agree_on_name(store, rank, world), store)
    common = {"store": store, "rank": rank, "world_size": world, "timeout": STEP_TIMEOUT}
    if device.type == "cuda":
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device, **common)
    else:
        dist.init_process_group("gloo", **common)


def _agree_on_name(store: Any, rank: int, world: int) -> str:
    """Agree on a new name for this group.

    torchrun keeps one store over restarts, with addresses of ended processes. So each rank asks for the name under a
    fresh key, and the first rank answers until every rank has acknowledged the name.
    """
    key = uuid4().hex
    if rank:
        store.set(f"asked/{rank}", key)
        name = store.get(f"answered/{key}").decode()
        store.set(f"thanked/{name}/{rank}", "")
        return name
    missing, deadline = set(range(1, world)), time.monotonic() + STEP_TIMEOUT.total_seconds()
    while missing:
        for other in sorted(missing):
            if store.check([f"thanked/{key}/{other}"]):
                missing.remove(other)
            elif store.check([f"asked/{other}"]):
                store.set(f"answered/{store.get(f'asked/{other}').decode()}", key)
        if time.monotonic() > deadline:
            raise SeqloomError(f"{len(missing)} of {world} processes did not come within {STEP_TIMEOUT}")
        time.sleep(0.01)
    return key


def _bytes(value: Any) -> Tensor:
    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
