"""Programs of kernels from exported modules, against the modules themselves in every order that a schedule allows."""

import operator
import random

import cusync
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402

ORDERS = 20


class Call(torch.nn.Module):
    """A function as a module."""

    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, x):
        return self.call(x)


class Branches(torch.nn.Module):
    """Two MLPs of one input."""

    def __init__(self):
        super().__init__()
        self.left = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16))
        self.right = torch.nn.Sequential(torch.nn.Linear(16, 24), torch.nn.SiLU(), torch.nn.Linear(24, 16))

    def forward(self, x):
        left, right = self.left(x), self.right(x)
        return left + right, right.chunk(2, dim=-1)[0]


class Parallel(torch.nn.Module):
    """Attention and an MLP side by side, behind one norm."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.norm, self.heads = torch.nn.LayerNorm(width), heads
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.norm(x)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(y).split(x.shape[-1], -1))
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        attended = self.out(attended.transpose(1, 2).flatten(2))
        return x + attended + self.down(torch.nn.functional.gelu(self.up(y)))


class Cache(torch.nn.Module):
    """A buffer that is read, changed in place, and read again."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.arange(32.0).reshape(8, 4))
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x, at):
        old = self.rows * 2
        self.rows.index_copy_(0, at, x)
        self.count += 1
        new = self.rows.sum(0)
        self.rows[2:4].mul_(3)
        return old, new, self.rows[1] + self.count


class Slices(torch.nn.Module):
    """Memory that is filled slice by slice."""

    def forward(self, x):
        y = torch.empty(8, 4)
        y[:4].copy_(x * 2)
        y[4:].copy_(x + 1)
        z = torch.zeros(8, 4)
        z[:, 1:3] = y[:, :2]
        upper = torch.slice_scatter(z, x.cos(), 0, 2, 6)
        return y.exp(), z.select(1, 1) + 1, upper


class Aliases(torch.nn.Module):
    """Inputs that change, buffers that share memory, calls with several results, views of views."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(36.0).reshape(6, 6))
        self.register_buffer("corner", self.table[3:, :3])

    def forward(self, x, at):
        turned = torch.einsum("ij->ji", x.detach())
        first, *_ = torch.nn.functional.dropout(turned, 0.5, self.training).unbind(0)
        x.add_(x.sin())
        self.corner.mul_(2)
        rows = torch.nn.functional.embedding(at, self.table)
        largest, where = rows.max(dim=1)
        low, high = torch.view_as_real(torch.view_as_complex(rows.reshape(-1, 3, 2))).chunk(2, dim=0)
        low.clamp_(max=5)
        variance, mean = torch.var_mean(rows.expand(2, *rows.shape), dim=0)
        x.masked_fill_(x > 1, 0)
        x.view(-1)[:2].copy_(x.view(-1)[2:4])
        return first + 1, largest, where.flip(0), high * 2, variance, mean, x[1:].clone(), low


class Statistics(torch.nn.Module):
    """A normalisation that changes its buffers although its schema does not say so."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("variance", torch.ones(4))

    def forward(self, x):
        old = self.mean - 1
        y = torch.nn.functional.batch_norm(x, self.mean, self.variance, training=True)
        z = torch.nn.functional.batch_norm(x.exp(), self.mean, self.variance)
        return old, y + z, self.variance.sqrt()


def llama(width=64, dtype=torch.float32):
    """A decoder layer of transformers, with the positions of its tokens."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=2 * width,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=width // 4,
    )
    config._attn_implementation = "sdpa"

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.rotary = LlamaDecoderLayer(config, 0), LlamaRotaryEmbedding(config)

        def forward(self, x):
            positions = torch.arange(x.shape[1])[None]
            return self.layer(x, position_embeddings=self.rotary(x, positions))

    return Layer().to(dtype)


def cases():
    torch.manual_seed(0)
    return {
        "branches": (Branches, (torch.randn(5, 16),)),
        "parallel": (Parallel, (torch.randn(1, 6, 32),)),
        "cache": (Cache, (torch.randn(3, 4), torch.tensor([1, 3, 6]))),
        "slices": (Slices, (torch.randn(4, 4),)),
        "aliases": (Aliases, (torch.randn(3, 3), torch.tensor([5, 0, 3, 4]))),
        "statistics": (Statistics, (torch.randn(6, 4),)),
        "llama": (llama, (torch.randn(1, 4, 64),)),
        "llama-bf16": (lambda: llama(dtype=torch.bfloat16), (torch.randn(1, 4, 64, dtype=torch.bfloat16),)),
    }


def exported(name, functional):
    torch.manual_seed(1)
    make, inputs = cases()[name]
    with torch.no_grad():
        found = torch.export.export(make().eval(), inputs)
        return (found.run_decompositions() if functional else found), inputs


def tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def storage(tensor):
    return tensor.untyped_storage()._cdata


def bits(tensor):
    """A copy of the bytes of a tensor."""
    return tensor.flatten().clone().view(torch.uint8)


def octets(tensor):
    """All bytes of a tensor's storage."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


