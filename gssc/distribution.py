"""The distribution gssc-pyg, whose package is ``gssc``, and its namesake: another project called gssc on PyPI."""

import warnings
from functools import cache
from importlib import metadata

NAME = "gssc-pyg"
VERSION = "0.1.0"  # pyproject.toml reads it here


@cache  # said once
def warn_of_namesake() -> None:
    """Say in one line if another distribution has a package ``gssc`` too: it lies in the same folder."""
    try:
        other = metadata.distribution("gssc")
        # A checkout that was installed under this name, before it had its own, has no modules there.
        there = any(file.match("gssc/*.py") for file in other.files or ())
        found = f"the distribution gssc {other.version} is installed, another project whose package is called gssc too"
    except Exception:  # nothing of this name, or what it says of itself cannot be read
        return
    if there:
        remedy = f"use environments of their own, or `pip uninstall gssc` and install {NAME} again"
        warnings.warn(f"{found}; they overwrite each other: {remedy}", stacklevel=3)
