"""Pipelines: proved plans that run on arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _cusync
from ._errors import argument_error
from ._report import sizes

if TYPE_CHECKING:
    import numpy


class Verdict(NamedTuple):
    """Whether a tensor is right."""

    tensor: str
    right: bool
    #: Largest error in units of its bound: at most 1 if all elements are right.
    share_of_bound: float
    text: str


class Pipeline:
    """A proved pipeline that runs on arrays, as often as needed.

    ``spec`` is the text of a spec, the path of a RON file, or the name of a shipped pipeline. ``dims`` override its
    defaults, and ``element`` (``"f16"`` or ``"bf16"``) its element type. ``device`` is ``"cpu"``, ``"gpu"``,
    ``"gpu:1"`` and so on, or ``"auto"``: GPU 0 if it has kernels for all stages, else the host.
    """

    def __init__(
        self,
        spec: str,
        dims: Mapping[str, int] | None = None,
        *,
        element: str | None = None,
        device: str = "auto",
    ) -> None:
        self._native = _cusync.Pipeline(spec, sizes(dims), element, device, False)
        self._set: set[str] = set()

    @property
    def inputs(self) -> list[str]:
        """Names of the tensors that no stage writes."""
        return self._native.inputs()

    @property
    def outputs(self) -> list[str]:
        """Names of the tensors that a stage writes and no stage reads."""
        return self._native.outputs()

    @property
    def executor(self) -> str:
        """Name of the executor that runs it, such as ``cpu`` or ``fused``."""
        return self._native.executor()

    @property
    def element(self) -> str:
        """Element type: ``f16`` or ``bf16``."""
        return self._native.element()

    def shape(self, name: str) -> tuple[int, int]:
        """Rows and columns of a tensor."""
        return self._native.shape(name)

    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        /,
        *,
        out: Mapping[str, Any] | None = None,
        stream: int | None = None,
        dtype: str | None = None,
        **named: Any,
    ) -> dict[str, Any]:
        """Run once on inputs by name, and return the outputs by name.

        Inputs that are left out keep the values of the last run, so weights are given once. Arrays of numpy and
        tensors on the host are copied; float32 and float64 are rounded to the element type. uint16 is taken as bits
        of the element type. Arrays must not be changed during the call.

        Tensors of a GPU with DLPack are used in place (but weights in ``layout: NK`` are transposed into memory of the
        pipeline's own), also in ``out``, and must stay as they are until the work
        queued is done. Later runs use them too, until others take their places. ``stream`` is the number of a CUDA
        stream on which the run is queued; without one, the run is over when the call returns. A CUDA graph can capture
        a run on that stream, if a run before it had the same memory for all tensors and the captured one gives no
        weights, gains or other operands B of products.

        Outputs are arrays of the element type: float16, or bfloat16 of ``ml_dtypes``, or the bits as uint16 where
        ``ml_dtypes`` is missing. ``dtype="float32"`` widens them.
        """
        if dtype not in (None, "float32"):
            raise argument_error(f"outputs cannot have the type {dtype!r}", 'leave `dtype` out, or give "float32"')
        given = {**(inputs or {}), **named}
        bound = dict(out or {})
        self._check_names(given, bound)
        integers = set(self._native.integers())
        for name, value in given.items():
            self._native.set(name, _values(name, value, name in integers), stream or 0)
            self._set.add(name)
        for name, value in bound.items():
            self._native.set(name, value, stream or 0)
        self._native.run(stream)
        return {name: bound[name] if name in bound else self.read(name, dtype=dtype) for name in self.outputs}

    def read(self, name: str, *, dtype: str | None = None) -> numpy.ndarray:
        """Values of a tensor after the last run, as an array of its own."""
        import numpy

        wide = dtype == "float32"
        data = self._native.read(name, wide)
        kind = numpy.dtype(numpy.float32) if wide else _element_type(self.element)
        return numpy.frombuffer(data, kind).reshape(self.shape(name))

    def verify(self) -> list[Verdict]:
        """Compare every tensor of the last run on the host with an independent reference in float64."""
        return [Verdict(*row) for row in self._native.verify()]

    def _check_names(self, given: Mapping[str, Any], bound: Mapping[str, Any]) -> None:
        inputs, outputs = self.inputs, self.outputs
        for name in given:
            if name not in inputs:
                raise argument_error(f"the pipeline has no input `{name}`", f"its inputs are {', '.join(inputs)}")
        for name in bound:
            if name not in outputs:
                raise argument_error(f"the pipeline has no output `{name}`", f"its outputs are {', '.join(outputs)}")
        missing = [name for name in inputs if name not in given and name not in self._set]
        if missing:
            raise argument_error(
                f"these inputs have no values: {', '.join(missing)}", f"name them: run({missing[0]}=...)"
            )

    def __repr__(self) -> str:
        return f"<cusync.Pipeline {', '.join(self.inputs)} -> {', '.join(self.outputs)} by {self.executor}>"


def _element_type(element: str) -> numpy.dtype[Any]:
    import numpy

    if element == "f16":
        return numpy.dtype(numpy.float16)
    try:
        import ml_dtypes
    except ImportError:
        return numpy.dtype(numpy.uint16)
    kind: numpy.dtype[Any] = numpy.dtype(ml_dtypes.bfloat16)
    return kind


def _values(name: str, value: Any, integers: bool) -> Any:
    """An object whose memory the native half can read: rows without gaps, of a type that it knows."""
    import numpy

    if not hasattr(value, "__array_interface__") and hasattr(value, "__dlpack_device__"):
        return value
    array = numpy.require(value, requirements=["C", "ALIGNED"])
    kind = array.dtype
    if integers:
        if kind.kind not in "iu":
            raise argument_error(f"`{name}` has type int32, not {kind}", "give lengths and page numbers as integers")
        if array.size and (array.min() < -(2**31) or array.max() >= 2**31):
            raise argument_error(f"`{name}` has values outside int32", "lengths and page numbers are smaller")
        return array.astype(numpy.int32, copy=False)
    if kind == numpy.float64:
        return array.astype(numpy.float32)
    if kind.name not in ("float16", "float32", "bfloat16", "uint16"):
        raise argument_error(
            f"`{name}` has type {kind}, which is no float",
            "give float16, float32, bfloat16 of ml_dtypes, or the bits of the element type as uint16",
        )
    if not kind.isnative:
        return array.astype(kind.newbyteorder("="))
    return array
