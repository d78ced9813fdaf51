"""One graph over many processes: partitions, shards on disk, and models that take them."""

from gssc.shards.cut import cut_graph
from gssc.shards.ready import make_ready
from gssc.shards.shard import Shard

__all__ = ["Shard", "cut_graph", "make_ready"]