class Memory:
    """The memory of a graph, found by running it on data in serial order. It knows the names of kernels, and nothing
    else of a program."""

    def __init__(self, graph, inputs, kernels):
        signature, held = graph.graph_signature, {**graph.state_dict, **graph.constants}
        users, clones = iter(inputs), {}
        self.values, self.steps, self.sizes, self.temporaries = {}, {}, {}, {}
        self.before = {}
        targets = {spec.arg.name: spec.target for spec in signature.input_specs}
        for node in graph.graph.nodes:
            if node.op == "placeholder":
                target = targets[node.name]
                value = held[target] if target else next(users)
                base = clones.setdefault(storage(value), octets(value).clone()).untyped_storage()
                view = torch.empty(0, dtype=value.dtype)
                self.values[node] = view.set_(base, value.storage_offset(), value.shape, value.stride())
                self.before[storage(view)] = octets(view).clone()
            elif node.op == "call_function":
                self.values[node] = self.first(node, kernels)
            elif node.op == "output":
                outputs = node.args[0]
        named = {node.name: node for node in self.values}
        self.outputs = []
        for spec, node in zip(signature.output_specs, outputs):
            if spec.kind.name.endswith("_MUTATION"):
                names = {spec.target: name for name, spec in [(s.arg.name, s) for s in signature.input_specs]}
                self.steps[f"store_{spec.target}"] = (named[names.get(spec.target, spec.target)], node)
            else:
                self.outputs.append(node)
        assert set(self.steps) == set(kernels)

    def arguments(self, node, values):
        return torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)

    def first(self, node, kernels):
        args, kwargs = self.arguments(node, self.values)
        known = {storage(t): t for value in self.values.values() for t in tensors(value)}
        old = [bits(tensor) for tensor in tensors((args, kwargs))]
        result = node.target(*args, **kwargs)
        made = list(dict.fromkeys(storage(t) for t in tensors(result) if storage(t) not in known))
        for number, one in enumerate(made):
            self.temporaries[one] = f"{node.name}.{number}" if number else node.name
        if node.name in kernels:
            self.steps[node.name] = node
        else:
            # Views have no memory of their own, and change none.
            assert not made or str(node.target).startswith("aten.empty"), node
            assert same(old, [bits(tensor) for tensor in tensors((args, kwargs))]), node
        return result

    def run(self, order, places=None, arena=0, noise=0xFF):
        """Run kernels in an order on memory whose contents mean nothing, temporaries at their places in an arena.

        Gives the memory that is seen from outside, and what each kernel has read.
        """
        shared = torch.full((arena,), noise, dtype=torch.uint8)
        memory = {}

        def place(value):
            if not isinstance(value, torch.Tensor):
                return value
            one, size = storage(value), value.element_size()
            first = (places or {}).get(self.temporaries.get(one))
            if one not in memory and first is None:
                fresh = self.before.get(one)
                memory[one] = torch.full_like(octets(value), noise) if fresh is None else fresh.clone()
            base = shared if first is not None else memory[one]
            at = (first or 0) // size + value.storage_offset()
            return torch.empty(0, dtype=value.dtype).set_(base.untyped_storage(), at, value.shape, value.stride())

        values = {node: tree_map(place, value) for node, value in self.values.items()}
        read = {}
        for name in order:
            step = self.steps[name]
            if isinstance(step, tuple):
                read[name] = [bits(values[step[1]])]
                values[step[0]].copy_(values[step[1]])
                continue
            args, kwargs = self.arguments(step, values)
            read[name] = [bits(value) for value in tensors((args, kwargs))]
            for found, kept in zip(tensors(step.target(*args, **kwargs)), tensors(values[step])):
                if storage(found) != storage(kept):
                    kept.copy_(found)
        seen = [values[node] for node in self.outputs]
        seen += [values[node] for node in self.values if node.op == "placeholder"]
        return [bits(value) for value in seen], [value for name in self.steps for value in read[name]]


