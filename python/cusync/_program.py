"""Programs of kernels from exported graphs of PyTorch.

Every call of a graph runs once on tensors that have no data. Their storages show which results are new memory, which
are views, and the bytes of each view, so this file has no list of views. Schemas show what a call writes.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from ._errors import CusyncError

#: Calls that reserve memory and launch nothing.
_RESERVES = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}

#: Calls that check shapes and types on the host.
_HOST_CHECKS = {"_assert_tensor_metadata"}

#: Calls that take only the shape of their first argument, as do those whose names begin with ``new_`` or end in
#: ``_like``.
_SHAPES = {"copy"}

#: Calls that overwrite their first argument without a look at its contents.
_OVERWRITES = {"copy_", "fill_", "zero_"}

#: Calls that touch only the rows of their first argument that indices name.
_INDEXED = {"embedding", "index", "index_select", "gather", "take"}
_INDEXED_UPDATES = {"index_copy_", "index_add_", "index_put_", "index_fill_", "scatter_", "scatter_add_"}

#: Calls of a graph inside the graph that only set a mode.
_MODES = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4}

#: Estimated work of a CTA in bytes: results of a product, its traffic, and the traffic of other kernels.
_TILE, _SLICE, _PIECE = 128 * 128 * 2, 1 << 16, 1 << 12

#: State of the random numbers, in bytes: a seed and a count.
_RANDOM = 16


@dataclass
class _Buffer:
    name: str
    bytes: int
    external: bool


@dataclass(frozen=True)
class _Range:
    """Bytes of a buffer, and how many of them a view of it moves."""

    buffer: int
    first: int
    end: int
    moved: int

    @property
    def exact(self) -> bool:
        return self.moved == self.end - self.first

    @property
    def bytes(self) -> tuple[int, int, int]:
        return (self.buffer, self.first, self.end)


@dataclass
class _Kernel:
    name: str
    reads: list[_Range] = field(default_factory=list)
    writes: list[_Range] = field(default_factory=list)
    updates: list[_Range] = field(default_factory=list)
    flops: int = 0
    #: Bytes moved, if an index selects them.
    moved: int | None = None


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _storage(tensor: torch.Tensor) -> int:
    """The identity of a tensor's storage while the storage lives."""
    return int(tensor.untyped_storage()._cdata)


def _end(tensor: torch.Tensor) -> int:
    """Elements from the first of a tensor to one past its last."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))


def _distinct(tensors: Iterable[torch.Tensor]) -> list[_Range]:
    """The bytes of tensors, each range once; empty tensors have none."""
    found: dict[tuple[int, int, int], _Range] = {}
    for tensor in tensors:
        size = tensor.element_size()
        first = tensor.storage_offset() * size
        end = first + _end(tensor) * size
        if first < end:
            elements = math.prod(n for n, step in zip(tensor.shape, tensor.stride()) if step != 0)
            one = _Range(_storage(tensor), first, end, min(end - first, elements * size))
            found.setdefault(one.bytes, one)
    return list(found.values())


def _arguments(target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The arguments of an operator by name, each with its description in the schema."""
    described = target._schema.arguments
    values = {a.name: kwargs.get(a.name, a.default_value) for a in described}
    values.update(zip((a.name for a in described), args))
    return {a.name: (values[a.name], a) for a in described}


def _draws(target: Any, arguments: dict[str, tuple[Any, Any]]) -> bool:
    """Whether a call takes random numbers."""
    given = {name: value for name, (value, _) in arguments.items()}
    off = any(given.get(name, True) is False for name in ("train", "training"))
    return torch.Tag.nondeterministic_seeded in target.tags and not off and given.get("dropout_p") != 0


def _written(target: Any, base: str, arguments: dict[str, tuple[Any, Any]]) -> set[str]:
    """Names of the arguments that a call writes."""
    named = {name for name, (_, a) in arguments.items() if a.alias_info is not None and a.alias_info.is_write}
    # Schemas of normalisations do not say that training changes their statistics.
    flags = [arguments[name][0] for name in ("training", "train", "use_input_stats") if name in arguments]
    kept = base.endswith(("_functional", "_no_training", "_no_update")) or False in flags
    if target.namespace == "aten" and not kept:
        named.update({"running_mean", "running_var"} & set(arguments))
    return named


