"""Errors meant for people are one line."""

import sys
from collections.abc import Callable


def in_one_line(command: Callable[[], object]) -> None:
    """Run a command; what is wrong with its arguments or files is said without a traceback."""
    try:
        command()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {' '.join(str(error).splitlines())}")
