"""What is known to be done: tiles behind the waits of a slice, and behind those before it in its list."""
from .basics import EPILOGUE, GIVE, LOAD, SHARED, STORE, WAIT, WARP


class Known:
    def __init__(self, plan, posts):
        self.plan, self.posts = plan, posts
        # For each tile a bit for each that is known to be done when it is.
        self.closures = {}

    def steps(self, node, i):
        """The events of a slice, each with its warp: `None` from the first that all warps take part in."""
        s, tile = node
        plan, warp, stage = self.plan, 0, self.plan.stages[s]
        for e in plan.events(s, tile, i):
            operand = e[1] if e[0] in (LOAD, SHARED) else None
            if e[0] == WAIT and plan.edges[e[1]]["consumer"] == s:
                operand = plan.edges[e[1]]["operand"]
            if e[0] == WARP:
                warp = e[1] if warp is not None else None
            elif e[0] >= GIVE or operand is not None and stage.operands[operand]["kind"] in EPILOGUE:
                warp = None
            yield e, warp

    def waited(self, node, i, until, by=None):
        """Slots that a slice has waited for in full: up to an event, its first store, its sums, or its end."""
        slots, over, left, stores = [], False, None, False
        for at, (e, warp) in enumerate(self.steps(node, i)):
            over = over or at == until
            if e[0] == WAIT and not over and self.posts.full(e) and by in (None, warp):
                slots.append((e[1], e[2]))
            if e[0] == GIVE:
                left = len(slots) if left is None else left
                over = over or until == "sums"
            if e[0] == STORE:
                stores = True
                over = over or until == "store"
        return slots[:left] if until == "done" and not stores and left is not None else slots

    def warp_at(self, node, i, event):
        """The warp that takes an event of a slice."""
        warps = [warp for _, warp in self.steps(node, i)]
        return warps[event]

    def behind(self, slots):
        """Tiles that have posted to slots that are full."""
        edges, posters = self.plan.edges, self.posts.posters
        return {(edges[e]["producer"], t) for e, slot in slots for t in posters[e].get(slot, [])}

    def settled(self, item):
        """Whether the plan says which worker has an item: a decode kernel shares tiles out on the device."""
        launch = self.plan.launch
        return launch["kind"] != "shares" or self.plan.stages[launch["sequence"][item][0]].parts

    def earlier(self, item, cta):
        """Tiles that one item finished before this one in its list, in that order."""
        plan = self.plan
        if not plan.static:
            return []
        w, at = plan.place[item]
        alone = [i for i in plan.launch["lists"][w][:at] if plan.launch["sequence"][i][5] in ("whole", "finish")]
        alone = [i for i in alone if self.settled(item) and self.settled(i)]
        return [n for n in (plan.cta_tile(i, cta) for i in alone) if plan.stages[n[0]].inside(n[1])]

    def cta(self, node):
        """The CTA of its cluster that computes a tile."""
        cr, cc = self.plan.launch["cluster"]
        return node[1][0] % cr * cc + node[1][1] % cc

    def direct(self, node):
        """Tiles that are known to be done when this one is, without those behind them."""
        plan = self.plan
        s, tile = node
        slots = {x for i in range(plan.count_of(s, tile)) for x in self.waited(node, i, "done")}
        known = self.behind(slots)
        if plan.static:
            for item in plan.unit(s, tile):
                if plan.launch["sequence"][item][5] != "give":
                    known |= set(self.earlier(item, self.cta(node)))
        return known

    def done(self, nodes):
        """A bit for each tile that is known to be done when these are."""
        bits = 0
        for root in nodes:
            stack = [(root, None)]
            while stack:
                node, rest = stack.pop()
                if rest is None:
                    if node in self.closures:
                        continue
                    self.closures[node] = 1 << self.plan.number(node)
                    rest = self.direct(node)
                    stack.append((node, rest))
                    stack.extend((n, None) for n in rest if n not in self.closures)
                else:
                    for n in rest:
                        self.closures[node] |= self.closures[n]
            bits |= self.closures[root]
        return bits

    def load(self, first, reader, i, event):
        """Whether a tile is known to be done at an event of a slice that loads from it."""
        plan = self.plan
        warp = self.warp_at(reader, i, event)
        slots, known = self.waited(reader, i, event, warp), set()
        items = plan.unit(*reader) if plan.one else []
        if plan.static and i < len(items):
            ordered = plan.contract["stores"] == "barrier" and plan.contract["post_releases"]
            if warp is None and ordered:
                known = set(self.earlier(items[i], self.cta(reader)))
                if first in known:
                    return True
            w, at = plan.place[items[i]]
            for before in plan.launch["lists"][w][:at]:
                if not (self.settled(before) and self.settled(items[i])):
                    continue
                node = plan.cta_tile(before, self.cta(reader))
                number = plan.unit(*node).index(before)
                slots = slots + self.waited(node, number, "sums", warp)
        return bool(self.done(known | self.behind(slots)) >> plan.number(first) & 1)

    def before_store(self, writer, wrote):
        """Tiles that are known to be done when a tile stores over what others wrote, or read."""
        plan = self.plan
        s, tile = writer
        count = range(plan.count_of(s, tile))
        stores = [i for i in count if any(e[0] == STORE for e in plan.events(s, tile, i))]
        slots, known, items = [], set(), plan.unit(s, tile) if plan.static else []
        for i in count:
            alone = not plan.one or stores == [i]
            slots += self.waited(writer, i, "store" if alone else "sums")
            if stores == [i] and i < len(items):
                earlier = self.earlier(items[i], self.cta(writer))
                if wrote and plan.contract["stores"] != "barrier":
                    sure = earlier[:-1] if plan.contract["deferred_post"] else earlier
                    last = max((at + 1 for at, n in enumerate(sure) if plan.announced(n)), default=0)
                    for loose in earlier[last:]:
                        for j in range(plan.count_of(*loose)):
                            slots += self.waited(loose, j, "done")
                    earlier = earlier[:last]
                known |= set(earlier)
        return known | self.behind(slots)
