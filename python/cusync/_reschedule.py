"""Captured CUDA graphs, rescheduled.

A capture is a chain of nodes. Schemas of operators say which tensors each of them reads and writes; all other memory
that a node gets an address of is read and written as a whole.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from . import _cusync
from ._errors import argument_error
from ._program import _arguments, _draws, _end, _tensors, _written

#: First address, one past the last, and what happens there.
_Span = tuple[int, int, int]
_READ, _WRITE, _UPDATE = range(3)

#: Operators that call libraries with workspaces.
_PRODUCTS = {*flop_registry, torch.ops.aten.linear, torch.ops.aten.matmul, torch.ops.aten.einsum}

#: Events of the allocator that are kept while a graph is captured.
_EVENTS = 1 << 20


def _spans(tensors: Iterable[torch.Tensor], mode: int) -> list[_Span]:
    """The bytes of tensors, each from its first element to its last."""
    sizes = [(tensor.data_ptr(), _end(tensor) * tensor.element_size()) for tensor in tensors]
    return [(first, first + size, mode) for first, size in sizes if first and size]


def _accesses(target: Any, args: Any, kwargs: dict[str, Any], result: Any) -> list[_Span] | None:
    """All accesses of a call of an operator; ``None`` if tensors are not strided, so that they are not known."""
    arguments = _arguments(target, args, kwargs)
    if _draws(target, arguments):
        raise argument_error(
            f"`{target}` takes random numbers, whose state only a replay by torch advances",
            "capture code without them, such as a module in eval mode",
        )
    names = _written(target, target._schema.name.split("::")[1], arguments)
    inputs, results = _tensors((args, kwargs)), _tensors(result)
    if any(tensor.layout != torch.strided for tensor in [*inputs, *results]):
        return None
    written = _tensors([arguments[name][0] for name in arguments if name in names])
    known = {tensor.data_ptr() for tensor in inputs}
    made = [tensor for tensor in results if tensor.data_ptr() not in known]
    return _spans(inputs, _READ) + _spans(written, _UPDATE) + _spans(made, _WRITE)


@functools.cache
def _stream(gpu: int, number: int) -> torch.cuda.Stream:
    """One of the streams of captures, whose workspaces stay."""
    return torch.cuda.Stream(gpu)


class _Recorder(TorchDispatchMode):
    """Notes the nodes and the accesses of each operator.

    Operators run one after another, but products on several streams in turn: libraries keep a workspace for each stream,
    and calls with one workspace could never run at the same time. So that no memory is used twice, results are kept.
    """

    def __init__(self, gpu: int, streams: int, keep: bool) -> None:
        super().__init__()
        self.gpu, self.keep = gpu, keep
        self.streams = [_stream(gpu, number) for number in range(streams)]
        self.last = self.streams[0]
        self.operators: list[tuple[int, int, list[_Span]]] = []
        self._turn = itertools.cycle(self.streams)
        self._alive: list[torch.Tensor] = []

    def _captured(self) -> int:
        return _cusync.captured_nodes(self.gpu, self.last.cuda_stream)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.cuda.current_stream(self.gpu) != self.last:
            raise argument_error("the code changes streams itself", "capture it with torch, and give the graph")
        if func.overloadpacket in _PRODUCTS:
            self._go(next(self._turn))
        first = self._captured()
        result = func(*args, **kwargs)
        end = self._captured()
        spans = _accesses(func, args, kwargs, result)
        if first < end and spans is not None:
            self.operators.append((first, end, spans))
        if self.keep and end:
            self._alive += _tensors(result)
        return result

    def _go(self, stream: torch.cuda.Stream) -> None:
        stream.wait_stream(self.last)
        torch.cuda.set_stream(stream)
        self.last = stream

    def call(self, work: Callable[[], Any]) -> Any:
        """Runs code that begins and ends on the first stream."""
        try:
            with self:
                return work()
        finally:
            self._go(self.streams[0])


def _blocks(gpu: int) -> list[_Span]:
    """Live memory of torch's allocator outside of the pools of graphs."""
    segments = [segment for segment in torch.cuda.memory_snapshot() if segment["device"] == gpu]
    common = [segment for segment in segments if tuple(segment["segment_pool_id"]) == (0, 0)]
    blocks = [block for segment in common for block in segment["blocks"] if block["state"] != "inactive"]
    return [(block["address"], block["address"] + block["size"], _UPDATE) for block in blocks]


