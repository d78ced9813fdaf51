"""Widths with which models of different parts have about as many parameters."""

from collections.abc import Callable

STEP = 4  # attention has four heads


def equal_width(count: Callable[[int], int], wanted: int, start: int) -> int:
    """The multiple of `STEP` for which ``count`` (parameters of a width, growing) is nearest to ``wanted``."""
    below = start // STEP * STEP
    while count(below) > wanted and below > STEP:
        below -= STEP
    while count(below + STEP) <= wanted:
        below += STEP
    return min((below, below + STEP), key=lambda width: abs(count(width) - wanted))
