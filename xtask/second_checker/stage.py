"""A stage of a plan: its tiles, its k-blocks, and the part of its output that each tile writes."""
from bisect import bisect_right

from .basics import ceil, clip, demand


class Stage:
    def __init__(self, number, raw, tensors):
        self.number, self.name, self.op = number, raw["name"], raw["op"]
        self.tensors, self.operands, self.out = tensors, raw["operands"], raw["out"]
        self.mma, self.k = raw["mma"], raw["k"]
        self.rows, self.cols = tensors[self.out]["rows"], tensors[self.out]["cols"]
        self.split = max(raw["split_k"], 1)
        self.devices, self.exchanges = raw["devices"], raw["exchanges"]
        self.parts = raw.get("parts")
        self.tile = self.size_of_tiles(raw)
        demand(min(self.tile) > 0 and min(self.mma) > 0, f"{self.name}: an empty tile")
        whole = (ceil(self.rows, self.tile[0]), ceil(self.cols, self.tile[1]))
        self.grid = (1, self.parts) if self.parts else whole
        demand(list(self.grid) == raw["grid"], f"{self.name}: the grid does not cover the output")
        self.most = self.most_k_blocks(raw)
        demand(self.most == raw["k_blocks"], f"{self.name}: {raw['k_blocks']} k-blocks, not {self.most}")

    def size_of_tiles(self, raw):
        kind = self.op["kind"]
        if kind == "gated_gemm":
            return (self.mma[0], self.mma[1] // 2)
        if kind in ("norm", "experts"):
            return (self.mma[0], self.cols)
        if kind in ("pool", "grouped_conv"):
            pixels, line = self.mma[0], self.op["output"][1]
            image = self.op["output"][0] * line
            rows_of_one = pixels % line == 0 and image % pixels == 0
            demand(rows_of_one or pixels % image == 0, "neither rows of an image nor whole images")
            return (pixels, self.cols)
        if kind == "attend":
            query, kv, dim = self.op["heads"]
            return (1, query // kv * dim)
        if self.op.get("window"):
            rows, images = self.op["window"]
            fits = self.op["output"][0] % rows == 0 and (images == 1 or rows == self.op["output"][0])
            demand(fits, "a window of parts")
            return (rows * images * self.op["output"][1], self.mma[1])
        if kind == "custom":
            return tuple(raw["tile"])
        return (self.mma[0], self.mma[1])

    def most_k_blocks(self, raw):
        """The k-blocks of a tile that sums up all of its reduction."""
        kind = self.op["kind"]
        if kind == "attention":
            whole = self.rows == self.op["tokens"] * self.op["sequences"]
            demand(whole, f"{self.name}: rows that are no whole sequences")
        if self.op.get("window"):
            # Blocks of 64 channels, and the taps of each.
            return self.op["filter"][0] * self.op["filter"][1] * ceil(self.op["channels"], 64)
        if kind == "custom":
            return raw["k_blocks"]
        if kind in ("norm", "experts", "group_norm", "pool", "grouped_conv", "attend"):
            return 1
        if kind == "conv2d":
            length = self.op["filter"][0] * self.op["filter"][1] * self.op["channels"]
        else:
            length = {"gemm": self.k, "gated_gemm": self.k, "attention": self.op.get("tokens")}[kind]
        return ceil(length, self.mma[2])

    def tiles(self):
        return [(m, n) for m in range(self.grid[0]) for n in range(self.grid[1])]

    def inside(self, tile):
        return tile[0] < self.grid[0] and tile[1] < self.grid[1]

    def k_blocks(self, m):
        if self.op["kind"] == "attention" and self.op["causal"]:
            first = m * self.mma[0] // self.op["tokens"] * self.op["tokens"]
            last = min((m + 1) * self.mma[0], first + self.op["tokens"])
            return min(self.most, ceil(last - first, self.mma[2]))
        return self.most

    def writes(self, tile):
        m, n = tile
        if self.parts:
            return (0, self.rows), (n * self.cols // self.parts, (n + 1) * self.cols // self.parts)
        return clip(m * self.tile[0], self.tile[0], self.rows), clip(n * self.tile[1], self.tile[1], self.cols)

    def writers(self, rows, cols):
        """Tiles that write into an area."""
        if rows[0] >= rows[1] or cols[0] >= cols[1]:
            return []
        if self.parts:
            begins = [n * self.cols // self.parts for n in range(self.parts)]
            first, last = bisect_right(begins, cols[0]) - 1, bisect_right(begins, cols[1] - 1) - 1
            met = [(0, n) for n in range(max(first, 0), last + 1)]
            return [t for t in met if self.writes(t)[1][0] < self.writes(t)[1][1]]
        (h, w) = self.tile
        rows, cols = (rows[0], min(rows[1], self.rows)), (cols[0], min(cols[1], self.cols))
        return [(m, n) for m in range(rows[0] // h, ceil(rows[1], h)) for n in range(cols[0] // w, ceil(cols[1], w))]
