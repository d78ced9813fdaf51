"""One graph over many processes: partitions, shards on disk, and models that take them."""

from gssc.shards.cut import cut_graph
from gssc.shards.folder import ShardedDataset, open_shards, write_shards
from gssc.shards.partition import assign_nodes, edges_cut
from gssc.shards.ready import make_ready
from gssc.shards.shard import Shard
from gssc.shards.spectrum import component_of, random_features, solve_sharded, walk_probabilities, with_spectrum

__all__ = [
    "Shard",
    "ShardedDataset",
    "assign_nodes",
    "component_of",
    "cut_graph",
    "edges_cut",
    "make_ready",
    "open_shards",
    "random_features",
    "solve_sharded",
    "walk_probabilities",
    "with_spectrum",
    "write_shards",
]
