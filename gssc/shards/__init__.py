"""One graph over many processes: partitions, shards on disk, spectra, and models that take shards."""

from gssc.shards.cut import cut_graph
from gssc.shards.folder import ShardedDataset, open_shards, write_shards
from gssc.shards.partition import assign_nodes
from gssc.shards.ready import make_ready
from gssc.shards.shard import Shard
from gssc.shards.spectrum import with_spectrum

__all__ = ["Shard", "ShardedDataset", "assign_nodes", "cut_graph", "make_ready", "open_shards", "with_spectrum"]
__all__ += ["write_shards"]
