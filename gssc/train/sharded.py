"""Training on shards: every step is a step on the whole graph, of which each process has its part."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gssc.checks import fail
from gssc.config import Recipe, parse_recipe
from gssc.shards import Shard, ShardedDataset, with_spectrum
from gssc.shards.shard import NARROW
from gssc.shards.spectrum import walk_probabilities
from gssc.train.build import transforms
from gssc.train.processes import Processes
from gssc.train.store import Batch


class ShardStore:
    """One split of a sharded graph, in place of a `GraphStore`; every batch is the whole shard.

    ``y`` are those of the split on all processes, in the order of the graph; `complete` makes such of outputs.
    """

    num_graphs, negatives, mask = 1, None, None

    def __init__(self, shard: Shard, split: str) -> None:
        self.device, self._halo = shard.device, shard.halo
        own, mask = (shard.here(name) for name in ("y", f"{split}_mask"))
        self._whole = Batch(shard.inputs, own, mask, torch.arange(len(own)))
        self._order = torch.empty(0, dtype=torch.int64)
        self._order = torch.argsort(self.complete(shard.here("nodes")))
        targets = self.complete(own)
        self.y = torch.cat([targets, targets.new_zeros(1, *targets.shape[1:])])

    def batch(self, graphs: Tensor) -> Batch:
        """The whole shard, whichever graphs are asked for."""
        return self._whole

    def complete(self, rows: Tensor) -> Tensor:
        """Rows of own nodes as those of the split on all processes, in the order of the graph; a collective."""
        rows = self._halo.gather(rows[self._whole.mask])
        return rows[self._order] if self._order.numel() else rows


def shard_stores(dataset: ShardedDataset, recipe: Recipe, device: torch.device, processes: Processes) -> dict[str, Any]:
    """A `ShardStore` for every split; spectra that shards lack are solved by all processes together."""
    if dataset.ranks != processes.world:
        fail("--shards", f"a process for each (torchrun --nproc-per-node {dataset.ranks})", processes.world)
    shard, (laplacian, walks) = dataset.shard(processes.rank, device), transforms(recipe.spectrum, recipe.model)
    shard = replace(shard, index=torch.int32) if recipe.model.local in NARROW else shard
    if laplacian is not None and "eigvecs" not in shard.tensors:
        shard = with_spectrum(shard, laplacian)
    if walks is not None and "rwse" not in shard.tensors:
        shard = replace(shard, tensors={**shard.tensors, "rwse": walk_probabilities(shard, walks.steps)})
    return {split: ShardStore(shard, split) for split in ("train", "val", "test")}


def sharded_recipe(dataset: ShardedDataset, base: Recipe | None, overrides: Sequence[str]) -> Recipe:
    """The recipe that shards were written for, or another with their data and spectrum, and changes to it."""
    written = parse_recipe(dataset.manifest["recipe"])
    recipe = written if base is None else replace(base, data=written.data, spectrum=written.spectrum)
    recipe = recipe.override(overrides)
    if (recipe.data, recipe.spectrum) != (written.data, written.spectrum):
        fail("override", "no change of data or spectrum, which lie in the shards", " ".join(overrides))
    if recipe.model.local == "pna" or recipe.train.teachers:
        fail("recipe", "one without model.local=pna and train.teachers, for shards", recipe.name)
    return recipe
