"""Posts and waits: a wait is for all posts to its slot, and a load follows waits for every tile that it reads from."""
from functools import lru_cache

from .basics import LOAD, SHARED, WAIT, WARP, demand
from .reads import reads


class Posts:
    """For each edge the posts to each slot in a run, and the tiles that post to it."""

    def __init__(self, plan):
        self.totals, self.posters = [], []
        for e in plan.edges:
            producer, totals, posters = plan.stages[e["producer"]], {}, {}
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

    def full(self, wait):
        """Whether a wait is for all posts to its slot."""
        return wait[3] >= self.totals[wait[1]].get(wait[2], 0)


def waits(plan, posts):
    judged = set()
    for s, tile, i in plan.all_slices():
        for e in plan.events(s.number, tile, i):
            if e[0] == WAIT and (e[1], e[2], e[3]) not in judged:
                judged.add((e[1], e[2], e[3]))
                demand(e[2] < plan.edges[e[1]]["slots"], "a wait outside the slots of its edge")
                total = posts.totals[e[1]].get(e[2], 0)
                demand(e[3] == total, f"{s.name}{tile} waits for {e[3]} posts of {total}")


def cover(plan, posts, known):
    if not plan.semaphores:
        for e in plan.edges:
            in_order = plan.position[e["producer"]] < plan.position[e["consumer"]]
            demand(in_order, "a reader is launched before its writer")
        return
    posted = []
    for e in plan.edges:
        tiles = plan.stages[e["producer"]].tiles()
        posted.append({t: [slot for slot, amount in p if amount] for t, p in zip(tiles, e["posts"])})
    for s in plan.stages:
        edges = {}
        for n, e in enumerate(plan.edges):
            if e["consumer"] == s.number:
                edges.setdefault(e["operand"], []).append(n)
        if edges:
            cover_of_stage(plan, posts, known, posted, s, edges)


def cover_of_stage(plan, posts, known, posted, s, edges):
    """Judges the loads of a stage that has edges for these operands."""
    def writers(operand, areas):
        return [(edge, tile) for edge in edges[operand] for area in areas
                for tile in plan.stages[plan.edges[edge]["producer"]].writers(*area)]

    @lru_cache(maxsize=None)
    def met(operand, m, n, k):
        return writers(operand, reads(s, operand, (m, n), k))

    for tile in plan.extent(s.number):
        for i in range(plan.count_of(s.number, tile)):
            seen = set()
            for at, e in enumerate(plan.events(s.number, tile, i)):
                if e[0] == WAIT and posts.full(e):
                    seen.add((e[1], e[2]))
                elif e[0] == WARP:
                    seen = set()
                elif e[0] in (LOAD, SHARED) and e[1] in edges:
                    if e[0] == LOAD:
                        met_by_load = met(e[1], *coordinates(s, e[1], tile), e[2])
                    else:
                        met_by_load = writers(e[1], [((e[3], e[4]), (e[5], e[6]))])
                    for edge, writer in met_by_load:
                        if not any((edge, slot) in seen for slot in posted[edge][writer]):
                            node = (plan.edges[edge]["producer"], writer)
                            first = f"{plan.stages[node[0]].name}{writer}"
                            demand(known.load(node, (s.number, tile), i, at),
                                   f"{s.name}{tile} may read before {first} has written")


def coordinates(s, operand, tile):
    """The coordinates that a read can depend on; others are 0, so that it is looked up once."""
    kind, op = s.operands[operand]["kind"], s.op["kind"]
    if op in ("gemm", "gated_gemm", "conv2d") and not s.parts:
        return (tile[0] if kind in ("a", "residual") else 0, tile[1] if kind != "a" else 0)
    if op == "attention" and kind != "query" and s.op["sequences"] == 1:
        return 0, tile[1]
    return tile