def same(left, right):
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def linear(count, edges, rank):
    """The order of nodes along edges in which the node of least rank comes first."""
    order, missing = [], {node: {before for before, after in edges if after == node} for node in range(count)}
    while missing:
        node = min((n for n, waits in missing.items() if not waits), key=rank)
        del missing[node]
        [waits.discard(node) for waits in missing.values()]
        order.append(node)
    return order


def ancestors(edges, node):
    found, open_ = set(), [node]
    while open_:
        new = {before for before, after in edges if after == open_[-1]} - found
        open_.pop()
        found |= new
        open_.extend(new)
    return found


@pytest.mark.parametrize("functional", [False, True], ids=["export", "functional"])
@pytest.mark.parametrize("name", cases())
@torch.no_grad()
def test_every_order_that_a_schedule_allows_gives_the_results_of_the_code(name, functional):
    from cusync.torch import program

    graph, inputs = exported(name, functional)
    text = program(graph, name)
    report = cusync.schedule(text, device="h100")
    names = {node["id"]: node["name"] for node in report["nodes"]}
    count = len(names)
    memory = Memory(graph, inputs, set(names.values()))
    serial, read = memory.run([names[n] for n in range(count)])
    # The order of the code is right: it gives the outputs of torch.
    expected = tree_leaves(graph.module()(*(tensor.clone() for tensor in inputs)))
    assert same(serial[: len(expected)], [bits(value) for value in expected])

    edges = [(d["before"], d["after"]) for d in report["dependences"] if not d["implied"]]
    places = {name: place for node in report["nodes"] for name, place in node["temporaries"]}
    assert places or name == "cache"
    arena = report["chosen"]["arena_bytes"]
    # Temporaries share memory by the edges of the plan, which are more than the dependences.
    planned = [(before, node["id"]) for node in report["nodes"] for before, _ in node["edges"]]
    planned += [(before, after) for join in report["joins"] for before in join["before"] for after in join["after"]]
    draw = random.Random(name)
    for _ in range(ORDERS):
        ranks = [draw.random() for _ in range(count)]
        order = [names[n] for n in linear(count, planned, ranks.__getitem__)]
        assert same(memory.run(order, places, arena)[0], serial), order

    # Each dependence is needed: without it, a kernel can run before the one that it waits for, and reads other bytes.
    unseen = set()
    for d in report["dependences"]:
        before, after = d["before"], d["after"]
        if d["implied"]:
            assert before in ancestors(edges, after)
            continue
        rest = [edge for edge in edges if edge != (before, after)]
        early = ancestors(rest, after) | {after}
        assert before not in early
        order = [names[n] for n in linear(count, rest, lambda n, early=early: (n not in early, n))]
        try:
            found = [memory.run(order, noise=noise) for noise in (0x00, 0xFF)]
        except (IndexError, RuntimeError):
            continue  # what was read was no index
        assert not all(same(wrong, serial) and same(misread, read) for wrong, misread in found), (
            f"{names[after]} need not wait for {names[before]}"
        )
        if all(same(wrong, serial) for wrong, _ in found):
            unseen.add((names[before], names[after], tuple(d["hazards"])))
    # Few of the wrong bytes stay inside, such as a mask that a comparison does not need for these inputs.
    assert len(unseen) <= 2, unseen


def test_slices_of_rows_are_independent_and_slices_of_columns_are_not():
    from cusync.torch import program

    graph, _ = exported("slices", False)
    report = cusync.schedule(program(graph, "slices"))
    names = {node["id"]: node["name"] for node in report["nodes"]}
    found = {(names[d["before"]], names[d["after"]]) for d in report["dependences"]}
    assert ("copy_", "copy__1") not in found
    assert {("copy_", "exp"), ("copy__1", "exp"), ("zeros", "copy__2"), ("copy__2", "add_1")} <= found
    assert report["program"] == "slices"


