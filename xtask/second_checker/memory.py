"""Memory that tensors share, and the order of memory accesses that kernels promise."""
from .basics import demand
from .reads import reads


def memory(plan, known):
    """Nothing is overwritten before all who use it are done."""
    c = plan.contract
    if plan.edges or plan.one and plan.launch["slabs"]:
        ends = c["full_run_boundary"] and (not c["overlap"] or c["dependency_wait"])
        demand(ends, "a run begins to write before the one before it has ended")
    age = [-1 if tensor["producer"] is None else tensor["producer"] for tensor in plan.tensors]
    for t, tensor in enumerate(plan.tensors):
        writer, root = tensor["producer"], plan.root(t)
        if writer is None:
            continue
        read = any(o["tensor"] == root for s in plan.stages for o in s.operands)
        demand(plan.tensors[root]["producer"] is not None or root == t or not read, "an input is overwritten")
        for old in range(len(plan.tensors)):
            if old != t and plan.root(old) == root and age[old] < age[t]:
                overwrites(plan, known, writer, t, old)


def overwrites(plan, known, writer, new, old):
    """Judges a stage that writes a tensor into the memory of an older one."""
    a, b, w = plan.tensors[new], plan.tensors[old], plan.stages[writer]
    demand((a["rows"], a["cols"]) == (b["rows"], b["cols"]), "an alias of another shape")
    met = {t: set() for t in w.tiles()}
    for s in plan.stages:
        for o in [o for o in range(len(s.operands)) if s.operands[o]["tensor"] == old] + [None] * (s.out == old):
            for tile in s.tiles():
                areas = [s.writes(tile)] if o is None else [
                    area for k in range(max(s.k_blocks(tile[0]), 1)) for area in reads(s, o, tile, k)]
                for area in areas:
                    for t in w.writers(*area):
                        met[t].add((s.number, tile, o is None))
    for tile, users in met.items():
        for wrote in (False, True):
            done = None
            for s, other, wrote_it in users:
                if wrote_it != wrote or (s, other) == (writer, tile):
                    continue
                if not plan.semaphores:
                    demand(plan.position[s] < plan.position[writer], f"{a['name']} overwrites what is still read")
                    continue
                if done is None:
                    done = known.done(known.before_store((writer, tile), wrote))
                demand(done >> plan.number((s, other)) & 1,
                       f"{w.name}{tile} may overwrite what {plan.stages[s].name}{other} uses")


def fences(plan):
    """The kernels' contract orders accesses as the plan needs."""
    c = plan.contract
    slots = any(e["slots"] for e in plan.edges)
    slabs = plan.launch["slabs"] if plan.one else 0
    demand(not plan.semaphores or not slots or c["epoch"] == "device" or not c["graph_replay"], "an epoch baked in")
    demand(not slabs or c["slabs"]["flag_is_epoch"], "flags that nobody clears")
    if c["plain_store_posts"] and plan.semaphores:
        for e in plan.edges:
            counts = {}
            for posts in e["posts"]:
                for slot, _ in posts:
                    counts[slot] = counts.get(slot, 0) + 1
            demand(max(counts.values(), default=0) <= 1, "plain stores to a slot of several posts")
    if plan.semaphores and plan.how != "host":
        if slots:
            demand(c["stores"] != "bulk-read", "a post before its bulk store is complete")
            demand(c["post_releases"] and c["wait_acquires"], "a post or a look without its order")
            demand(not c["bulk_loads"] or c["proxy_fence"], "bulk copies without a proxy fence")
        if slabs:
            for promise in ("barrier", "flag_releases", "flag_acquires"):
                demand(c["slabs"][promise], f"slabs without {promise}")
