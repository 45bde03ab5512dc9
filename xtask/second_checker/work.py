"""Loads, sums and stores: each k-block of a tile is summed up once, from operands that were loaded, and each tile is
stored once."""
from .basics import ADD, AWAIT, EPILOGUE, GIVE, LOAD, SHARED, STORE, ceil, demand
from .reads import reads


def find_items(plan):
    """The items of each unit of tiles: together they sum up each k-block once."""
    if not plan.one:
        return
    seq = plan.launch["sequence"]
    for i, item in enumerate(seq):
        plan.of_tile.setdefault((item[0], item[1], item[2]), []).append(i)
    cr, cc = plan.launch["cluster"]
    for s in plan.stages:
        for m in range(ceil(s.grid[0], cr)):
            for n in range(ceil(s.grid[1], cc)):
                parts = sorted(plan.of_tile.get((s.number, m, n), []), key=lambda i: seq[i][3])
                plan.of_tile[(s.number, m, n)] = parts
                done = 0
                for i in parts:
                    demand(seq[i][3] == done < seq[i][4], f"{s.name}({m}, {n}): k-blocks twice, or left out")
                    done = seq[i][4]
                demand(done == s.k_blocks(m * cr), f"{s.name}({m}, {n}): k-blocks left out")
    held = sorted(i for items in plan.launch["lists"] for i in items)
    demand(not plan.static or held == list(range(len(seq))), "a list does not hold each item once")


def work(plan):
    for s in plan.stages:
        produced = {e["operand"] for e in plan.edges if e["consumer"] == s.number}
        for tile in s.tiles():
            if s.writes(tile)[1][0] == s.writes(tile)[1][1]:
                continue
            stores, name = [], f"{s.name}{tile}"
            should = len(plan.unit(s.number, tile)) if plan.one else s.split
            for i in range(max(should, plan.count_of(s.number, tile))):
                own = loads_and_stores(plan, s, tile, i, produced)
                if plan.one:
                    stores += own
                elif len(plan.sums(s.number, tile, i)[0]) or own:
                    stored_once(own, name)
            if plan.one:
                stored_once(stores, name)
    if plan.one and plan.launch["cluster"] != [1, 1]:
        loads_of_clusters(plan)


def loads_and_stores(plan, s, tile, i, produced):
    """The stores of a slice, which loads in time all that it needs of produced operands."""
    name, shares = f"{s.name}{tile}", plan.launch["kind"] == "shares"
    ks, finishes = plan.sums(s.number, tile, i)
    own, got, left, stored = [], {}, False, False
    for e in plan.events(s.number, tile, i):
        left, stored = left or e[0] == GIVE, stored or e[0] == STORE
        late = e[0] in (LOAD, SHARED) and stored and e[1] in produced
        demand(not late or not shares, f"{name} loads after its store")
        if e[0] in (LOAD, SHARED) and not stored:
            if not left or s.operands[e[1]]["kind"] in EPILOGUE:
                got.setdefault(e[1], []).append(e[2])
        if e[0] == STORE:
            own.append(tuple(e[1:]))
    for o in produced:
        kind, has = s.operands[o]["kind"], got.get(o, [])
        if kind in EPILOGUE:
            demand(not finishes or 0 in has, f"{name} does not load its {kind}")
            demand(len(has) < 2 or not shares, f"{name} loads its {kind} twice")
        elif kind == "query" and not shares:
            demand(not len(ks) or any(k in ks for k in has), f"{name} does not load its queries")
        elif shares:
            demand(sorted(has) == list(ks), f"{name} does not load each k-block once")
        else:
            demand(set(ks) <= set(has), f"{name} does not load each k-block")
    return own


def stored_once(stores, name):
    """Stores of units (first, end, count) that make up a tile."""
    demand(stores, f"{name} is never stored")
    done, count = 0, stores[0][2]
    for begin, end, units in sorted(stores):
        demand(begin == done and units == count, f"{name}: a unit is stored twice, or by nobody")
        done = end
    demand(done == count > 0, f"{name}: units are stored by nobody")


def loads_of_clusters(plan):
    """What a CTA of a cluster does not load itself, the others load for it."""
    cr, cc = plan.launch["cluster"]
    for s in plan.stages:
        produced = {e["operand"] for e in plan.edges if e["consumer"] == s.number}
        loaded = [o for o in produced if s.operands[o]["kind"] not in EPILOGUE]
        for m in range(0, s.grid[0], cr):
            for n in range(0, s.grid[1], cc):
                mates = [(m + i, n + j) for i in range(cr) for j in range(cc)]
                for i in range(len(plan.unit(s.number, (m, n)))):
                    boxes, own = {}, set()
                    for mate in mates:
                        for e in plan.events(s.number, mate, i):
                            if e[0] == SHARED:
                                boxes.setdefault((e[1], e[2]), []).append(e)
                            if e[0] == LOAD:
                                own.add((mate, e[1], e[2]))
                    ks, _ = plan.sums(s.number, (m, n), i)
                    wanted = [(mate, o, k) for mate in mates if s.inside(mate) for o in loaded for k in ks]
                    for mate, o, k in wanted:
                        if (mate, o, k) in own:
                            continue
                        for rows, cols in reads(s, o, mate, k):
                            demand(covers(rows, cols, boxes.get((o, k), [])),
                                   f"{s.name}{mate}: its cluster does not load all of k-block {k}")


def covers(rows, cols, boxes):
    def along(whole, parts):
        at = whole[0]
        for begin, end in sorted(parts):
            at = max(at, end) if begin <= at else at
        return at >= whole[1]
    tall = [(e[5], e[6]) for e in boxes if e[3] <= rows[0] and e[4] >= rows[1]]
    wide = [(e[3], e[4]) for e in boxes if e[5] <= cols[0] and e[6] >= cols[1]]
    return along(cols, tall) or along(rows, wide)


def slabs(plan):
    """Sums that slices leave for the one that finishes their tile: it adds each of them, once, behind its flag."""
    if not plan.one:
        return
    for s in plan.stages:
        for tile in s.tiles():
            count = plan.count_of(s.number, tile)
            if count < 2:
                continue
            uses = [uses_of_slabs(plan.events(s.number, tile, i)) for i in range(count)]
            for i, (_, adds, stores) in enumerate(uses):
                others = set().union(*[u[0] for j, u in enumerate(uses) if j != i])
                demand(set(adds) <= others, "a slab of another tile, or its own, is added")
                if stores:
                    for j, (gives, _, _) in enumerate(uses):
                        demand(j == i or gives and gives <= set(adds), "a tile without the sums of one of its parts")


def uses_of_slabs(events):
    """The slabs that a slice leaves, those that it adds before it stores, and whether it stores."""
    gives, seen, adds, stores = set(), set(), [], False
    for e in events:
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
    return gives, adds, stores
