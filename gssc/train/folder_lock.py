"""One process per run folder: two that train into one would mix their epochs and remove each other's files."""

import os
from pathlib import Path

from gssc.checks import fail

_HELD: dict[Path, int] = {}


def hold(folder: Path) -> None:
    """Claim an existing folder for this process until `release`, or until it ends however it ends.

    The lock is the operating system's, on the folder itself, and leaves no file behind. Where there are no such locks
    (Windows, some network drives) nothing is claimed.
    """
    place = folder.resolve()
    if place in _HELD:
        return
    try:
        import fcntl
    except ImportError:
        return
    handle = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        fail("out", "a folder that no other process is training in", str(folder))
    except OSError:
        os.close(handle)
        return
    _HELD[place] = handle


def release(folder: Path) -> None:
    """Give a folder back."""
    handle = _HELD.pop(folder.resolve(), None)
    if handle is not None:
        os.close(handle)
