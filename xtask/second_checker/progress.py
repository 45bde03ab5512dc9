"""Progress: every wait ends, from how a launch starts its CTAs, and from the order of the items that is shown."""
from .basics import AWAIT, GIVE, WAIT, NotCovered, Refused, demand


def progress(plan):
    if plan.how == "serial":
        demand(plan.device["sms"] > 0, "no SM")
        return
    if plan.how in ("streams", "programmatic", "host"):
        progress_of_stages(plan)
        return
    if not plan.one:
        raise NotCovered("kernels without a start guarantee")
    demand(plan.launch["resident"] > 0, "no worker is resident")
    if plan.static and len(plan.launch["lists"]) > plan.launch["resident"]:
        raise NotCovered("more workers than are resident")
    demand(plan.static or not plan.contract["deferred_post"] or not plan.edges, "a post held back by who draws")
    demand(plan.order is not None, "no order of the items is shown")
    Run(plan).in_order()


def progress_of_stages(plan):
    """Stages that are launched one after another: each waits for those before it only."""
    for e in plan.edges:
        if plan.position[e["producer"]] > plan.position[e["consumer"]]:
            demand(plan.how != "host", "a consumer stands before its producer in the list")
            raise NotCovered("a consumer that is launched before its producer")
    for s, tile, i in plan.all_slices():
        for e in plan.events(s.number, tile, i):
            if e[0] == WAIT and plan.edges[e[1]]["consumer"] != s.number:
                raise NotCovered("waits that are no edge of their stage")
    if plan.how == "programmatic" and plan.device["arch"] < 90:
        raise Refused("no programmatic launch on this device")
    if plan.how != "host":
        for k in plan.launch["stages"]:
            demand(1 <= k["ctas_per_sm"] <= plan.device["ctas_per_sm"], "no CTA fits, or too many")
        demand(plan.device["sms"] > 0, "no SM")


class Run:
    """A run of the items in the order shown: posts, flags of slabs, and the head of each list so far."""

    def __init__(self, plan):
        self.plan, self.seq, self.lists = plan, plan.launch["sequence"], plan.launch["lists"]
        everything = list(range(len(self.seq)))
        demand(sorted(plan.order) == everything, "an order that is not of all items")
        demand(plan.static or plan.order == everything, "items are drawn in another order")
        cr, cc = plan.launch["cluster"]
        self.ctas = range(cr * cc)
        self.count, self.flags, self.heads = [{} for _ in plan.edges], set(), [0] * len(self.lists)
        # Slices that a tile still lacks, and for each list the item whose posts are held back.
        self.left, self.held = {k: len(v) for k, v in plan.of_tile.items()}, {}
        self.needs = [self.needs_of_item(i) for i in everything]
        self.givers = {}
        for i, (_, gives, _) in enumerate(self.needs):
            for flag in gives:
                demand(flag not in self.givers, "a slab is written twice")
                self.givers[flag] = i

    def needs_of_item(self, item):
        """What an item waits for before it leaves sums, the flags that it sets then, and what it waits for behind."""
        s, m, n = self.seq[item][:3]
        before, gives, after = [], [], []
        for cta in self.ctas:
            node, given = self.plan.cta_tile(item, cta), False
            for e in self.plan.events(*node, self.plan.of_tile[(s, m, n)].index(item)):
                if e[0] == GIVE:
                    given = True
                    gives.append((e[1], cta))
                elif e[0] in (WAIT, AWAIT):
                    (after if given else before).append(tuple(e[:4]) if e[0] == WAIT else (AWAIT, e[1], cta))
        return before, gives, after

    def there(self, need):
        if need[0] == WAIT:
            return self.count[need[1]].get(need[2], 0) >= need[3]
        if need[1:] in self.flags:
            return True
        giver = self.givers.get(need[1:])
        if giver is None or not self.plan.static:
            return False
        # Its sums are there when it stands at the head of its list with all that it needs before it leaves them.
        w, at = self.plan.place[giver]
        return self.heads[w] == at and all(n[0] == WAIT and self.there(n) for n in self.needs[giver][0])

    def post(self, item):
        s, m, n = self.seq[item][:3]
        self.left[(s, m, n)] -= 1
        if self.left[(s, m, n)]:
            return
        for cta in self.ctas:
            node = self.plan.cta_tile(item, cta)
            if self.plan.stages[s].inside(node[1]):
                for count, edge in zip(self.count, self.plan.edges):
                    if edge["producer"] == s:
                        for slot, amount in edge["posts"][self.plan.index(node)]:
                            count[slot] = count.get(slot, 0) + amount

    def in_order(self):
        """Each item comes when all that it waits for is there, and behind those before it in its list."""
        for item in self.plan.order:
            w = 0
            if self.plan.static:
                w, at = self.plan.place[item]
                demand(self.heads[w] == at, "an item before one that stands before it in its list")
            before, gives, after = self.needs[item]
            demand(all(map(self.there, before)), f"item {item} waits for what comes later")
            self.flags.update(gives)
            demand(all(map(self.there, after)), f"item {item} waits for what comes later")
            self.heads[w] += 1
            if w in self.held:
                self.post(self.held.pop(w))
            if self.plan.contract["deferred_post"] and self.seq[item][5] != "give":
                self.held[w] = item
                if self.plan.static and self.heads[w] == len(self.lists[w]):
                    self.post(self.held.pop(w))
            else:
                self.post(item)
