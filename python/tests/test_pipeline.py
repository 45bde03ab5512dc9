"""Pipelines on arrays, compared with numpy in float64."""

import sys
import threading

import cusync
import numpy as np
import pytest


def values(pipeline, dtype=np.float16, seed=0):
    draw = np.random.default_rng(seed)
    shapes = {name: pipeline.shape(name) for name in pipeline.inputs}
    return {name: (draw.standard_normal(shape) / np.sqrt(shape[0])).astype(dtype) for name, shape in shapes.items()}


def expected(given, round_to=np.float16):
    wide = {name: np.asarray(array).astype(np.float64) for name, array in given.items()}
    hidden = np.maximum(wide["X"] @ wide["W1"], 0).astype(round_to).astype(np.float64)
    return hidden @ wide["W2"]


@pytest.mark.parametrize("rows", [1, 7, 8, 37, 64, 200])
def test_an_mlp_is_that_of_numpy_in_float64(mlp, rows):
    pipeline = cusync.Pipeline(mlp, {"M": rows}, device="cpu")
    given = values(pipeline, seed=rows)
    result = pipeline.run(**given)
    assert set(result) == {"Z"} and result["Z"].dtype == np.float16
    np.testing.assert_allclose(result["Z"].astype(np.float64), expected(given), rtol=2e-3, atol=2e-3)
    verdicts = pipeline.verify()
    assert [verdict.tensor for verdict in verdicts] == ["Y", "Z"]
    assert all(verdict.right and verdict.share_of_bound <= 1 for verdict in verdicts)


def test_names_shapes_and_the_executor(mlp):
    pipeline = cusync.Pipeline(mlp, dims={"M": 8}, device="cpu")
    assert (pipeline.inputs, pipeline.outputs) == (["X", "W1", "W2"], ["Z"])
    assert (pipeline.shape("W1"), pipeline.shape("Y")) == ((64, 96), (8, 96))
    assert (pipeline.executor, pipeline.element) == ("cpu", "f16")
    assert repr(pipeline) == "<cusync.Pipeline X, W1, W2 -> Z by cpu>"


def test_float32_and_float64_are_rounded(mlp):
    pipeline = cusync.Pipeline(mlp, device="cpu")
    wide = values(pipeline, np.float64)
    narrow = {name: array.astype(np.float16) for name, array in wide.items()}
    first = pipeline.run({name: array.astype(np.float32) for name, array in narrow.items()})["Z"]
    assert np.array_equal(first, pipeline.run(narrow)["Z"])
    assert np.array_equal(first, pipeline.run({name: a.astype(np.float64) for name, a in narrow.items()})["Z"])
    np.testing.assert_allclose(pipeline.run(wide)["Z"].astype(np.float64), first, rtol=1e-2, atol=1e-2)


def test_inputs_that_are_left_out_keep_their_values(mlp):
    pipeline = cusync.Pipeline(mlp, device="cpu")
    given = values(pipeline)
    pipeline.run(**given)
    other = given["X"][::-1]
    second = pipeline.run(X=other)["Z"]
    np.testing.assert_allclose(second, expected({**given, "X": other}), rtol=2e-3, atol=2e-3)
    third = pipeline.run()["Z"]
    assert np.array_equal(second, third)


def test_wide_outputs_are_the_same_values(mlp):
    pipeline = cusync.Pipeline(mlp, device="cpu")
    given = values(pipeline)
    wide = pipeline.run(given, dtype="float32")["Z"]
    assert wide.dtype == np.float32
    assert np.array_equal(wide.astype(np.float16), pipeline.read("Z"))


def test_results_are_arrays_of_their_own(mlp):
    pipeline = cusync.Pipeline(mlp, device="cpu")
    given = values(pipeline)
    first = pipeline.run(given)["Z"]
    copy = first.copy()
    first[:] = 0
    given["X"] = -given["X"]
    second = pipeline.run(given)["Z"]
    assert np.array_equal(pipeline.run(X=-given["X"])["Z"], copy)
    assert not np.array_equal(second, copy)


