#!/usr/bin/env python3
"""Checks certificates that `cusync check --certificate FILE` writes. It shares nothing with the compiler: what operations read,
which tiles write it, and what a wait guarantees is written down here once more, from their definitions.

    python3 xtask/certificate.py FILE...

prints a line for each file: `accepted`, `refused: why`, or `not covered: why`. Status 0 if all are accepted, 1 if one is refused, 2
if one is not covered. docs/trust.md says what is in a certificate, and what it takes on trust."""
import json
import sys
from bisect import bisect_right
from functools import lru_cache

WAIT, LOAD, SHARED, WARP, GIVE, AWAIT, ADD, STORE = range(8)
EPILOGUE = {"bias", "residual", "gain"}


class Refused(Exception):
    pass


class NotCovered(Exception):
    pass


def demand(holds, why):
    if not holds:
        raise Refused(why)


def clip(first, count, length):
    begin, end = min(max(first, 0), length), min(max(first + count, 0), length)
    return begin, max(begin, end)


def ceil(a, b):
    return -(-a // b)


class Stage:
    """What a stage computes: tiles, and what each of them reads and writes."""

    def __init__(self, number, raw, tensors):
        self.number, self.name, self.op = number, raw["name"], raw["op"]
        self.tensors, self.operands, self.out = tensors, raw["operands"], raw["out"]
        self.mma, self.k = raw["mma"], raw["k"]
        self.rows, self.cols = tensors[self.out]["rows"], tensors[self.out]["cols"]
        self.split = max(raw["split_k"], 1)
        self.devices, self.exchanges = raw["devices"], raw["exchanges"]
        self.parts = raw.get("parts")
        kind = self.op["kind"]
        if kind == "gated_gemm":
            self.tile = (self.mma[0], self.mma[1] // 2)
        elif kind in ("norm", "experts"):
            self.tile = (self.mma[0], self.cols)
        elif kind in ("pool", "grouped_conv"):
            pixels, line = self.mma[0], self.op["output"][1]
            image = self.op["output"][0] * line
            rows_of_one = pixels % line == 0 and image % pixels == 0
            demand(rows_of_one or pixels % image == 0, "neither rows of an image nor whole images")
            self.tile = (pixels, self.cols)
        elif kind == "attend":
            query, kv, dim = self.op["heads"]
            self.tile = (1, query // kv * dim)
        elif self.op.get("window"):
            rows, images = self.op["window"]
            demand(self.op["output"][0] % rows == 0 and (images == 1 or rows == self.op["output"][0]), "a window of parts")
            self.tile = (rows * images * self.op["output"][1], self.mma[1])
        elif kind == "custom":
            self.tile = tuple(raw["tile"])
        else:
            self.tile = (self.mma[0], self.mma[1])
        demand(min(self.tile) > 0 and min(self.mma) > 0, f"{self.name}: an empty tile")
        self.grid = (1, self.parts) if self.parts else (ceil(self.rows, self.tile[0]), ceil(self.cols, self.tile[1]))
        demand(list(self.grid) == raw["grid"], f"{self.name}: the grid does not cover the output")
        length = {"gemm": self.k, "gated_gemm": self.k}.get(kind)
        if kind == "conv2d":
            length = self.op["filter"][0] * self.op["filter"][1] * self.op["channels"]
        if kind == "attention":
            length = self.op["tokens"]
            demand(self.rows == length * self.op["sequences"], f"{self.name}: rows that are no whole sequences")
        known = {"custom": raw["k_blocks"], "norm": 1, "experts": 1, "group_norm": 1, "pool": 1, "grouped_conv": 1, "attend": 1}
        if self.op.get("window"):
            # Blocks of 64 channels, and the taps of each.
            known[kind] = self.op["filter"][0] * self.op["filter"][1] * ceil(self.op["channels"], 64)
        self.most = known[kind] if kind in known else ceil(length, self.mma[2])
        demand(self.most == raw["k_blocks"], f"{self.name}: {raw['k_blocks']} k-blocks, not {self.most}")

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

    def reads(self, operand, tile, k):
        """Areas of an operand's tensor that a tile reads at a k-block."""
        read = self.operands[operand]
        tensor = self.tensors[read["tensor"]]
        if not read.get("view"):
            return self.areas(read, tensor, tile, k)
        rows, cols = read["view"]
        whole = tensor["cols"]
        demand(rows * cols == tensor["rows"] * whole and max(cols, whole) % min(cols, whole) == 0, "a view of another size")
        demand(read["kind"] in ("a", "residual", "query", "key", "value"), f"{self.name}: a view of {read['kind']}")
        found = []
        for r, c in self.areas(read, {"rows": rows, "cols": cols}, tile, k):
            if r[0] < r[1] and c[0] < c[1]:
                # From the first element to the last: parts of the first row and of the last, and the rows between.
                (top, left), (end, right) = divmod(r[0] * cols + c[0], whole), divmod((r[1] - 1) * cols + c[1] - 1, whole)
                if top == end:
                    found.append(((top, top + 1), (left, right + 1)))
                else:
                    found += [((top, top + 1), (left, whole)), ((top + 1, end), (0, whole)), ((end, end + 1), (0, right + 1))]
        return found

    def areas(self, read, tensor, tile, k):
        """The same in the rows and columns under which the stage reads the tensor."""
        kind = read["kind"]
        op, (rows, cols), depth = self.op["kind"], self.writes(tile), self.mma[2]
        if op == "custom":
            def axis(a, length):
                return clip(a[0] * tile[0] + a[1] * tile[1] + a[2] * k + a[3], a[4], length)
            return [(axis(read["rows"], tensor["rows"]), axis(read["cols"], tensor["cols"]))]
        if op == "norm":
            return [(rows if kind in ("a", "residual") else (0, tensor["rows"]), (0, tensor["cols"]))]
        if op == "experts":
            return [(rows if kind in ("a", "router", "residual") else (0, tensor["rows"]), (0, tensor["cols"]))]
        if op == "group_norm":
            return [(rows if kind == "a" else (0, tensor["rows"]), cols)]
        if op == "pool" or op == "grouped_conv" and kind == "a":
            return self.window(rows, (0, tensor["cols"]))
        if op in ("attention", "attend"):
            query, kv, d = self.op["heads"]
            group = query // kv
            if op == "attend":
                heads = {"query": (tile[1] * group, group), "key": (query + tile[1], 1), "value": (query + kv + tile[1], 1)}
                first, count = heads[kind]
                return [((tile[0], tile[0] + 1), (first * d, (first + count) * d))]
            head = {"query": tile[1], "key": query + tile[1] // group, "value": query + kv + tile[1] // group}[kind]
            own = clip(tile[0] * self.mma[0], self.mma[0], tensor["rows"])
            if kind != "query":
                tokens = self.op["tokens"]
                first, (begin, end) = tile[0] * self.mma[0] // tokens * tokens, clip(k * depth, depth, tokens)
                own = first + begin, first + end
            return [(own, (head * d, (head + 1) * d))]
        if kind == "bias":
            return [((0, tensor["rows"]), cols)]
        if kind == "residual":
            return [(rows, cols)]
        if self.op.get("window"):
            block, tap = divmod(k, self.op["filter"][0] * self.op["filter"][1])
            first, end = clip(block * 64, 64, self.op["channels"])
            if kind == "b":
                return [((tap * self.op["channels"] + first, tap * self.op["channels"] + end), cols)]
            return self.window(rows, (first, end))
        if kind in ("b", "up"):
            return [(clip(k * depth, depth, tensor["rows"]), cols)]
        if op == "conv2d":
            return self.pixels(rows, clip(k * depth, depth, self.most * depth))
        return [(rows, clip(k * depth, depth, tensor["cols"]))]

    def window(self, out, channels):
        """Of each image all rows from the first that a tap of an output pixel meets to the last."""
        o, areas = self.op, []
        (ih, iw), (oh, ow) = o["input"], o["output"]
        columns = [q * o["stride"][1] + s * o["dilation"][1] - o["padding"][1] for q in range(ow) for s in range(o["filter"][1])]
        lines = range(out[0] // ow, ceil(out[1], ow)) if any(0 <= w < iw for w in columns) else ()
        met = {}
        for line in lines:
            for r in range(o["filter"][0]):
                h = line % oh * o["stride"][0] + r * o["dilation"][0] - o["padding"][0]
                if 0 <= h < ih:
                    met.setdefault(line // oh, []).append(h)
        for image, rows in sorted(met.items()):
            areas.append((((image * ih + min(rows)) * iw, (image * ih + max(rows) + 1) * iw), channels))
        return areas

    def pixels(self, out, ks):
        """Pixels and channels under output pixels, for elements of the reduction: channel by channel, tap by tap."""
        o, areas = self.op, []
        (ih, iw), (oh, ow), (fr, fs) = o["input"], o["output"], o["filter"]
        at, end = ks[0], min(ks[1], fr * fs * o["channels"])
        while at < end:
            tap, c = divmod(at, o["channels"])
            stop = min(end, at - c + o["channels"])
            r, s = divmod(tap, fs)
            for pixel in range(*out):
                rest, q = divmod(pixel, ow)
                image, p = divmod(rest, oh)
                h = p * o["stride"][0] + r * o["dilation"][0] - o["padding"][0]
                w = q * o["stride"][1] + s * o["dilation"][1] - o["padding"][1]
                if 0 <= h < ih and 0 <= w < iw:
                    row = (image * ih + h) * iw + w
                    if areas and areas[-1][1] == (c, c + stop - at) and areas[-1][0][1] == row:
                        areas[-1] = ((areas[-1][0][0], row + 1), areas[-1][1])
                    else:
                        areas.append(((row, row + 1), (c, c + stop - at)))
            at = stop
        return areas


class Certificate:
    def __init__(self, raw):
        demand(raw["certificate"] == 1, "a certificate of another version")
        self.launch, self.contract, self.device = raw["launch"], raw["contract"], raw["device"]
        self.tensors = raw["tensors"]
        self.stages = [Stage(i, s, self.tensors) for i, s in enumerate(raw["stages"])]
        self.edges, self.pieces, self.slices = raw["edges"], raw["pieces"], raw["slices"]
        self.extents, self.order = raw["extents"], raw["order"]
        self.one = self.launch["kind"] != "stages"
        self.how = self.launch.get("how")
        self.semaphores = self.how != "serial"
        self.static = self.one and self.launch["mode"] == "static"
        if not self.one:
            self.position = {s["stage"]: i for i, s in enumerate(self.launch["stages"])}
        self.first, count = [], 0
        for s in self.stages:
            self.first.append(count)
            count += s.grid[0] * s.grid[1]

    def number(self, node):
        s, (m, n) = node
        return self.first[s] + m * self.stages[s].grid[1] + n

    def events(self, s, tile, i):
        at = self.slices[s][tile[0] * self.extents[s][1] + tile[1]]
        return [e for piece in at[i] for e in self.pieces[piece]] if i < len(at) else []

    def count_of(self, s, tile):
        return len(self.slices[s][tile[0] * self.extents[s][1] + tile[1]])

    def extent(self, s):
        return [(m, n) for m in range(self.extents[s][0]) for n in range(self.extents[s][1])]

    # The graph.

    def graph(self):
        for t, tensor in enumerate(self.tensors):
            p = tensor["producer"]
            demand(p is None or self.stages[p].out == t, f"{tensor['name']} is not what its producer writes")
        for s in self.stages:
            demand(self.tensors[s.out]["producer"] == s.number, f"{s.name} writes another's tensor")
            for o, operand in enumerate(s.operands):
                p = self.tensors[operand["tensor"]]["producer"]
                edge = any((e["producer"], e["consumer"], e["operand"]) == (p, s.number, o) for e in self.edges)
                demand(p is None or edge, f"{s.name} reads what {p} writes, and no edge says so")
        for e in self.edges:
            demand(e["producer"] < e["consumer"], "a consumer stands before its producer")
            out, read = self.stages[e["producer"]], self.stages[e["consumer"]].operands[e["operand"]]
            tensor = self.tensors[read["tensor"]]
            shared = self.one and self.launch["cluster"][1] > 1 and read["kind"] == "a"
            demand(not (shared and read.get("view")), "a cluster loads slices of a tensor under another shape")
            demand((out.rows, out.cols) == (tensor["rows"], tensor["cols"]), "an edge of another shape")
        if not self.one:
            launched = [s["stage"] for s in self.launch["stages"]]
            demand(sorted(launched) == list(range(len(self.stages))), "a stage is not launched once")
            for s in self.launch["stages"]:
                tiles = sorted(map(tuple, s["order"]))
                demand(tiles == self.stages[s["stage"]].tiles(), "an order that does not visit each tile once")

    # Items of work: which k-blocks a slice sums up, and whether it finishes its tile.

    def items(self):
        self.of_tile = {}
        if not self.one:
            return
        seq = self.launch["sequence"]
        for i, item in enumerate(seq):
            self.of_tile.setdefault((item[0], item[1], item[2]), []).append(i)
        cr, cc = self.launch["cluster"]
        for s in self.stages:
            for m in range(ceil(s.grid[0], cr)):
                for n in range(ceil(s.grid[1], cc)):
                    parts = sorted(self.of_tile.get((s.number, m, n), []), key=lambda i: seq[i][3])
                    self.of_tile[(s.number, m, n)] = parts
                    done = 0
                    for i in parts:
                        demand(seq[i][3] == done < seq[i][4], f"{s.name}({m}, {n}): k-blocks twice, or left out")
                        done = seq[i][4]
                    demand(done == s.k_blocks(m * cr), f"{s.name}({m}, {n}): k-blocks left out")
        held = sorted(i for items in self.launch["lists"] for i in items)
        demand(not self.static or held == list(range(len(seq))), "a list does not hold each item once")

    def unit(self, s, tile):
        cr, cc = self.launch["cluster"]
        return self.of_tile.get((s, tile[0] // cr, tile[1] // cc), [])

    def sums(self, s, tile, i):
        stage = self.stages[s]
        if self.one:
            parts = self.unit(s, tile)
            if i >= len(parts):
                return range(0), False
            item = self.launch["sequence"][parts[i]]
            return range(item[3], item[4]), item[5] != "give"
        each = ceil(stage.most, stage.split)
        last = stage.k_blocks(tile[0])
        ks = range(min(i * each, last), min((i + 1) * each, last))
        return ks, len(ks) > 0

    # Loads and stores.

    def work(self):
        for s in self.stages:
            produced = {e["operand"] for e in self.edges if e["consumer"] == s.number}
            for tile in s.tiles():
                if s.writes(tile)[1][0] == s.writes(tile)[1][1]:
                    continue
                stores, name = [], f"{s.name}{tile}"
                should = len(self.unit(s.number, tile)) if self.one else s.split
                for i in range(max(should, self.count_of(s.number, tile))):
                    ks, finishes = self.sums(s.number, tile, i)
                    own, got, left, stored = [], {}, False, False
                    for e in self.events(s.number, tile, i):
                        left, stored = left or e[0] == GIVE, stored or e[0] == STORE
                        late = e[0] in (LOAD, SHARED) and stored and e[1] in produced
                        demand(not late or self.launch["kind"] != "shares", f"{name} loads after its store")
                        if e[0] in (LOAD, SHARED) and not stored:
                            if not left or s.operands[e[1]]["kind"] in EPILOGUE:
                                got.setdefault(e[1], []).append(e[2])
                        if e[0] == STORE:
                            own.append(tuple(e[1:]))
                    for o in produced:
                        kind, has = s.operands[o]["kind"], got.get(o, [])
                        if kind in EPILOGUE:
                            demand(not finishes or 0 in has, f"{name} does not load its {kind}")
                            demand(len(has) < 2 or self.launch["kind"] != "shares", f"{name} loads its {kind} twice")
                        elif kind == "query" and self.launch["kind"] != "shares":
                            demand(not len(ks) or any(k in ks for k in has), f"{name} does not load its queries")
                        elif self.launch["kind"] == "shares":
                            demand(sorted(has) == list(ks), f"{name} does not load each k-block once")
                        else:
                            demand(set(ks) <= set(has), f"{name} does not load each k-block")
                    if self.one:
                        stores += own
                    elif len(ks) or own:
                        self.once(own, name)
                if self.one:
                    self.once(stores, name)
        if self.one and self.launch["cluster"] != [1, 1]:
            self.shared()

    @staticmethod
    def once(stores, name):
        demand(stores, f"{name} is never stored")
        done = 0
        for begin, end, of in sorted(stores):
            demand(begin == done and of == stores[0][2], f"{name}: a unit is stored twice, or by nobody")
            done = end
        demand(done == stores[0][2] > 0, f"{name}: units are stored by nobody")

    def shared(self):
        cr, cc = self.launch["cluster"]
        for s in self.stages:
            produced = {e["operand"] for e in self.edges if e["consumer"] == s.number}
            for m in range(0, s.grid[0], cr):
                for n in range(0, s.grid[1], cc):
                    mates = [(m + i, n + j) for i in range(cr) for j in range(cc)]
                    for i in range(len(self.unit(s.number, (m, n)))):
                        boxes, own = {}, set()
                        for mate in mates:
                            for e in self.events(s.number, mate, i):
                                if e[0] == SHARED:
                                    boxes.setdefault((e[1], e[2]), []).append(e)
                                if e[0] == LOAD:
                                    own.add((mate, e[1], e[2]))
                        ks, _ = self.sums(s.number, (m, n), i)
                        for mate in filter(s.inside, mates):
                            for o in produced:
                                if s.operands[o]["kind"] in EPILOGUE:
                                    continue
                                for k in ks:
                                    if (mate, o, k) in own:
                                        continue
                                    for rows, cols in s.reads(o, mate, k):
                                        demand(self.covers(rows, cols, boxes.get((o, k), [])),
                                               f"{s.name}{mate}: its cluster does not load all of k-block {k}")

    @staticmethod
    def covers(rows, cols, boxes):
        def along(whole, parts):
            at = whole[0]
            for begin, end in sorted(parts):
                at = max(at, end) if begin <= at else at
            return at >= whole[1]
        tall = [(e[5], e[6]) for e in boxes if e[3] <= rows[0] and e[4] >= rows[1]]
        wide = [(e[3], e[4]) for e in boxes if e[5] <= cols[0] and e[6] >= cols[1]]
        return along(cols, tall) or along(rows, wide)

    # Posts and waits.

    def posts(self):
        self.totals, self.posters = [], []
        for e in self.edges:
            producer, totals, posters = self.stages[e["producer"]], {}, {}
            for tile, posts in zip(producer.tiles(), e["posts"]):
                for slot, amount in posts:
                    demand(slot < e["slots"], "a post outside the slots of its edge")
                    totals[slot] = totals.get(slot, 0) + amount
                    if amount:
                        posters.setdefault(slot, []).append(tile)
            demand(len(e["posts"]) == len(producer.tiles()), "posts of another grid")
            demand(max(totals.values(), default=0) <= 1 << 30, "posts that two epochs cannot tell apart")
            self.totals.append(totals)
            self.posters.append(posters)

    def waits(self):
        judged = set()
        for s in self.stages:
            for tile in self.extent(s.number):
                for i in range(self.count_of(s.number, tile)):
                    for e in self.events(s.number, tile, i):
                        if e[0] == WAIT and (e[1], e[2], e[3]) not in judged:
                            judged.add((e[1], e[2], e[3]))
                            demand(e[2] < self.edges[e[1]]["slots"], "a wait outside the slots of its edge")
                            total = self.totals[e[1]].get(e[2], 0)
                            demand(e[3] == total, f"{s.name}{tile} waits for {e[3]} posts of {total}")

    def cover(self):
        if not self.semaphores:
            for e in self.edges:
                demand(self.position[e["producer"]] < self.position[e["consumer"]], "a reader is launched before its writer")
            return
        posted = []
        for e in self.edges:
            tiles = self.stages[e["producer"]].tiles()
            posted.append({t: [slot for slot, amount in p if amount] for t, p in zip(tiles, e["posts"])})
        for s in self.stages:
            edges = {}
            for n, e in enumerate(self.edges):
                if e["consumer"] == s.number:
                    edges.setdefault(e["operand"], []).append(n)
            if not edges:
                continue

            @lru_cache(maxsize=None)
            def met(operand, m, n, k):
                areas = s.reads(operand, (m, n), k)
                return [(n_, w) for n_ in edges[operand] for a in areas
                        for w in self.stages[self.edges[n_]["producer"]].writers(*a)]

            for tile in self.extent(s.number):
                for i in range(self.count_of(s.number, tile)):
                    seen = set()
                    for at, e in enumerate(self.events(s.number, tile, i)):
                        if e[0] == WAIT and e[3] >= self.totals[e[1]].get(e[2], 0):
                            seen.add((e[1], e[2]))
                        elif e[0] == WARP:
                            seen = set()
                        elif e[0] in (LOAD, SHARED) and e[1] in edges:
                            if e[0] == LOAD:
                                m, n = self.seen_of(s, e[1], tile)
                                read = met(e[1], m, n, e[2])
                            else:
                                read = [(n_, w) for n_ in edges[e[1]] for w in
                                        self.stages[self.edges[n_]["producer"]].writers((e[3], e[4]), (e[5], e[6]))]
                            for edge, writer in read:
                                if not any((edge, slot) in seen for slot in posted[edge][writer]):
                                    node = (self.edges[edge]["producer"], writer)
                                    demand(self.load(node, (s.number, tile), i, at),
                                           f"{s.name}{tile} may read before {self.stages[node[0]].name}{writer} has written")

    @staticmethod
    def seen_of(s, operand, tile):
        """The coordinates that a read can depend on; others are 0, so that it is looked up once."""
        kind, op = s.operands[operand]["kind"], s.op["kind"]
        if op in ("gemm", "gated_gemm", "conv2d") and not s.parts:
            return (tile[0] if kind in ("a", "residual") else 0, tile[1] if kind != "a" else 0)
        if op == "attention" and kind != "query" and s.op["sequences"] == 1:
            return 0, tile[1]
        return tile

    # What is known to be done.

    def waited(self, node, i, until, by=None):
        """Slots that a slice has waited for in full: up to an event, its first store, its sums, or its end."""
        s, tile = node
        slots, warp, over, left, stores = [], 0, False, None, False
        stage = self.stages[s]
        for at, e in enumerate(self.events(s, tile, i)):
            over = over or at == until
            if e[0] == WARP:
                warp = e[1] if warp is not None else None
                continue
            operand = e[1] if e[0] in (LOAD, SHARED) else None
            if e[0] == WAIT and self.edges[e[1]]["consumer"] == s:
                operand = self.edges[e[1]]["operand"]
            if e[0] >= GIVE or operand is not None and stage.operands[operand]["kind"] in EPILOGUE:
                warp = None
            if e[0] == WAIT and not over and e[3] >= self.totals[e[1]].get(e[2], 0) and by in (None, warp):
                slots.append((e[1], e[2]))
            if e[0] == GIVE:
                left = len(slots) if left is None else left
                over = over or until == "sums"
            if e[0] == STORE:
                stores = True
                over = over or until == "store"
        return slots[:left] if until == "done" and not stores and left is not None else slots

    def warp_of(self, node, i, event):
        s, tile = node
        warp, stage = 0, self.stages[s]
        for e in self.events(s, tile, i)[: event + 1]:
            if e[0] == WARP:
                warp = e[1] if warp is not None else None
            elif e[0] >= GIVE or e[0] in (LOAD, SHARED) and stage.operands[e[1]]["kind"] in EPILOGUE:
                warp = None
            elif e[0] == WAIT and self.edges[e[1]]["consumer"] == s:
                if stage.operands[self.edges[e[1]]["operand"]]["kind"] in EPILOGUE:
                    warp = None
        return warp

    def behind(self, slots):
        return {(self.edges[e]["producer"], t) for e, slot in slots for t in self.posters[e].get(slot, [])}

    def places(self):
        self.place = {}
        if self.static:
            for w, items in enumerate(self.launch["lists"]):
                for at, i in enumerate(items):
                    self.place[i] = (w, at)

    def cta_tile(self, item, cta):
        cr, cc = self.launch["cluster"]
        s, m, n = self.launch["sequence"][item][:3]
        return s, (m * cr + cta // cc, n * cc + cta % cc)

    def settled(self, item):
        """Whether the plan says which worker has an item: a decode kernel shares tiles out on the device."""
        return self.launch["kind"] != "shares" or self.stages[self.launch["sequence"][item][0]].parts

    def earlier(self, item, cta):
        """Tiles that one item finished before this one in its list, in that order."""
        if not self.static:
            return []
        w, at = self.place[item]
        alone = [i for i in self.launch["lists"][w][:at] if self.launch["sequence"][i][5] in ("whole", "finish")]
        alone = [i for i in alone if self.settled(item) and self.settled(i)]
        return [n for n in (self.cta_tile(i, cta) for i in alone) if self.stages[n[0]].inside(n[1])]

    def cta(self, node):
        cr, cc = self.launch["cluster"]
        return node[1][0] % cr * cc + node[1][1] % cc

    def direct(self, node):
        s, tile = node
        slots = {x for i in range(self.count_of(s, tile)) for x in self.waited(node, i, "done")}
        known = self.behind(slots)
        if self.static:
            for item in self.unit(s, tile):
                if self.launch["sequence"][item][5] != "give":
                    known |= set(self.earlier(item, self.cta(node)))
        return known

    def done(self, nodes):
        """A bit for each tile that is known to be done when these are."""
        bits, work = 0, list(nodes)
        for root in work:
            stack = [(root, None)]
            while stack:
                node, rest = stack.pop()
                if rest is None:
                    if node in self.closures:
                        continue
                    self.closures[node] = 1 << self.number(node)
                    rest = self.direct(node)
                    stack.append((node, rest))
                    stack.extend((n, None) for n in rest if n not in self.closures)
                else:
                    for n in rest:
                        self.closures[node] |= self.closures[n]
            bits |= self.closures[root]
        return bits

    def load(self, first, reader, i, event):
        warp = self.warp_of(reader, i, event)
        slots, known = self.waited(reader, i, event, warp), set()
        items = self.unit(*reader) if self.one else []
        if self.static and i < len(items):
            ordered = self.contract["stores"] == "barrier" and self.contract["post_releases"]
            if warp is None and ordered:
                known = set(self.earlier(items[i], self.cta(reader)))
                if first in known:
                    return True
            w, at = self.place[items[i]]
            for before in self.launch["lists"][w][:at]:
                if not (self.settled(before) and self.settled(items[i])):
                    continue
                node = self.cta_tile(before, self.cta(reader))
                number = self.unit(*node).index(before)
                slots = slots + self.waited(node, number, "sums", warp)
        return bool(self.done(known | self.behind(slots)) >> self.number(first) & 1)

    def before_store(self, writer, wrote):
        s, tile = writer
        count = range(self.count_of(s, tile))
        stores = [i for i in count if any(e[0] == STORE for e in self.events(s, tile, i))]
        slots, known, items = [], set(), self.unit(s, tile) if self.static else []
        for i in count:
            alone = not self.one or stores == [i]
            slots += self.waited(writer, i, "store" if alone else "sums")
            if stores == [i] and i < len(items):
                earlier = self.earlier(items[i], self.cta(writer))
                if wrote and self.contract["stores"] != "barrier":
                    sure = earlier[:-1] if self.contract["deferred_post"] else earlier
                    last = max((at + 1 for at, n in enumerate(sure) if self.announced(n)), default=0)
                    for loose in earlier[last:]:
                        for j in range(self.count_of(*loose)):
                            slots += self.waited(loose, j, "done")
                    earlier = earlier[:last]
                known |= set(earlier)
        return known | self.behind(slots)

    def announced(self, node):
        number = node[1][0] * self.stages[node[0]].grid[1] + node[1][1]
        return any(a for e in self.edges if e["producer"] == node[0] for _, a in e["posts"][number])

    # Progress.

    def progress(self):
        if self.how == "serial":
            demand(self.device["sms"] > 0, "no SM")
            return
        if self.how in ("streams", "programmatic", "host"):
            for e in self.edges:
                if self.position[e["producer"]] > self.position[e["consumer"]]:
                    demand(self.how != "host", "a consumer stands before its producer in the list")
                    raise NotCovered("a consumer that is launched before its producer")
            for s in self.stages:
                for tile in self.extent(s.number):
                    for i in range(self.count_of(s.number, tile)):
                        for e in self.events(s.number, tile, i):
                            if e[0] == WAIT and self.edges[e[1]]["consumer"] != s.number:
                                raise NotCovered("waits that are no edge of their stage")
            if self.how == "programmatic" and self.device["arch"] < 90:
                raise Refused("no programmatic launch on this device")
            if self.how != "host":
                for k in self.launch["stages"]:
                    demand(1 <= k["ctas_per_sm"] <= self.device["ctas_per_sm"], "no CTA fits, or too many")
                demand(self.device["sms"] > 0, "no SM")
            return
        if not self.one:
            raise NotCovered("kernels without a start guarantee")
        demand(self.launch["resident"] > 0, "no worker is resident")
        if self.static and len(self.launch["lists"]) > self.launch["resident"]:
            raise NotCovered("more workers than are resident")
        demand(self.static or not self.contract["deferred_post"] or not self.edges, "a post held back by who draws")
        demand(self.order is not None, "no order of the items is shown")
        self.run()

    def run(self):
        """The order shown: each item comes when all that it waits for is there, and behind those before it in its list."""
        seq, lists = self.launch["sequence"], self.launch["lists"]
        demand(sorted(self.order) == list(range(len(seq))), "an order that is not of all items")
        demand(self.static or self.order == list(range(len(seq))), "items are drawn in another order")
        cr, cc = self.launch["cluster"]
        count, flags, heads = [{} for _ in self.edges], set(), [0] * len(lists)
        left, held = {k: len(v) for k, v in self.of_tile.items()}, {}
        givers = {}

        def needs(item):
            s, m, n = seq[item][:3]
            before, gives, after = [], [], []
            for cta in range(cr * cc):
                node, given = self.cta_tile(item, cta), False
                for e in self.events(*node, self.of_tile[(s, m, n)].index(item)):
                    if e[0] == GIVE:
                        given = True
                        gives.append((e[1], cta))
                    elif e[0] == WAIT or e[0] == AWAIT:
                        (after if given else before).append(tuple(e[:4]) if e[0] == WAIT else (AWAIT, e[1], cta))
            return before, gives, after

        steps = {i: needs(i) for i in range(len(seq))}
        for i, (_, gives, _) in steps.items():
            for flag in gives:
                demand(flag not in givers, "a slab is written twice")
                givers[flag] = i

        def there(need):
            if need[0] == WAIT:
                return count[need[1]].get(need[2], 0) >= need[3]
            if need[1:] in flags:
                return True
            giver = givers.get(need[1:])
            if giver is None:
                return False
            # Its sums are there when it stands at the head of its list with all that it needs before it leaves them.
            at_head = not self.static or heads[self.place[giver][0]] == self.place[giver][1]
            return at_head and self.static and all(n[0] == WAIT and there(n) for n in steps[giver][0])

        def post(item):
            s, m, n = seq[item][:3]
            left[(s, m, n)] -= 1
            if left[(s, m, n)]:
                return
            for cta in range(cr * cc):
                node = self.cta_tile(item, cta)
                if self.stages[s].inside(node[1]):
                    number = node[1][0] * self.stages[s].grid[1] + node[1][1]
                    for e, edge in enumerate(self.edges):
                        if edge["producer"] == s:
                            for slot, amount in edge["posts"][number]:
                                count[e][slot] = count[e].get(slot, 0) + amount

        for item in self.order:
            w = 0
            if self.static:
                w, at = self.place[item]
                demand(heads[w] == at, "an item before one that stands before it in its list")
            before, gives, after = steps[item]
            demand(all(map(there, before)), f"item {item} waits for what comes later")
            flags.update(gives)
            demand(all(map(there, after)), f"item {item} waits for what comes later")
            heads[w] += 1
            if w in held:
                post(held.pop(w))
            if self.contract["deferred_post"] and seq[item][5] != "give":
                held[w] = item
                if self.static and heads[w] == len(lists[w]):
                    post(held.pop(w))
            else:
                post(item)

    # Slabs, memory, fences.

    def slabs(self):
        if not self.one:
            return
        for s in self.stages:
            for tile in s.tiles():
                count = self.count_of(s.number, tile)
                if count < 2:
                    continue
                uses = []
                for i in range(count):
                    gives, seen, adds, stores = set(), set(), [], False
                    for e in self.events(s.number, tile, i):
                        if e[0] == GIVE:
                            gives.add(e[1])
                        elif e[0] == AWAIT:
                            seen.add(e[1])
                        elif e[0] == ADD and not stores:
                            demand(e[1] in seen, "a slab is added before its flag is seen")
                            demand(e[1] not in adds, "a slab is added twice")
                            adds.append(e[1])
                        elif e[0] == STORE and e[1] < e[2]:
                            stores = True
                    uses.append((gives, adds, stores))
                for i, (_, adds, stores) in enumerate(uses):
                    others = set().union(*[u[0] for j, u in enumerate(uses) if j != i])
                    demand(set(adds) <= others, "a slab of another tile, or its own, is added")
                    if stores:
                        for j, (gives, _, _) in enumerate(uses):
                            demand(j == i or gives and gives <= set(adds), "a tile without the sums of one of its parts")

    def root(self, t):
        for _ in self.tensors:
            if self.tensors[t]["alias"] is None:
                break
            t = self.tensors[t]["alias"]
        return t

    def memory(self):
        c = self.contract
        if self.edges or self.one and self.launch["slabs"]:
            ends = c["full_run_boundary"] and (not c["overlap"] or c["dependency_wait"])
            demand(ends, "a run begins to write before the one before it has ended")
        older = lambda t: -1 if self.tensors[t]["producer"] is None else self.tensors[t]["producer"]
        for t, tensor in enumerate(self.tensors):
            writer, root = tensor["producer"], self.root(t)
            if writer is None:
                continue
            read = any(o["tensor"] == root for s in self.stages for o in s.operands)
            demand(self.tensors[root]["producer"] is not None or root == t or not read, "an input is overwritten")
            for old in range(len(self.tensors)):
                if old != t and self.root(old) == root and older(old) < older(t):
                    self.overwrites(writer, t, old)

    def overwrites(self, writer, new, old):
        a, b, w = self.tensors[new], self.tensors[old], self.stages[writer]
        demand((a["rows"], a["cols"]) == (b["rows"], b["cols"]), "an alias of another shape")
        met = {t: set() for t in w.tiles()}
        for s in self.stages:
            for o in [o for o in range(len(s.operands)) if s.operands[o]["tensor"] == old] + [None] * (s.out == old):
                for tile in s.tiles():
                    areas = [s.writes(tile)] if o is None else [
                        area for k in range(max(s.k_blocks(tile[0]), 1)) for area in s.reads(o, tile, k)]
                    for area in areas:
                        for t in w.writers(*area):
                            met[t].add((s.number, tile, o is None))
        for tile, users in met.items():
            for wrote in (False, True):
                known = None
                for s, other, wrote_it in users:
                    if wrote_it != wrote or (s, other) == (writer, tile):
                        continue
                    if not self.semaphores:
                        demand(self.position[s] < self.position[writer], f"{a['name']} overwrites what is still read")
                        continue
                    if known is None:
                        known = self.done(self.before_store((writer, tile), wrote))
                    demand(known >> self.number((s, other)) & 1,
                           f"{w.name}{tile} may overwrite what {self.stages[s].name}{other} uses")

    def fences(self):
        c = self.contract
        slots = any(e["slots"] for e in self.edges)
        slabs = self.launch["slabs"] if self.one else 0
        demand(not self.semaphores or not slots or c["epoch"] == "device" or not c["graph_replay"], "an epoch baked in")
        demand(not slabs or c["slabs"]["flag_is_epoch"], "flags that nobody clears")
        if c["plain_store_posts"] and self.semaphores:
            for e in self.edges:
                counts = {}
                for posts in e["posts"]:
                    for slot, _ in posts:
                        counts[slot] = counts.get(slot, 0) + 1
                demand(max(counts.values(), default=0) <= 1, "plain stores to a slot of several posts")
        if self.semaphores and self.how != "host":
            if slots:
                demand(c["stores"] != "bulk-read", "a post before its bulk store is complete")
                demand(c["post_releases"] and c["wait_acquires"], "a post or a look without its order")
                demand(not c["bulk_loads"] or c["proxy_fence"], "bulk copies without a proxy fence")
            if slabs:
                for what in ("barrier", "flag_releases", "flag_acquires"):
                    demand(c["slabs"][what], f"slabs without {what}")

    def caches(self):
        """What runs append to: one stage alone has it, and a run finds what those before it have left."""
        c, some = self.contract["cache"], False
        if any(o["kind"] == "pages" for s in self.stages for o in s.operands):
            self.premises.append("a page to which a run appends a token of one sequence is no other sequence's")
        for t, tensor in enumerate(self.tensors):
            uses = [(s.number, o["kind"]) for s in self.stages for o in s.operands if o["tensor"] == t]
            if not any(kind.startswith("cached_") for _, kind in uses):
                continue
            some = True
            demand(len(uses) == 1, f"{tensor['name']} is appended to, and read by others")
            demand(tensor["producer"] is None, f"{tensor['name']} is appended to, and written by a stage")
            shared = tensor["alias"] is not None or any(u["alias"] == t for u in self.tensors)
            demand(not shared, f"{tensor['name']} is appended to, and its memory is another's too")
        if some:
            overlaps = self.contract["overlap"] and not (c["reads_wait"] and self.contract["dependency_wait"])
            demand(c["new_from_run"], "the new token is read from the cache")
            demand(c["lengths_each_run"] or not self.contract["graph_replay"], "lengths are baked in")
            demand(not overlaps and self.contract["full_run_boundary"], "a cache is read before the run before has ended")
            shares = self.launch["kind"] == "shares"
            demand(not shares or c["parts_recounted"] and c["parts_ordered"], "parts that nobody counts")

    def sums_over_devices(self):
        """Runs the exchanges of every tile on all devices: each adds every device's sums once, in the same order."""
        for s in self.stages:
            if s.devices == 1:
                continue
            c = self.contract["exchange"]
            # A device that has received a run's sums of another may be sent the next run's before it has read these.
            demand(c["sets"] >= 2, f"{s.name}: a device ahead overwrites sums that another still reads")
            demand(c["numbered"], f"{s.name}: sums of another device that may be those of an earlier run")
            demand(len(s.exchanges) == s.grid[0] * s.grid[1], f"{s.name}: tiles without exchanges")
            for number, devices in enumerate(s.exchanges):
                rows, cols = s.writes((number // s.grid[1], number % s.grid[1]))
                if rows[0] == rows[1] or cols[0] == cols[1]:
                    continue
                demand(len(devices) == s.devices, f"{s.name}: exchanges of {len(devices)} devices")
                mail, at, added = {}, [0] * s.devices, [[] for _ in devices]
                moved = True
                while moved:
                    moved = False
                    for device, steps in enumerate(devices):
                        while at[device] < len(steps):
                            step = steps[at[device]]
                            if len(step) == 2:
                                demand(max(step) < s.devices, f"{s.name}: a send to a device or place that is not there")
                                demand(tuple(step) not in mail, f"{s.name}: two messages in one place")
                                mail[tuple(step)] = device
                            elif (device, step[0]) in mail:
                                added[device].append(mail[(device, step[0])])
                            else:
                                break
                            at[device] += 1
                            moved = True
                for device, steps in enumerate(devices):
                    demand(at[device] == len(steps), f"{s.name}: device {device} waits for sums that nobody sends")
                    demand(sorted(added[device]) == list(range(s.devices)), f"{s.name}: not the sums of every device, once")
                    demand(added[device] == added[0], f"{s.name}: devices that add in different orders")

    def check(self):
        self.premises = []  # of the tables that runs read, beside those of every launch
        self.graph()
        self.caches()
        self.sums_over_devices()
        self.items()
        self.places()
        self.closures = {}
        self.posts()
        self.work()
        if self.semaphores:
            self.waits()
        self.cover()
        self.slabs()
        self.memory()
        self.fences()
        self.progress()


def judge(raw):
    try:
        certificate = Certificate(raw)
        certificate.check()
    except Refused as why:
        return f"refused: {why}"
    except NotCovered as why:
        return f"not covered: {why}"
    return "accepted" + "".join(f", given that {premise}" for premise in certificate.premises)


def main(files):
    worst = 0
    for file in files:
        # A file holds one certificate, or one a line.
        with open(file) as lines:
            for line in lines:
                verdict = judge(json.loads(line))
                print(f"{file}: {verdict}")
                worst = max(worst, {"a": 0, "r": 1, "n": 2}[verdict[0]])
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