def _capture(
    work: Callable[[], Any], recorder: _Recorder, warmups: int
) -> tuple[torch.cuda.CUDAGraph, Any, list[_Span]]:
    """A graph of the code, its result, and the pieces of memory that it may use."""
    first, outer = recorder.streams[0], torch.cuda.current_stream(recorder.gpu)
    first.wait_stream(outer)
    with torch.cuda.stream(first):
        for _ in range(warmups):
            recorder.call(work)
    outer.wait_stream(first)
    torch.cuda.synchronize(recorder.gpu)
    memory = _blocks(recorder.gpu)
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    # Memory that was freed again may lie across later blocks, so the blocks at the end are not enough.
    torch.cuda.memory._record_memory_history("all", context=None, stacks="python", max_entries=_EVENTS)
    try:
        with torch.cuda.graph(graph, stream=first, capture_error_mode="thread_local"):
            output = recorder.call(work)
        events = torch.cuda.memory._snapshot(recorder.gpu)["device_traces"][recorder.gpu]
    finally:
        torch.cuda.memory._record_memory_history(None)
    if len(events) >= _EVENTS:
        raise argument_error("the code allocates memory too often", "capture a smaller part of it")
    made = [(event["addr"], event["addr"] + event["size"], _UPDATE) for event in events if event["action"] == "alloc"]
    return graph, output, memory + made


class Rescheduled:
    """A captured graph whose independent nodes run at the same time.

    ``graph`` is torch's graph of the same nodes, and ``output`` what the captured code returned. ``report`` says how
    many nodes there are, how many of them belong to operators (``stated``) or are ordered with all others
    (``barriers``), the form of the schedule, how many nodes run at a time (``lanes``), the sum of the nodes' times
    (``serial_us``) and the predicted time.
    """

    def __init__(self, native: _cusync.Rescheduled, graph: torch.cuda.CUDAGraph, output: Any, gpu: int) -> None:
        self._native, self._gpu = native, gpu
        self.graph, self.output = graph, output
        self.report = native.report()

    def replay(self) -> None:
        """Queue the nodes on torch's current stream. Replays must follow each other."""
        self._native.replay(torch.cuda.current_stream(self._gpu).cuda_stream)


def reschedule(
    work: torch.cuda.CUDAGraph | Callable[[], Any],
    *,
    constants: Iterable[torch.Tensor | torch.nn.Module] = (),
    memory: Iterable[torch.Tensor] = (),
    us: list[float] | None = None,
    form: str | None = None,
    streams: int | None = None,
    workspaces: int = 8,
    share_memory: bool = False,
    warmups: int = 3,
) -> Rescheduled:
    """Run the nodes of a CUDA graph at the same time where no node needs another's result. Needs torch 2.8.

    ``work`` is code without arguments, which is captured here after ``warmups`` runs, or a graph that was captured with
    ``keep_graph=True``. Of code, the schemas of its operators say what each node reads and writes. Other nodes read and
    write each tensor of ``memory`` and each piece of other memory that they have an address in, as a whole; they only
    read ``constants``, tensors or the parameters of modules, which no node may write. A kernel that reaches memory by
    pointers in device memory has to belong to an operator.

    ``us`` are measured times of the nodes in their order; without them, times are estimated from bytes. ``streams``
    limits the nodes that run at a time. Captured code gets so many ``workspaces`` of libraries, and its results share
    memory only if ``share_memory`` is true: nodes that share either wait for each other.
    """
    if not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph"):
        raise argument_error(f"torch {torch.__version__} does not give away graphs", "use torch 2.8 or newer")
    gpu = torch.cuda.current_device()
    operators: list[tuple[int, int, list[_Span]]] = []
    if isinstance(work, torch.cuda.CUDAGraph):
        graph, output, pieces = work, None, _blocks(gpu)
    else:
        recorder = _Recorder(gpu, max(1, workspaces), not share_memory)
        graph, output, pieces = _capture(work, recorder, warmups)
        operators = recorder.operators
    pieces += _spans(memory, _UPDATE)
    for constant in constants:
        tensors = constant.parameters() if isinstance(constant, torch.nn.Module) else [constant]
        pieces += _spans(tensors, _READ)
    torch.cuda.synchronize(gpu)
    native = _cusync.Rescheduled(graph.raw_cuda_graph(), gpu, pieces, operators, us, (form, streams))
    return Rescheduled(native, graph, output, gpu)