@pytest.mark.parametrize(
    "change",
    [
        lambda a: np.repeat(a, 2, axis=1)[:, ::2],
        lambda a: np.asfortranarray(a),
        lambda a: a[::-1][::-1],
        lambda a: np.broadcast_to(a, a.shape),
        lambda a: a.astype(">f2"),
        lambda a: np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view(np.float16).reshape(a.shape),
        lambda a: a.reshape(2, -1, a.shape[1]),
        lambda a: a.tolist(),
    ],
    ids=["strided", "columns", "reversed", "read-only", "big-endian", "unaligned", "axes", "list"],
)
def test_arrays_of_any_layout_give_the_same_result(mlp, change):
    pipeline = cusync.Pipeline(mlp, device="cpu")
    given = values(pipeline)
    plain = pipeline.run(given)["Z"]
    assert np.array_equal(pipeline.run(X=change(given["X"]))["Z"], plain)


class Tensor:
    """A tensor with DLPack and nothing else, as that of another library."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_tensors_with_dlpack_are_read(mlp):
    pipeline = cusync.Pipeline(mlp, device="cpu")
    given = values(pipeline)
    plain = pipeline.run(given)["Z"]
    found = pipeline.run({name: Tensor(array) for name, array in given.items()})["Z"]
    assert np.array_equal(found, plain)
    assert np.array_equal(pipeline.run(X=Tensor(given["X"].astype(np.float32)))["Z"], plain)
    with pytest.raises(cusync.CusyncError, match="`X` is not contiguous"):
        pipeline.run(X=Tensor(np.asfortranarray(given["X"])))
    with pytest.raises(cusync.CusyncError, match="`X` has type 0 of DLPack, with 64 bits"):
        pipeline.run(X=Tensor(given["X"].astype(np.int64)))


def test_memory_is_released_with_its_tensor(mlp):
    pipeline = cusync.Pipeline(mlp, device="cpu")
    given = values(pipeline)
    before = sys.getrefcount(given["X"])
    for _ in range(10):
        pipeline.run({**given, "X": Tensor(given["X"])})
    after = sys.getrefcount(given["X"])
    assert after == before


def bits_of_bf16(array):
    bits = np.asarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def wide_of_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def test_bf16_as_bits(mlp, monkeypatch):
    # Without the module, bits are all that there is.
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    pipeline = cusync.Pipeline(mlp, element="bf16", device="cpu")
    assert pipeline.element == "bf16"
    given = values(pipeline, np.float32)
    bits = {name: bits_of_bf16(array) for name, array in given.items()}
    result = pipeline.run(bits)["Z"]
    assert result.dtype == np.uint16
    rounded = {name: wide_of_bf16(array) for name, array in bits.items()}
    reference = expected(rounded, np.float32)
    np.testing.assert_allclose(wide_of_bf16(result), reference, rtol=2e-2, atol=2e-2)
    assert all(verdict.right for verdict in pipeline.verify())
    # float32 is rounded in the same manner.
    assert np.array_equal(pipeline.run(given)["Z"], result)


def test_bf16_as_a_type_of_numpy(mlp):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    pipeline = cusync.Pipeline(mlp, element="bf16", device="cpu")
    given = values(pipeline, ml_dtypes.bfloat16)
    result = pipeline.run(given)["Z"]
    assert result.dtype == ml_dtypes.bfloat16
    reference = expected(given, ml_dtypes.bfloat16)
    np.testing.assert_allclose(result.astype(np.float64), reference, rtol=2e-2, atol=2e-2)
    bits = pipeline.run({name: array.view(np.uint16) for name, array in given.items()})["Z"]
    assert np.array_equal(bits.view(np.uint16), result.view(np.uint16))


def test_lengths_and_pages_are_integers():
    pipeline = cusync.Pipeline("llama65_generate", {"E": 256, "D": 64, "B": 2, "S": 64}, device="cpu")
    integers = pipeline._native.integers()
    assert integers
    given = {
        name: np.zeros(pipeline.shape(name), np.int64 if name in integers else np.float16)
        for name in pipeline.inputs
    }
    assert all(np.isfinite(array).all() for array in pipeline.run(given).values())
    with pytest.raises(cusync.CusyncError, match=f"`{integers[0]}` has type int32, not float32"):
        pipeline.run({integers[0]: given[integers[0]].astype(np.float32)})
    with pytest.raises(cusync.CusyncError, match="outside int32"):
        pipeline.run({integers[0]: given[integers[0]] + 2**31})


@pytest.mark.parametrize(
    ("name", "array", "message", "help"),
    [
        ("Q", np.zeros((24, 64), np.float16), "the pipeline has no input `Q`", "X, W1, W2"),
        ("Y", np.zeros((24, 96), np.float16), "the pipeline has no input `Y`", "X, W1, W2"),
        ("X", np.zeros((64, 24), np.float16), "`X` has shape (24, 64), not (64, 24)", "axes"),
        ("X", np.zeros((24, 63), np.float16), "`X` has shape (24, 64), not (24, 63)", "axes"),
        ("X", np.zeros(24 * 64, np.float16), "`X` has shape (24, 64), not (1536)", "axes"),
        ("X", np.float16(3), "`X` has shape (24, 64)", "axes"),
        ("X", np.zeros((24, 64), np.int32), "`X` has type int32, which is no float", "float16"),
        ("X", np.zeros((24, 64), bool), "`X` has type bool", "float16"),
        ("X", np.zeros((24, 64), complex), "`X` has type complex128", "float16"),
        ("X", "no array", "`X` has type <U8", "float16"),
        ("X", None, "`X` has type object", "float16"),
    ],
)
def test_a_wrong_input_is_an_error_that_names_it(mlp, name, array, message, help):
    pipeline = cusync.Pipeline(mlp, device="cpu")
    pipeline.run(values(pipeline))
    with pytest.raises(cusync.CusyncError) as caught:
        pipeline.run({name: array})
    assert message in caught.value.message
    assert help in caught.value.help


def test_bf16_does_not_pass_for_f16(mlp):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    pipeline = cusync.Pipeline(mlp, device="cpu")
    with pytest.raises(cusync.CusyncError, match="`X` has type float16, not bfloat16"):
        pipeline.run(values(pipeline, ml_dtypes.bfloat16))


def test_missing_inputs_and_wrong_arguments_are_errors(mlp):
    pipeline = cusync.Pipeline(mlp, device="cpu")
    given = values(pipeline)
    with pytest.raises(cusync.CusyncError, match="no values: W1, W2"):
        pipeline.run(X=given["X"])
    with pytest.raises(cusync.CusyncError, match="nothing has run"):
        pipeline.read("Z")
    with pytest.raises(cusync.CusyncError, match="nothing has run"):
        pipeline.verify()
    with pytest.raises(cusync.CusyncError, match="no tensor `Q`"):
        pipeline.shape("Q")
    with pytest.raises(cusync.CusyncError, match="runs on the host"):
        pipeline.run(given, stream=0)
    with pytest.raises(cusync.CusyncError, match="no output `Y`"):
        pipeline.run(given, out={"Y": given["X"]})
    with pytest.raises(cusync.CusyncError, match="outputs cannot have the type"):
        pipeline.run(given, dtype="int8")
    with pytest.raises(cusync.CusyncError, match="no device `tpu`"):
        cusync.Pipeline(mlp, device="tpu")
    with pytest.raises(cusync.CusyncError, match="no element type `fp8`"):
        cusync.Pipeline(mlp, element="fp8", device="cpu")


def test_a_gpu_that_is_not_there_is_an_error_with_a_hint(mlp):
    if any(f["ok"] for f in cusync.doctor()["findings"] if f["what"] == "driver"):
        pytest.skip("this machine has a driver")
    with pytest.raises(cusync.CusyncError, match="no NVIDIA driver") as caught:
        cusync.Pipeline(mlp, device="gpu")
    assert "cpu executor" in caught.value.help
    assert cusync.Pipeline(mlp).executor == "cpu"


def test_threads_run_pipelines_side_by_side_and_share_one(mlp):
    shared = cusync.Pipeline(mlp, device="cpu")
    given = values(shared)
    right = shared.run(given)["Z"]
    results = []

    def work():
        own = cusync.Pipeline(mlp, device="cpu")
        results.extend([own.run(given)["Z"], shared.run(given)["Z"]])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8 and all(np.array_equal(result, right) for result in results)


def test_other_threads_go_on_while_a_pipeline_runs():
    pipeline = cusync.Pipeline("two_gemms", {"M": 256, "N": 512, "K": 512}, device="cpu")
    given = values(pipeline)
    running = threading.Event()
    done = threading.Event()

    def work():
        running.set()
        for _ in range(20):
            pipeline.run(given)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    running.wait()
    steps = 0
    while not done.wait(0.001):
        steps += 1
    thread.join()
    assert steps > 3
