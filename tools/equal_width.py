"""Widths with which models of different parts have about as many parameters."""

from collections.abc import Callable

from gssc.checks import fail

STEP = 4  # attention has four heads


def equal_width(count: Callable[[int], int], wanted: int, most: int = 1024) -> int:
    """The multiple of `STEP` for which ``count`` (parameters of a width, growing) is nearest to ``wanted``."""
    below, above = STEP, STEP * 2
    while count(above) < wanted:
        below, above = above, above * 2
        if above > most:
            fail("wanted", f"a number of parameters that a width up to {most} has", wanted)
    while above - below > STEP:
        middle = (below + above) // (2 * STEP) * STEP
        below, above = (middle, above) if count(middle) < wanted else (below, middle)
    return min((below, above), key=lambda width: abs(count(width) - wanted))
