"""What tiles read: the areas of each operand's tensor, from the definitions of the operations."""
from .basics import ceil, clip, demand


def reads(stage, operand, tile, k):
    """Areas of an operand's tensor that a tile reads at a k-block."""
    read = stage.operands[operand]
    tensor = stage.tensors[read["tensor"]]
    if not read.get("view"):
        return areas_in_view(stage, read, tensor, tile, k)
    rows, cols = read["view"]
    whole = tensor["cols"]
    same_size = rows * cols == tensor["rows"] * whole
    demand(same_size and max(cols, whole) % min(cols, whole) == 0, "a view of another size")
    demand(read["kind"] in ("a", "residual", "query", "key", "value"), f"{stage.name}: a view of {read['kind']}")
    found = []
    for r, c in areas_in_view(stage, read, {"rows": rows, "cols": cols}, tile, k):
        if r[0] < r[1] and c[0] < c[1]:
            # From the first element to the last: parts of the first row and of the last, and the rows between.
            top, left = divmod(r[0] * cols + c[0], whole)
            end, right = divmod((r[1] - 1) * cols + c[1] - 1, whole)
            if top == end:
                found.append(((top, top + 1), (left, right + 1)))
            else:
                found += [((top, top + 1), (left, whole)), ((top + 1, end), (0, whole))]
                found.append(((end, end + 1), (0, right + 1)))
    return found


def areas_in_view(stage, read, tensor, tile, k):
    """The same in the rows and columns under which the stage reads the tensor."""
    kind = read["kind"]
    op, (rows, cols), depth = stage.op["kind"], stage.writes(tile), stage.mma[2]
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
        return window(stage, rows, (0, tensor["cols"]))
    if op in ("attention", "attend"):
        return heads(stage, kind, tensor, tile, k)
    if kind == "bias":
        return [((0, tensor["rows"]), cols)]
    if kind == "residual":
        return [(rows, cols)]
    if stage.op.get("window"):
        block, tap = divmod(k, stage.op["filter"][0] * stage.op["filter"][1])
        first, end = clip(block * 64, 64, stage.op["channels"])
        if kind == "b":
            return [((tap * stage.op["channels"] + first, tap * stage.op["channels"] + end), cols)]
        return window(stage, rows, (first, end))
    if kind in ("b", "up"):
        return [(clip(k * depth, depth, tensor["rows"]), cols)]
    if op == "conv2d":
        return pixels(stage, rows, clip(k * depth, depth, stage.most * depth))
    return [(rows, clip(k * depth, depth, tensor["cols"]))]


def heads(stage, kind, tensor, tile, k):
    """Rows and columns of queries, keys or values: one token and the heads of a group, or a step of one head."""
    depth, (query, kv, d) = stage.mma[2], stage.op["heads"]
    group = query // kv
    if stage.op["kind"] == "attend":
        first, count = {"query": (tile[1] * group, group), "key": (query + tile[1], 1),
                        "value": (query + kv + tile[1], 1)}[kind]
        return [((tile[0], tile[0] + 1), (first * d, (first + count) * d))]
    head = {"query": tile[1], "key": query + tile[1] // group, "value": query + kv + tile[1] // group}[kind]
    own = clip(tile[0] * stage.mma[0], stage.mma[0], tensor["rows"])
    if kind != "query":
        tokens = stage.op["tokens"]
        first, (begin, end) = tile[0] * stage.mma[0] // tokens * tokens, clip(k * depth, depth, tokens)
        own = first + begin, first + end
    return [(own, (head * d, (head + 1) * d))]


def met_by(op, axis, place, tap):
    """The row or the column of the input that a tap meets at a place of the output."""
    return place * op["stride"][axis] + tap * op["dilation"][axis] - op["padding"][axis]


def window(stage, out, channels):
    """All rows of each image, from the first that a tap of an output pixel meets to the last."""
    o, areas = stage.op, []
    (ih, iw), (oh, ow) = o["input"], o["output"]
    columns = [met_by(o, 1, q, s) for q in range(ow) for s in range(o["filter"][1])]
    lines = range(out[0] // ow, ceil(out[1], ow)) if any(0 <= w < iw for w in columns) else ()
    met = {}
    for line in lines:
        for r in range(o["filter"][0]):
            h = met_by(o, 0, line % oh, r)
            if 0 <= h < ih:
                met.setdefault(line // oh, []).append(h)
    for image, rows in sorted(met.items()):
        areas.append((((image * ih + min(rows)) * iw, (image * ih + max(rows) + 1) * iw), channels))
    return areas


def pixels(stage, out, ks):
    """Pixels and channels under output pixels, for elements of the reduction: channel by channel, tap by tap."""
    o, areas = stage.op, []
    (ih, iw), (oh, ow), (fr, fs) = o["input"], o["output"], o["filter"]
    at, end = ks[0], min(ks[1], fr * fs * o["channels"])
    while at < end:
        tap, c = divmod(at, o["channels"])
        stop = min(end, at - c + o["channels"])
        r, s = divmod(tap, fs)
        for pixel in range(*out):
            rest, q = divmod(pixel, ow)
            image, p = divmod(rest, oh)
            h, w = met_by(o, 0, p, r), met_by(o, 1, q, s)
            if 0 <= h < ih and 0 <= w < iw:
                row = (image * ih + h) * iw + w
                if areas and areas[-1][1] == (c, c + stop - at) and areas[-1][0][1] == row:
                    areas[-1] = ((areas[-1][0][0], row + 1), areas[-1][1])
                else:
                    areas.append(((row, row + 1), (c, c + stop - at)))
        at = stop
    return areas
