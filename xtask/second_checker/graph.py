"""Tensors and edges, what runs append to caches, and sums over devices."""
from .basics import demand


def graph(plan):
    """Each tensor has one writer, each read of a stage's tensor an edge, and each stage one launch or its items."""
    for t, tensor in enumerate(plan.tensors):
        p = tensor["producer"]
        demand(p is None or plan.stages[p].out == t, f"{tensor['name']} is not what its producer writes")
    for s in plan.stages:
        demand(plan.tensors[s.out]["producer"] == s.number, f"{s.name} writes another's tensor")
        for o, operand in enumerate(s.operands):
            p = plan.tensors[operand["tensor"]]["producer"]
            edge = any((e["producer"], e["consumer"], e["operand"]) == (p, s.number, o) for e in plan.edges)
            demand(p is None or edge, f"{s.name} reads what {p} writes, and no edge says so")
    for e in plan.edges:
        demand(e["producer"] < e["consumer"], "a consumer stands before its producer")
        out, read = plan.stages[e["producer"]], plan.stages[e["consumer"]].operands[e["operand"]]
        tensor = plan.tensors[read["tensor"]]
        shared = plan.one and plan.launch["cluster"][1] > 1 and read["kind"] == "a"
        demand(not (shared and read.get("view")), "a cluster loads slices of a tensor under another shape")
        demand((out.rows, out.cols) == (tensor["rows"], tensor["cols"]), "an edge of another shape")
    if not plan.one:
        launched = [s["stage"] for s in plan.launch["stages"]]
        demand(sorted(launched) == list(range(len(plan.stages))), "a stage is not launched once")
        for s in plan.launch["stages"]:
            tiles = sorted(map(tuple, s["order"]))
            demand(tiles == plan.stages[s["stage"]].tiles(), "an order that does not visit each tile once")


def caches(plan):
    """What runs append to: one stage alone has it, and a run finds what those before it have left."""
    c, some = plan.contract["cache"], False
    if any(o["kind"] == "pages" for s in plan.stages for o in s.operands):
        plan.premises.append("a page to which a run appends a token of one sequence is no other sequence's")
    for t, tensor in enumerate(plan.tensors):
        uses = [(s.number, o["kind"]) for s in plan.stages for o in s.operands if o["tensor"] == t]
        if not any(kind.startswith("cached_") for _, kind in uses):
            continue
        some = True
        demand(len(uses) == 1, f"{tensor['name']} is appended to, and read by others")
        demand(tensor["producer"] is None, f"{tensor['name']} is appended to, and written by a stage")
        shared = tensor["alias"] is not None or any(u["alias"] == t for u in plan.tensors)
        demand(not shared, f"{tensor['name']} is appended to, and its memory is another's too")
    if some:
        overlaps = plan.contract["overlap"] and not (c["reads_wait"] and plan.contract["dependency_wait"])
        demand(c["new_from_run"], "the new token is read from the cache")
        demand(c["lengths_each_run"] or not plan.contract["graph_replay"], "lengths are baked in")
        demand(not overlaps and plan.contract["full_run_boundary"], "a cache is read before the run before has ended")
        shares = plan.launch["kind"] == "shares"
        demand(not shares or c["parts_recounted"] and c["parts_ordered"], "parts that nobody counts")


def sums_over_devices(plan):
    """Runs the exchanges of every tile on all devices: each adds every device's sums once, in the same order."""
    for s in plan.stages:
        if s.devices == 1:
            continue
        c = plan.contract["exchange"]
        # A device that has received a run's sums of another may be sent the next run's before it has read these.
        demand(c["sets"] >= 2, f"{s.name}: a device ahead overwrites sums that another still reads")
        demand(c["numbered"], f"{s.name}: sums of another device that may be those of an earlier run")
        demand(len(s.exchanges) == s.grid[0] * s.grid[1], f"{s.name}: tiles without exchanges")
        for number, devices in enumerate(s.exchanges):
            rows, cols = s.writes(divmod(number, s.grid[1]))
            if rows[0] < rows[1] and cols[0] < cols[1]:
                exchange(s, devices)


def exchange(s, devices):
    """Runs the exchanges of one tile."""
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
        once = sorted(added[device]) == list(range(s.devices))
        demand(once, f"{s.name}: not the sums of every device, once")
        demand(added[device] == added[0], f"{s.name}: devices that add in different orders")
