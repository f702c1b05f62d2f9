"""Decoding on a GPU by steps that are recorded once and replayed.

A GPU finishes the small kernels of a step sooner than a host can launch them, and waits whenever the host looks at what
was found. A CUDA graph launches a whole step at once, the search's own arithmetic with it; the host only asks now and
then whether all have ended, and goes on meanwhile. A graph is good for one shape: requests are rounded up to few.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from seqloom.data.batches.collate import Padded, bucket_size
from seqloom.decoding.hypotheses import Hypothesis
from seqloom.decoding.options import Search
from seqloom.fast.cuda_graphs.fixed_shape_decoder import Attend, Fixed, Shape, fits
from seqloom.fast.cuda_graphs.fixed_shape_search import FixedShapeBeam, FixedShapeGreedy
from seqloom.fast.cuda_graphs.record import recording
from seqloom.fast.triton_common import runtime
from seqloom.models.seq2seq import Seq2Seq, Stepper

FRAMES, BYTES = 32, 4 << 30  # shapes that are kept, and what they may take; more than that goes the plain way
SHORTEST = 32  # steps that the first graph of a shape looks back; then as many again
LOOK = 4  # steps after which the host asks; it reads the answer when half as many more are on their way


class Replays:
    """Replays for one model, kept by whoever decodes with it. Weights may change, as long as they stay in their place.

    One request at a time: who comes while another is served gets None, as does every request that does not fit, and
    goes the plain way. For tests and comparisons: `anywhere` takes other devices than CUDA, `record` off runs the steps
    one by one, `attend` says how to attend and `around` what to do with a step before it is recorded.
    """

    def __init__(
        self,
        anywhere: bool = False,
        record: bool = True,
        attend: Attend | None = None,
        around: Callable[[Any], Any] | None = None,
    ) -> None:
        self.anywhere, self.record, self.attend, self.around = anywhere, record, attend, around
        self.lock = threading.Lock()
        self.frames: dict[Hashable, Frame] = {}  # those used last come last
        self.known: Any = None
        self.tape: Tape | None = None

    def __call__(
        self, stepper: Stepper, source: Padded, limits: list[int], search: Search
    ) -> list[list[Hypothesis]] | None:
        device = source.tokens.device
        if search.sample or not (device.type == "cuda" or self.anywhere):
            return None
        known = fits(stepper, search.beam, max(limits))
        if known is None or not self.lock.acquire(blocking=False):
            return None
        try:
            if self.known != known:  # a graph knows weights by their places alone
                self.forget()
                self.known, self.tape = known, Tape.of(device) if self.record and device.type == "cuda" else None
            frame = self._frame(stepper, source, limits, search)  # pyright: ignore[reportArgumentType]
            return None if frame is None else frame.run(source, limits, search)
        finally:
            self.lock.release()

    def forget(self) -> None:
        """Give back all memory."""
        self.frames.clear()

    def _frame(self, model: Seq2Seq, source: Padded, limits: list[int], search: Search) -> Frame | None:
        shape = shape_of(len(limits), search.beam, max(limits), source.tokens.size(1))
        key = (shape, search.first is not None, search.close)
        if key in self.frames:
            self.frames[key] = self.frames.pop(key)
            return self.frames[key]
        if _bytes(model, shape) > BYTES:
            return None
        fixed = Fixed(model, shape, self.attend)
        fixed_search = (FixedShapeBeam if search.beam > 1 else FixedShapeGreedy)(fixed, *key[1:])
        self.frames[key] = Frame(fixed, fixed_search, self.tape, self.around)
        while len(self.frames) > FRAMES or sum(_bytes(model, one.fixed.shape) for one in self.frames.values()) > BYTES:
            del self.frames[next(iter(self.frames))]
        return self.frames[key]


class Tape(NamedTuple):
    """What is recorded from, and where graphs have their own memory: one for all, since no two run at once."""

    stream: Any
    pool: Any

    @classmethod
    def of(cls, device: torch.device) -> Tape:
        runtime.prepare(device)
        return cls(torch.cuda.Stream(device), torch.cuda.graph_pool_handle())


class Frame:
    """Everything for requests of one shape: where they stand, and the graphs of their steps."""

    def __init__(
        self,
        fixed: Fixed,
        fixed_search: FixedShapeGreedy | FixedShapeBeam,
        tape: Tape | None,
        around: Callable[[Any], Any] | None,
    ) -> None:
        self.fixed, self.fixed_search, self.tape = fixed, fixed_search, tape
        self.step = fixed_search.step if around is None else around(fixed_search.step)
        self.graphs: dict[Hashable, Any] = {}  # of torch.cuda.CUDAGraph
        self.met: set[Hashable] = set()
        cuda = fixed.at.is_cuda
        self.told = torch.zeros(1, dtype=torch.bool, pin_memory=cuda)
        self.event = torch.cuda.Event() if cuda else None

    def run(self, source: Padded, limits: list[int], search: Search) -> list[list[Hypothesis]]:
        fixed, steps = self.fixed, max(limits)
        fixed.ask(source, self.fixed_search.ask(limits, search))
        if fixed.still:
            self._do("begin", self._begin, fixed.source)
        else:
            self._begin(source)
        for t in range(steps):
            self._do(span := spans(t, fixed.shape.room), self.step, span)
            if self._over(t):
                steps = t + 1
                break
        return self.fixed_search.found(len(limits), steps, search.n_best)

    def _begin(self, source: Padded) -> None:
        self.fixed.begin(source)
        self.fixed_search.begin()

    def _over(self, t: int) -> bool:
        """The host never waits for the step it has just launched: meanwhile the device would have nothing to do."""
        if t % LOOK == LOOK - 1:
            self.told.copy_(self.fixed_search.left, non_blocking=True)
            if self.event is not None:
                self.event.record()
        if t % LOOK != LOOK // 2 - 1 or t < LOOK:
            return False
        if self.event is not None:
            self.event.synchronize()
        return not bool(self.told)

    def _do(self, key: Hashable, work: Callable[[Any], None], given: Any) -> None:
        """Plainly at first, which sets up what a recording must find set up; from the second time on recorded."""
        if key in self.graphs:
            self.graphs[key].replay()
        elif self.tape is None:
            work(given)
        elif key not in self.met:
            self.met.add(key)
            with self._aside(self.tape.stream):
                work(given)
        elif (graph := self._recorded(self.tape, work, given)) is not None:
            self.graphs[key] = graph
            graph.replay()
        else:
            work(given)

    def _recorded(self, tape: Tape, work: Callable[[Any], None], given: Any) -> Any:
        """Nothing is computed here, only noted down. None: it cannot be recorded."""
        graph = torch.cuda.CUDAGraph()
        try:
            with recording(graph, tape.pool, tape.stream):
                work(given)
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            self.tape = None
            why = str(error).splitlines()[0]
            warnings.warn(f"steps of decoding are not recorded, which costs speed: {why}", stacklevel=2)
            return None
        return graph

    @contextmanager
    def _aside(self, stream: Any) -> Iterator[None]:
        """On the stream that is recorded from: what a first pass sets up, as workspaces, it sets up there."""
        here = torch.cuda.current_stream(self.fixed.at.device)
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            yield
        here.wait_stream(stream)


def shape_of(sentences: int, width: int, steps: int, source: int) -> Shape:
    """One of few shapes. Multiples of 16: a kernel copies a mask that is none."""
    return Shape(
        bucket_size(sentences),
        width,
        max(SHORTEST, _sixteens(bucket_size(steps, 2))),
        _sixteens(bucket_size(source, 4)),
    )


def spans(t: int, room: int) -> int:
    """How many places step t looks at: all that were written, and no more than twice as many."""
    return min(room, max(SHORTEST, 1 << t.bit_length()))


def _sixteens(number: int) -> int:
    return -(-number // 16) * 16


def _bytes(model: Seq2Seq, shape: Shape) -> int:
    """What keys and values take, and the logits."""
    weight, layers = model.output.weight, len(model.decoder.blocks)  # pyright: ignore
    kept = 2 * layers * shape.sentences * (shape.width * shape.room + shape.source) * weight.size(1)
    return kept * weight.element_size() + 8 * shape.rows * weight.size(0)
