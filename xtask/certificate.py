#!/usr/bin/env python3
"""Checks certificates that `cusync check --certificate FILE` writes. It shares nothing with the compiler: in
`second_checker` beside this file, what operations read, which tiles write it, and what a wait guarantees is written
down once more, from their definitions.

    python3 xtask/certificate.py FILE...

prints a line for each file: `accepted`, `refused: why`, or `not covered: why`. Status 0 if all are accepted, 1 if one
is refused, 2 if one is not covered. docs/trust.md says what is in a certificate, and what it takes on trust."""
import json
import sys

from second_checker.basics import NotCovered, Refused
from second_checker.graph import caches, graph, sums_over_devices
from second_checker.known import Known
from second_checker.memory import fences, memory
from second_checker.plan import Certificate
from second_checker.progress import progress
from second_checker.semaphores import Posts, cover, waits
from second_checker.work import find_items, slabs, work


def check(plan):
    graph(plan)
    caches(plan)
    sums_over_devices(plan)
    find_items(plan)
    posts = Posts(plan)
    known = Known(plan, posts)
    work(plan)
    if plan.semaphores:
        waits(plan, posts)
    cover(plan, posts, known)
    slabs(plan)
    memory(plan, known)
    fences(plan)
    progress(plan)


def judge(raw):
    try:
        plan = Certificate(raw)
        check(plan)
    except Refused as why:
        return f"refused: {why}"
    except NotCovered as why:
        return f"not covered: {why}"
    return "accepted" + "".join(f", given that {premise}" for premise in plan.premises)


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
