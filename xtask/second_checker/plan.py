"""What a certificate states of a plan: stages, tensors, edges, the events of each tile, and how work is launched.

A node is a stage with a tile of it. A slice is one of the parts that share out the k-blocks of a tile. An item is a
slice of all tiles of a cluster, on the list of a worker or drawn by one."""
from .basics import ceil, demand
from .stage import Stage


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
        # The items of each unit of tiles, sorted by k-block (`work.find_items`), and the list and place of each item.
        self.of_tile, self.place = {}, {}
        if self.static:
            self.place = {i: (w, at) for w, items in enumerate(self.launch["lists"]) for at, i in enumerate(items)}
        # What a verdict rests on, beside what every launch rests on.
        self.premises = []
        self.first, count = [], 0
        for s in self.stages:
            self.first.append(count)
            count += s.grid[0] * s.grid[1]

    def index(self, node):
        """The number of a tile in its stage."""
        s, (m, n) = node
        return m * self.stages[s].grid[1] + n

    def number(self, node):
        """The number of a tile in the plan."""
        return self.first[node[0]] + self.index(node)

    def events(self, s, tile, i):
        at = self.slices[s][tile[0] * self.extents[s][1] + tile[1]]
        return [e for piece in at[i] for e in self.pieces[piece]] if i < len(at) else []

    def count_of(self, s, tile):
        return len(self.slices[s][tile[0] * self.extents[s][1] + tile[1]])

    def extent(self, s):
        return [(m, n) for m in range(self.extents[s][0]) for n in range(self.extents[s][1])]

    def all_slices(self):
        """Every slice of the plan, as a stage, a tile and its number."""
        for s in self.stages:
            for tile in self.extent(s.number):
                for i in range(self.count_of(s.number, tile)):
                    yield s, tile, i

    def unit(self, s, tile):
        """The items that compute a tile."""
        cr, cc = self.launch["cluster"]
        return self.of_tile.get((s, tile[0] // cr, tile[1] // cc), [])

    def sums(self, s, tile, i):
        """The k-blocks that a slice sums up, and whether it finishes its tile."""
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

    def cta_tile(self, item, cta):
        """The tile that a CTA of a cluster computes in an item."""
        cr, cc = self.launch["cluster"]
        s, m, n = self.launch["sequence"][item][:3]
        return s, (m * cr + cta // cc, n * cc + cta % cc)

    def announced(self, node):
        """Whether a tile posts to a slot."""
        edges = [e for e in self.edges if e["producer"] == node[0]]
        return any(amount for e in edges for _, amount in e["posts"][self.index(node)])

    def root(self, t):
        """The tensor whose memory a tensor has."""
        for _ in self.tensors:
            if self.tensors[t]["alias"] is None:
                break
            t = self.tensors[t]["alias"]
        return t
