"""Captured graphs, rescheduled: the bytes that operators state, and replays on a GPU against torch's own."""

import cusync
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
from cusync import _reschedule  # noqa: E402
from cusync.torch import reschedule  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

READ, WRITE, UPDATE = range(3)


class Noted(TorchDispatchMode):
    """The accesses of every operator that makes or changes memory."""

    def __init__(self):
        super().__init__()
        self.operators = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.operators[func.__name__.split(".")[0]] = _reschedule._accesses(func, args, kwargs or {}, result)
        return result


def span(tensor, mode, bytes=None):
    first = tensor.data_ptr()
    return (first, first + (tensor.nbytes if bytes is None else bytes), mode)


def test_operators_state_the_bytes_of_their_tensors():
    x, w = torch.randn(4, 8), torch.randn(8, 6)
    out = torch.zeros(4, 6)
    with Noted() as noted:
        y = x @ w
        y.add_(out)
        torch.mul(y, 2, out=out)
        # Two columns of four rows: from the first byte to the last.
        part = x[:, 2:4].clone()
        empty = x[:0] + 1
    found = noted.operators
    assert found["mm"] == [span(x, READ), span(w, READ), span(y, WRITE)]
    assert found["add_"] == [span(y, READ), span(out, READ), span(y, UPDATE)]
    assert found["mul"] == [span(y, READ), span(out, READ), span(out, UPDATE)]
    assert found["clone"] == [span(x[:, 2:4], READ, (3 * 8 + 2) * 4), span(part, WRITE)]
    assert found["add"] == [] and empty.numel() == 0


def test_unknown_layouts_have_no_accesses_and_random_numbers_are_refused():
    with Noted() as noted:
        torch.eye(3).to_sparse()
    assert None in noted.operators.values()
    with pytest.raises(cusync.CusyncError, match="random numbers"), Noted():
        torch.nn.functional.dropout(torch.ones(8), 0.5)
    with Noted() as noted:
        torch.nn.functional.dropout(torch.ones(8), 0.5, training=False)


gpu = pytest.mark.skipif(
    not torch.cuda.is_available() or not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph"),
    reason="no GPU, or torch is older than 2.8",
)


class Branches(torch.nn.Module):
    """Four MLPs of one input, their sum, and a count that every run changes in place."""

    def __init__(self):
        super().__init__()
        layers = [torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 512)) for _ in range(4)]
        self.layers = torch.nn.ModuleList(layers)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count.add_(1)
        return sum(layer(x) for layer in self.layers) * self.count


@gpu
def test_branches_run_at_a_time_and_are_bit_equal():
    torch.manual_seed(0)
    net, x = Branches().cuda().bfloat16().eval(), torch.randn(8, 512, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        ours = reschedule(lambda: net(x), constants=[net])
    report = ours.report
    assert report["barriers"] == 0 and report["stated"] > 8 and report["lanes"] >= 4, report
    for run in range(100):
        x.copy_(torch.randn_like(x))
        net.count.fill_(run)
        ours.graph.replay()
        want = ours.output.clone()
        ours.output.zero_()
        net.count.fill_(run)
        ours.replay()
        assert torch.equal(ours.output, want) and net.count.item() == run + 1


@gpu
def test_a_given_graph_is_rescheduled():
    x, y = (torch.randn(1 << 20, device="cuda") for _ in range(2))
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        x.mul_(0.5)
        y.add_(1)
        x.add_(y)
    ours = reschedule(graph, us=[20.0, 20.0, 20.0])
    assert ours.report["nodes"] == 3 and ours.report["lanes"] == 2, ours.report
    first = x.clone(), y.clone()
    graph.replay()
    want = x.clone(), y.clone()
    x.copy_(first[0]), y.copy_(first[1])
    ours.replay()
    assert torch.equal(x, want[0]) and torch.equal(y, want[1])
    with pytest.raises(cusync.CusyncError, match="`us` has 1 times"):
        reschedule(graph, us=[1.0])
    with pytest.raises(cusync.CusyncError, match="no form `cycle`"):
        reschedule(graph, form="cycle")


@gpu
def test_code_that_switches_streams_is_refused():
    x, side = torch.ones(8, device="cuda"), torch.cuda.Stream()

    def work():
        with torch.cuda.stream(side):
            return x + 1

    with pytest.raises(cusync.CusyncError, match="changes streams itself"):
        reschedule(work)
