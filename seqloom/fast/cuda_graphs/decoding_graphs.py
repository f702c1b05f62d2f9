"""Decoding by CUDA graphs: steps are recorded once and replayed.

A GPU finishes the small kernels of a step before the host can launch the next ones, and idles whenever the host reads
results. A CUDA graph launches a whole step at once, including the search; the host checks only now and then, without
waiting, whether all sentences have ended. A graph has one shape, so requests are rounded up to a few shapes.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import nn

from seqloom.acceleration import plain_of, twin_of
from seqloom.data.batches.collate import Padded, bucket_size
from seqloom.decoding.hypotheses import Hypothesis
from seqloom.decoding.search import decode, release
from seqloom.decoding.search_options import BEAM, GREEDY, Search
from seqloom.fast.cuda_graphs.fixed_shape_decoder import AttentionFunction, FixedShapeDecoder, Shape, weights_key
from seqloom.fast.cuda_graphs.fixed_shape_search import FixedShapeBeam, FixedShapeGreedy
from seqloom.fast.cuda_graphs.record import recording
from seqloom.fast.triton_common import runtime
from seqloom.models.seq2seq import Seq2Seq, Stepper

MAX_SHAPES, MAX_BYTES = 32, 4 << 30  # of cached shapes; larger requests are decoded without graphs
MIN_STEPS = 32  # visible in the first graph of a shape; doubled in each further one
CHECK_EVERY = 4  # steps after which the device copies `running` to the host, which reads it half as many steps later


class DecodingGraphs:
    """CUDA graphs for one model. Weights may change, but not their addresses. They do not keep the model alive.

    Returns None for requests that are not supported and while another request runs: these are decoded without graphs.
    For tests and benchmarks: `any_device` allows devices other than CUDA, `record=False` runs steps without graphs,
    `attend` replaces the attention function, `wrap_step` wraps a step before it is recorded.
    """

    def __init__(
        self,
        any_device: bool = False,
        record: bool = True,
        attend: AttentionFunction | None = None,
        wrap_step: Callable[[Any], Any] | None = None,
    ) -> None:
        self.any_device, self.record, self.attend, self.wrap_step = any_device, record, attend, wrap_step
        self.lock = threading.Lock()
        self.shapes: dict[Hashable, ShapeGraphs] = {}  # least recently used first
        self.weights: Any = None
        self.pool: GraphPool | None = None

    def __call__(
        self, stepper: Stepper, source: Padded, limits: list[int], search: Search
    ) -> list[list[Hypothesis]] | None:
        device = source.tokens.device
        if not _has_graphs(search) or not (device.type == "cuda" or self.any_device):
            return None
        weights = weights_key(stepper, search.beam, max(limits))
        if weights is None or not self.lock.acquire(blocking=False):
            return None
        try:
            if self.weights != weights:  # a graph refers to weights by address
                self.clear()
                record = self.record and device.type == "cuda"
                self.weights, self.pool = weights, GraphPool.of(device) if record else None
            shape_graphs = self._shape_graphs(stepper, source, limits, search)  # pyright: ignore[reportArgumentType]
            return None if shape_graphs is None else shape_graphs.run(source, limits, search)
        finally:
            self.lock.release()

    def clear(self) -> None:
        """Free all memory."""
        self.shapes.clear()

    def _shape_graphs(self, model: Seq2Seq, source: Padded, limits: list[int], search: Search) -> ShapeGraphs | None:
        shape = shape_of(len(limits), search.beam, max(limits), source.tokens.size(1))
        key = (shape, search.first is not None, search.close)
        if key in self.shapes:
            self.shapes[key] = self.shapes.pop(key)
            return self.shapes[key]
        if _memory_bytes(model, shape) > MAX_BYTES:
            return None
        decoder = FixedShapeDecoder(model, shape, self.attend)
        fixed_search = (FixedShapeBeam if search.beam > 1 else FixedShapeGreedy)(decoder, *key[1:])
        self.shapes[key] = ShapeGraphs(decoder, fixed_search, self.pool, self.wrap_step)
        while (
            len(self.shapes) > MAX_SHAPES
            or sum(_memory_bytes(model, graphs.decoder.shape) for graphs in self.shapes.values()) > MAX_BYTES
        ):
            del self.shapes[next(iter(self.shapes))]
        return self.shapes[key]


# Of each model. None: no graphs, whatever the device.
GRAPHS: WeakKeyDictionary[nn.Module, DecodingGraphs | None] = WeakKeyDictionary()


def _has_graphs(search: Search) -> bool:
    return search.kind == (BEAM if search.beam > 1 else GREEDY)


def supported(
    stepper: Stepper, source: Padded, limits: list[int], search: Search, indices: Sequence[int] | None = None
) -> bool:
    if not _has_graphs(search) or type(stepper) is not Seq2Seq:
        return False
    if source.tokens.is_cuda and stepper not in GRAPHS:
        GRAPHS.setdefault(stepper, DecodingGraphs())
    return GRAPHS.get(stepper) is not None


@twin_of(decode, supported)
def replay(
    stepper: Stepper, source: Padded, limits: list[int], search: Search, indices: Sequence[int] | None = None
) -> list[list[Hypothesis]]:
    graphs = GRAPHS.get(stepper)  # pyright: ignore[reportArgumentType, reportCallIssue]
    found = None if graphs is None else graphs(stepper, source, limits, search)
    if not found or not all(found):  # without graphs; which also raises the error if scores are not finite
        return plain_of(decode)(stepper, source, limits, search, indices)
    return found


@twin_of(release, lambda stepper: stepper in GRAPHS, own_state=True)
def release_graphs(stepper: Stepper) -> None:
    graphs = GRAPHS.get(stepper)  # pyright: ignore[reportArgumentType, reportCallIssue]
    if graphs is not None:
        graphs.clear()


@contextmanager
def using(graphs: DecodingGraphs | None, model: nn.Module) -> Iterator[None]:
    """For tests and benchmarks: `decode` this model by these graphs, or by none."""
    before, known, GRAPHS[model] = GRAPHS.get(model), model in GRAPHS, graphs
    try:
        yield
    finally:
        if known:
            GRAPHS[model] = before
        else:
            del GRAPHS[model]


class GraphPool(NamedTuple):
    """The recording stream and the memory pool of all graphs, shared since no two run at once."""

    stream: Any
    pool: Any

    @classmethod
    def of(cls, device: torch.device) -> GraphPool:
        runtime.prepare(device)
        return cls(torch.cuda.Stream(device), torch.cuda.graph_pool_handle())


class ShapeGraphs:
    """For requests of one shape: the tensors, and a graph for each number of visible steps."""

    def __init__(
        self,
        decoder: FixedShapeDecoder,
        fixed_search: FixedShapeGreedy | FixedShapeBeam,
        pool: GraphPool | None,
        wrap_step: Callable[[Any], Any] | None,
    ) -> None:
        self.decoder, self.fixed_search, self.pool = decoder, fixed_search, pool
        self.step = fixed_search.step if wrap_step is None else wrap_step(fixed_search.step)
        self.graphs: dict[Hashable, Any] = {}  # of torch.cuda.CUDAGraph
        self.warmed_up: set[Hashable] = set()
        cuda = decoder.step_index.is_cuda
        self.running_host = torch.zeros(1, dtype=torch.bool, pin_memory=cuda)
        self.event = torch.cuda.Event() if cuda else None

    def run(self, source: Padded, limits: list[int], search: Search) -> list[list[Hypothesis]]:
        decoder, steps = self.decoder, max(limits)
        decoder.set_source(source, self.fixed_search.set_request(limits, search))
        if decoder.encoder_is_fixed:
            self._run("begin", self._begin, decoder.source)
        else:
            self._begin(source)
        for t in range(steps):
            self._run(visible_steps := visible_steps_at(t, decoder.shape.max_steps), self.step, visible_steps)
            if self._finished(t):
                steps = t + 1
                break
        return self.fixed_search.hypotheses(len(limits), steps, search.n_best)

    def _begin(self, source: Padded) -> None:
        self.decoder.begin(source)
        self.fixed_search.begin()

    def _finished(self, t: int) -> bool:
        """Whether all sentences have ended. Reads an older step's flag: waiting for the latest step would idle the
        device."""
        if t % CHECK_EVERY == CHECK_EVERY - 1:
            self.running_host.copy_(self.fixed_search.running, non_blocking=True)
            if self.event is not None:
                self.event.record()
        if t % CHECK_EVERY != CHECK_EVERY // 2 - 1 or t < CHECK_EVERY:
            return False
        if self.event is not None:
            self.event.synchronize()
        return not bool(self.running_host)

    def _run(self, key: Hashable, work: Callable[[Any], None], argument: Any) -> None:
        """Runs eagerly the first time, as warm-up; recorded the second time and replayed from then on."""
        if key in self.graphs:
            self.graphs[key].replay()
        elif self.pool is None:
            work(argument)
        elif key not in self.warmed_up:
            self.warmed_up.add(key)
            with self._on_recording_stream(self.pool.stream):
                work(argument)
        elif (graph := self._record(self.pool, work, argument)) is not None:
            self.graphs[key] = graph
            graph.replay()
        else:
            work(argument)

    def _record(self, pool: GraphPool, work: Callable[[Any], None], argument: Any) -> Any:
        """Records without running. None: it cannot be recorded."""
        graph = torch.cuda.CUDAGraph()
        try:
            with recording(graph, pool.pool, pool.stream):
                work(argument)
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            self.pool = None
            why = str(error).splitlines()[0]
            warnings.warn(f"steps of decoding are not recorded, which costs speed: {why}", stacklevel=2)
            return None
        return graph

    @contextmanager
    def _on_recording_stream(self, stream: Any) -> Iterator[None]:
        """Warm-up runs on the recording stream, so that workspaces are allocated there."""
        current = torch.cuda.current_stream(self.decoder.step_index.device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            yield
        current.wait_stream(stream)


def shape_of(sentences: int, width: int, steps: int, source: int) -> Shape:
    """One of few shapes. Multiples of 16: attention kernels copy other masks."""
    return Shape(
        bucket_size(sentences),
        width,
        max(MIN_STEPS, _round_up_16(bucket_size(steps, 2))),
        _round_up_16(bucket_size(source, 4)),
    )


def visible_steps_at(t: int, max_steps: int) -> int:
    """Steps that step t attends to: all before it, rounded up to a power of two."""
    return min(max_steps, max(MIN_STEPS, 1 << t.bit_length()))


def _round_up_16(number: int) -> int:
    return -(-number // 16) * 16


def _memory_bytes(model: Seq2Seq, shape: Shape) -> int:
    """Memory of keys, values and logits."""
    weight, layers = model.output.weight, len(model.decoder.blocks)  # pyright: ignore
    elements = 2 * layers * shape.sentences * (shape.width * shape.max_steps + shape.source) * weight.size(1)
    return elements * weight.element_size() + 8 * shape.rows * weight.size(0)