def test_products_have_flops_and_indexed_reads_have_traffic():
    from cusync.torch import program

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.up = torch.nn.Embedding(1000, 64), torch.nn.Linear(64, 96)

        def forward(self, at, x):
            y = self.up(self.words(at))
            return torch.baddbmm(x, y, y.transpose(1, 2)), torch.conv2d(x[None], x[:, None, :2, :2].expand(2, 2, 2, 2))

    at, x = torch.zeros(2, 8, dtype=torch.int64), torch.randn(2, 8, 8)
    lines = program(torch.export.export(Layer(), (at, x))).splitlines()
    kernels = {line.split('"')[1]: line for line in lines if "Kernel(" in line}
    assert f"flops: {2 * 16 * 64 * 96}" in kernels["linear"]
    assert f"flops: {2 * 2 * 8 * 8 * 96}" in kernels["baddbmm"]
    assert f"flops: {2 * 2 * 7 * 7 * 2 * 2 * 2}" in kernels["conv2d"]
    # Of 1000 rows, 16 are read and written.
    assert f"traffic: {16 * 64 * 4 * 2 + 16 * 8}" in kernels["embedding"]


def test_random_numbers_are_drawn_in_order():
    from cusync.torch import program

    def draw(x):
        return torch.nn.functional.dropout(x), torch.rand_like(x), torch.nn.functional.dropout(x, training=False) + 1

    report = cusync.schedule(program(torch.export.export(Call(draw), (torch.ones(4),))))
    nodes = sorted(report["nodes"], key=lambda node: node["id"])
    assert [node["name"] for node in nodes] == ["dropout", "rand_like", "add"]
    assert [(d["before"], d["after"]) for d in report["dependences"]] == [(0, 1)]


def test_graphs_that_only_set_a_mode_are_followed():
    from cusync.torch import program

    class Modes(torch.nn.Module):
        def forward(self, x):
            with torch.no_grad():
                y = x.sin()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                z = y @ y
            return z.cos()

    graph = torch.export.export(Modes(), (torch.ones(4, 4),))
    assert "wrap_with" in str(graph.graph)
    text = program(graph)
    assert [line.split('"')[1] for line in text.splitlines() if "Kernel(" in line] == ["sin", "matmul", "cos"]
    assert '"matmul": 32' in text and '"cos": 32' in text


def test_a_traced_graph_is_a_program():
    from cusync.torch import program
    from torch.fx.experimental.proxy_tensor import make_fx

    traced = make_fx(lambda x, w: torch.relu(x @ w), tracing_mode="fake")(torch.ones(2, 3), torch.ones(3, 4))
    report = cusync.schedule(program(traced, "traced"))
    assert [node["name"] for node in report["nodes"]] == ["mm", "relu"]


torch.library.define("cusync_tests::half", "(Tensor x) -> Tensor")
torch.library.impl("cusync_tests::half", "CompositeExplicitAutograd", lambda x: x[: len(x) // 2])


def branch(x):
    return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


def by_hand(target, *more):
    """A graph of one call."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.ones(1)
    graph.output(graph.call_function(target, (x, *more)))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


@pytest.mark.parametrize(
    ("make", "node", "why"),
    [
        (lambda: torch.export.export(Call(torch.nonzero), (torch.ones(4),)), "nonzero", "depends on data"),
        (lambda: torch.export.export(Call(branch), (torch.ones(4),)), "cond", "graphs of its own"),
        (lambda: by_hand(torch.ops.aten.item.default), "item_default", "depends on data"),
        (lambda: by_hand(torch.ops.aten.resize_.default, [9]), "resize__default", "changes the storage"),
        (lambda: by_hand(torch.ops.cusync_tests.half.default), "half_default", "its schema does not say so"),
        (lambda: by_hand(operator.add, 1), "add", "no operator of torch"),
        (lambda: torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.ReLU())), "input_1", "shape is not known"),
    ],
)
def test_a_call_whose_effect_is_unknown_is_refused_by_name(make, node, why):
    from cusync.torch import program

    with pytest.raises(cusync.CusyncError) as caught:
        program(make())
    error = caught.value
    assert error.code == "unsupported" and error.help
    assert error.message.startswith(f"node `{node}`") and why in error.message, error


def test_sizes_that_are_not_fixed_are_refused_with_their_place():
    from cusync.torch import program

    rows = torch.export.Dim("rows", min=2, max=64)
    graph = torch.export.export(Call(torch.sin), (torch.ones(4, 4),), dynamic_shapes={"x": {0: rows}})
    with pytest.raises(cusync.CusyncError, match="not fixed") as caught:
        program(graph)
    assert "without dynamic shapes" in caught.value.help
    with pytest.raises(cusync.CusyncError) as caught:
        program(torch.export.export(Call(branch), (torch.ones(4),)))
    assert caught.value.file == __file__ and caught.value.line
