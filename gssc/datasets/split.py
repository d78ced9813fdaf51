"""Train, validation and test parts of a dataset that comes without: at random, or by the scaffolds of molecules."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch

from gssc.checks import fail
from gssc.datasets.flat import FlatGraphs, select

SplitName = Literal["random", "scaffold"]
# Shares of training and validation; the rest is for the test.
TRAIN, VALIDATION = 0.8, 0.1
NAMES = ("train", "val", "test")


def random_split(count: int, seed: int = 0, what: str = "graphs") -> dict[str, np.ndarray]:
    """80 / 10 / 10 percent of 0..count-1, none empty, each in ascending order; the same seed gives the same split."""
    _check(count, what)
    order = np.random.default_rng(seed).permutation(count)
    test = max(1, round(count * (1.0 - TRAIN - VALIDATION)))
    validation = max(1, round(count * VALIDATION))
    cuts = [count - validation - test, count - test]
    return {name: np.sort(part) for name, part in zip(NAMES, np.split(order, cuts), strict=True)}


def scaffold_split(scaffolds: Sequence[str]) -> dict[str, np.ndarray]:
    """Molecules with the same scaffold stay together; common scaffolds train, rare ones validate and test.

    Groups from the largest to the smallest (equally large ones in order of appearance) go to training while they fit
    into 80 percent, then to validation while they fit into 10, and else to the test: no seed is involved.
    """
    count = len(scaffolds)
    _check(count, "molecules")
    groups: dict[str, list[int]] = {}
    for number, scaffold in enumerate(scaffolds):
        groups.setdefault(scaffold, []).append(number)
    if len(groups) < 3:
        fail("split", "three or more scaffolds for a scaffold split", f"{len(groups)}; a random split would do")
    ordered = sorted(groups.values(), key=lambda members: (-len(members), members[0]))
    # The two smallest groups are kept back so that no part is empty, however large the first ones are.
    parts: dict[str, list[int]] = {"train": list(ordered[0]), "val": [], "test": []}
    for members in ordered[1:-2]:
        if len(parts["train"]) + len(members) <= TRAIN * count:
            parts["train"] += members
        elif len(parts["val"]) + len(members) <= VALIDATION * count:
            parts["val"] += members
        else:
            parts["test"] += members
    for members in ordered[-2:]:
        smaller = min(("val", "test"), key=lambda name: (len(parts[name]), name != "val"))
        parts[smaller] += members
    return {name: np.sort(np.array(members, dtype=np.int64)) for name, members in parts.items()}


def split_graphs(flat: FlatGraphs, parts: dict[str, np.ndarray], level: str) -> dict[str, FlatGraphs]:
    """The graphs of each part, given their numbers; ``level`` is that of the targets."""
    return {name: select(flat, torch.from_numpy(members), level) for name, members in parts.items()}


def _check(count: int, what: str) -> None:
    if count < 3:
        fail("split", f"three or more {what} for training, validation and test", count)