class _Reader:
    """Follows a graph call by call."""

    def __init__(self) -> None:
        #: By storage, in the order of appearance.
        self.buffers: dict[int, _Buffer] = {}
        self.kernels: list[_Kernel] = []
        self._names: set[str] = set()
        self._kernel_names: set[str] = set()
        #: Storages without contents: reserved, and not written yet.
        self._blank: set[int] = set()
        #: Tensors of storages, so that no identity is used twice.
        self._alive: list[torch.Tensor] = []
        #: Tensors without data for storages with data.
        self._filled: dict[int, torch.Tensor] = {}

    def refuse(self, node: torch.fx.Node, why: str, help: str) -> NoReturn:
        """Raise an error that names a node and, if known, its place in the Python code."""
        message = f"node `{node.name}` ({node.target}) cannot be scheduled: {why}"
        places = re.findall(r'File "([^"<]+)", line (\d+)', node.meta.get("stack_trace") or "")
        file, line = places[-1] if places else (None, None)
        text = f"error[unsupported]: {message}\n" + (f"  in {file}:{line}\n" if file else "") + f"  help: {help}"
        raise CusyncError(
            text,
            code="unsupported",
            message=message,
            help=help,
            file=file,
            line=int(line) if line else None,
        )

    def _name(self, name: str, taken: set[str]) -> str:
        """A name for the program that is not taken: at most 64 characters."""
        plain = re.sub(r"[^A-Za-z0-9_.&/-]", "_", name)[:64] or "_"
        unique, number = plain, 1
        while unique in taken:
            number += 1
            unique = f"{plain[:58]}.{number}"
        taken.add(unique)
        return unique

    def _add(self, name: str, tensor: torch.Tensor, external: bool) -> None:
        self._alive.append(tensor)
        size = tensor.untyped_storage().nbytes()
        self.buffers[_storage(tensor)] = _Buffer(self._name(name, self._names), size, external)

    def external(self, name: str, node: torch.fx.Node, like: Any, real: Any) -> Any:
        """A value from outside. Tensors get a buffer; those with data share one if they share a storage."""
        if like is None or type(like) in (int, float, bool, str):
            return like
        if not isinstance(like, torch.Tensor):
            self.refuse(node, f"it is a {type(like).__name__}, not a tensor", "export a module without such inputs")
        if like.layout != torch.strided:
            self.refuse(node, f"its layout is {like.layout}", "give dense tensors")
        if not all(type(n) is int for n in (*like.shape, *like.stride(), like.storage_offset())):
            self.refuse(node, f"its shape {tuple(like.shape)} is not fixed", "export without dynamic shapes")
        size = like.element_size()
        real = real if isinstance(real, torch.Tensor) else None
        key = None if real is None else _storage(real)
        base = self._filled.get(key) if key is not None else None
        if base is None:
            needed = (like.storage_offset() + _end(like)) * size
            whole = needed if real is None else max(needed, real.untyped_storage().nbytes())
            base = torch.empty(whole, dtype=torch.uint8, device=like.device)
            self._add(name, base, True)
            if key is not None:
                self._filled[key] = base
        items = base[: base.numel() // size * size].view(like.dtype)
        return items.as_strided(like.shape, like.stride(), like.storage_offset())

    def run(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        """Follow a graph, and return its outputs."""
        values: dict[torch.fx.Node, Any] = {}
        given = iter(inputs)
        for node in module.graph.nodes:
            if node.op == "output":
                return torch.fx.node.map_arg(node.args[0], values.__getitem__)
            if node.op == "placeholder":
                values[node] = next(given)
            elif node.op == "get_attr":
                held: Any = module
                for part in str(node.target).split("."):
                    held = getattr(held, part)
                inner = isinstance(held, torch.fx.GraphModule)
                values[node] = held if inner else self.external(str(node.target), node, held, held)
            elif node.op == "call_function":
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = self._call(node, args, kwargs)
            else:
                self.refuse(node, "it calls Python code", "give the result of torch.export.export")
        return None

    def _call(self, node: torch.fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        target: Any = node.target
        if isinstance(target, torch._ops.HigherOrderOperator):
            at = _MODES.get(target.name())
            if at is None:
                self.refuse(node, "it runs graphs of its own", "leave control flow out of the exported module")
            if at == 1:
                return self.run(args[at], args[at + 1 :])
            with torch.autocast(args[0], dtype=args[1], enabled=args[2], cache_enabled=args[3]):
                return self.run(args[at], args[at + 1 :])
        if isinstance(target, torch._ops.OpOverload):
            return self._operator(node, target, args, kwargs)
        picks = target is operator.getitem and isinstance(args[0], (list, tuple))
        if not picks and _tensors((args, kwargs)):
            self.refuse(node, "it is no operator of torch", "give the result of torch.export.export")
        return target(*args, **kwargs)

    def _operator(self, node: torch.fx.Node, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        inputs = _tensors((args, kwargs))
        before = [(_storage(tensor), tensor.untyped_storage().nbytes()) for tensor in inputs]
        result, flops = self._result(node, target, args, kwargs)
        if before != [(_storage(tensor), tensor.untyped_storage().nbytes()) for tensor in inputs]:
            self.refuse(node, "it changes the storage of a tensor", "write into a tensor of the final size")
        if torch.Tag.inplace_view in target.tags:
            return result
        base = target._schema.name.split("::")[1]
        arguments = _arguments(target, args, kwargs)
        values = [value for value, _ in arguments.values()]
        writes = _written(target, base, arguments)
        written = _tensors([arguments[name][0] for name in arguments if name in writes])
        made: dict[int, torch.Tensor] = {}
        for tensor in _tensors(result):
            if tensor.layout != torch.strided:
                self.refuse(node, f"its result has the layout {tensor.layout}", "use dense tensors")
            known = _storage(tensor) in self.buffers
            stated = target.namespace in ("aten", "prims") or any(r.alias_info for r in target._schema.returns)
            if known and not stated:
                self.refuse(node, "its result shares memory, and its schema does not say so", "return a copy")
            if not known:
                made.setdefault(_storage(tensor), tensor)
        for number, tensor in enumerate(made.values()):
            self._add(f"{node.name}.{number}" if number else node.name, tensor, False)
        checks = result is None and bool(inputs) and base not in _HOST_CHECKS
        if base in _RESERVES:
            self._blank.update(made)
        if base in _RESERVES or not (made or written or checks) or (base == "copy_" and values[0] is values[1]):
            return result
        # Arguments of operators of torch that only have names, and are written, are places for results.
        blindly = target.namespace == "aten"
        overwritten = {name for name in writes if base in _OVERWRITES or (blindly and arguments[name][1].kwarg_only)}
        shape = base in _SHAPES or base.startswith("new_") or base.endswith("_like")
        looked = [name for name in list(arguments)[shape:] if name not in writes]
        read = [t for name in looked for t in _tensors(arguments[name][0]) if _storage(t) not in self._blank]
        self._blank.difference_update(map(_storage, written))
        kernel = _Kernel(self._name(node.name, self._kernel_names), _distinct(read), flops=flops)
        new = [(_storage(t), self.buffers[_storage(t)].bytes) for t in made.values()]
        kernel.writes = [_Range(storage, 0, size, size) for storage, size in new if size]
        blind = {one.bytes for one in _distinct(_tensors([arguments[name][0] for name in overwritten]))}
        blind -= {one.bytes for one in kernel.reads}
        for one in _distinct(written):
            (kernel.writes if one.exact and one.bytes in blind else kernel.updates).append(one)
        kernel.reads = [one for one in kernel.reads if one.bytes not in {o.bytes for o in kernel.updates}]
        if _draws(target, arguments):
            kernel.updates.append(self._random())
        kernel.moved = self._indexed(base, kernel, values)
        if kernel.writes or kernel.updates or (checks and kernel.reads):
            self.kernels.append(kernel)
        return result

    def _result(self, node: torch.fx.Node, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, int]:
        """The result of a call, and the operations of its products."""
        try:
            with FlopCounterMode(display=False) as counter:
                result = target(*args, **kwargs)
        except (DynamicOutputShapeException, DataDependentOutputException):
            self.refuse(node, "its result depends on data", "export a module whose shapes and branches are fixed")
        except Exception as error:  # torch has no common class for shapes that it cannot compute
            why = (str(error).strip() or type(error).__name__).splitlines()[0]
            self.refuse(node, f"torch cannot say the shape of its result: {why}", "register a fake kernel for it")
        return result, int(counter.get_total_flops())

    def _random(self) -> _Range:
        key = -1
        if key not in self.buffers:
            self.buffers[key] = _Buffer(self._name("random_state", self._names), _RANDOM, True)
        return _Range(key, 0, _RANDOM, _RANDOM)

    @staticmethod
    def _indexed(base: str, kernel: _Kernel, values: Sequence[Any]) -> int | None:
        """Bytes that a call moves if indices select rows of its first argument."""
        if base not in _INDEXED | _INDEXED_UPDATES:
            return None
        table = _distinct(_tensors(values[0]))
        others = [one for one in kernel.reads if one.bytes not in [t.bytes for t in table]]
        rest = sum(one.moved for one in others)
        if base in _INDEXED:
            out = sum(one.moved for one in kernel.writes)
            return rest + out + min(out, sum(t.moved for t in table))
        return rest + 2 * min(max((one.moved for one in others), default=0), sum(t.moved for t in table))

    def store(self, name: str, value: torch.Tensor, target: torch.Tensor) -> None:
        """Write a value into a tensor from outside, at the end of the program."""
        if _distinct([value]) != _distinct([target]):
            kernel = _Kernel(self._name(name, self._kernel_names), _distinct([value]))
            for one in _distinct([target]):
                (kernel.writes if one.exact else kernel.updates).append(one)
            self.kernels.append(kernel)

    def _ranges(self, ranges: list[_Range]) -> str:
        def text(one: _Range) -> str:
            buffer = self.buffers[one.buffer]
            whole = (one.first, one.end) == (0, buffer.bytes)
            return f'"{buffer.name}"' if whole else f'"{buffer.name}[{one.first}..{one.end}]"'

        return text(ranges[0]) if len(ranges) == 1 else f"[{', '.join(map(text, ranges))}]"

    def _line(self, kernel: _Kernel) -> str:
        modes = {"reads": kernel.reads, "writes": kernel.writes, "updates": kernel.updates}
        parts = [f"{mode}: {self._ranges(ranges)}" for mode, ranges in modes.items() if ranges]
        once, twice = [*kernel.reads, *kernel.writes], kernel.updates
        stated = sum(one.end - one.first for one in [*once, *twice, *twice])
        traffic = sum(one.moved for one in [*once, *twice, *twice]) if kernel.moved is None else kernel.moved
        if kernel.flops:
            made = sum(one.moved for one in kernel.writes + kernel.updates)
            parts.append(f"grid: {max(math.ceil(made / _TILE), math.ceil(traffic / _SLICE), 1)}, ctas_per_sm: 1")
            parts.append(f"flops: {kernel.flops}")
        else:
            parts.append(f"grid: {max(math.ceil(traffic / _PIECE), 1)}")
        if traffic != stated:
            parts.append(f"traffic: {traffic}")
        return f'        Kernel(name: "{kernel.name}", {", ".join(parts)}),'

    def text(self, name: str) -> str:
        """The program in RON."""
        used = {one.buffer for k in self.kernels for one in [*k.reads, *k.writes, *k.updates]}

        def buffers(external: bool) -> str:
            kept = [b for key, b in self.buffers.items() if key in used and b.external == external]
            return "".join(f'        "{b.name}": {b.bytes},\n' for b in kept)

        nodes = "".join(self._line(kernel) + "\n" for kernel in self.kernels)
        return (
            f'Dag(\n    name: "{self._name(name, set())}",\n'
            f"    buffers: {{\n{buffers(True)}    }},\n    temporary: {{\n{buffers(False)}    }},\n"
            f"    nodes: [\n{nodes}    ],\n)\n"
        )


def _inputs(reader: _Reader, exported: Any) -> dict[str, Any]:
    """Values for the inputs of a graph, by the names of nodes."""
    signature = getattr(exported, "graph_signature", None)
    specs = {} if signature is None else {spec.arg.name: spec for spec in signature.input_specs}
    held = {} if signature is None else {**exported.state_dict, **exported.constants}
    values: dict[str, Any] = {}
    for node in exported.graph.nodes:
        if node.op == "placeholder":
            spec = specs.get(node.name)
            target = None if spec is None else spec.target
            if "val" not in node.meta and node.users:
                reader.refuse(node, "its shape is not known", "give the result of torch.export.export")
            values[node.name] = reader.external(target or node.name, node, node.meta.get("val"), held.get(target))
    return values


def program(exported: Any, name: str = "exported") -> str:
    """A program of kernels in RON, for ``cusync.schedule``, from an exported module: one kernel for each call.

    ``exported`` is the result of ``torch.export.export``, or a graph of operators whose inputs have shapes
    (``meta["val"]``). Parameters, buffers, inputs and outputs of the module are buffers of the program; other results
    are temporary. Kernels have the names of nodes. A call whose effect on memory cannot be known is an error that
    names its node: shapes that depend on data, control flow, unknown aliases.
    """
    reader = _Reader()
    with torch.no_grad(), FakeTensorMode():
        values = _inputs(reader, exported)
        module = getattr(exported, "graph_module", exported)
        outputs = reader.run(module, list(values.values()))
        signature = getattr(exported, "graph_signature", None)
        if signature is not None:
            sources = {spec.target: spec.arg.name for spec in signature.input_specs if spec.target}
            seen = []
            for spec, value in zip(signature.output_specs, outputs):
                if spec.kind.name.endswith("_MUTATION"):
                    source = sources.get(spec.target, spec.target)
                    reader.store(f"store_{spec.target}", value, values[source])
                else:
                    seen.append(value)
            outputs = seen
        for tensor in _tensors(outputs):
            reader.buffers[_storage(tensor)].external = True
    return reader.text(name)
