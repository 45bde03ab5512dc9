"""Verdicts, kinds of events, and integer arithmetic that all parts of the checker use."""

WAIT, LOAD, SHARED, WARP, GIVE, AWAIT, ADD, STORE = range(8)
# Operands that a tile reads after its reduction.
EPILOGUE = {"bias", "residual", "gain"}


class Refused(Exception):
    """The plan is wrong, or its certificate does not show that it is right."""


class NotCovered(Exception):
    """The plan lies outside what this checker can judge."""


def demand(holds, why):
    if not holds:
        raise Refused(why)


def clip(first, count, length):
    begin, end = min(max(first, 0), length), min(max(first + count, 0), length)
    return begin, max(begin, end)


def ceil(a, b):
    return -(-a // b)
