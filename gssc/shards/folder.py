"""Shards on disk: a folder with a file for every process and a description of all, complete or not there at all."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gssc.checks import fail
from gssc.datasets.flat import FlatGraphs, GraphDataset, from_about
from gssc.datasets.infer import ready
from gssc.files import DamagedFileError, json_bytes, map_tensors, replace_folder, tensor_bytes
from gssc.readers import SHARDS, read_object
from gssc.shards.cut import cut_graph
from gssc.shards.shard import Shard

DESCRIPTION = "shards.json"


@dataclass(frozen=True)
class ShardedDataset(GraphDataset):
    """A dataset of one graph that lies in shards: what is known of it without any; there are no ``splits``."""

    ranks: int = 1  # shards, one for each process
    folder: Path = Path()
    manifest: Mapping[str, Any] = field(default_factory=dict)

    def about(self) -> dict[str, Any]:
        return dict(self.manifest["dataset"])

    def content(self) -> str:
        return str(self.manifest["graphs"])

    def shard(self, rank: int, device: torch.device = torch.device("cpu")) -> Shard:  # noqa: B008 (a value)
        """That of one process, whose file alone is read: it stays on the disk, and so much of it as is used comes."""
        path = self.folder / self.manifest["files"][rank]["name"]
        tensors, about = map_tensors(path)
        expected = {"kind": "shard", "rank": rank, "partition": self.manifest["partition"]}
        if any(about.get(key) != value for key, value in expected.items()):
            raise DamagedFileError(f"{path}: expected shard {rank} of {self.folder / DESCRIPTION}, got another one")
        return Shard(tensors, self.manifest["nodes"], device)


def open_shards(folder: Path) -> ShardedDataset:
    """The dataset in a folder of shards, of which the description alone is read."""
    manifest = read_object(folder / DESCRIPTION, SHARDS)
    dataset = from_about(manifest["dataset"])
    known = {one.name: getattr(dataset, one.name) for one in fields(GraphDataset)}
    return ShardedDataset(**known, folder=folder, manifest=manifest, ranks=len(manifest["files"]))


def one_graph(dataset: GraphDataset) -> FlatGraphs:
    """The graph of which every split of a dataset has some nodes, edges ordered by target."""
    first, *others = dataset.splits.values()
    same = all(split.num_graphs == 1 and split.edge_index is first.edge_index for split in others)
    if dataset.task.level != "node" or first.num_graphs != 1 or not same or first.mask is None:
        fail("data", "one graph whose nodes are predicted, with masks of its parts, for shards", dataset.name)
    return first


def write_shards(
    out: Path,
    dataset: GraphDataset,
    part: Tensor,
    ranks: int,
    spectra: Mapping[str, Tensor],
    about: Mapping[str, Any],
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Cut the graph of a dataset and write the shards, one after another.

    ``part`` [N] is the process of every node, ``spectra`` what `Shard` takes of them; ``about`` has the ``recipe`` as
    plain values and the ``method`` of the partition. Shards that were in the folder are replaced.
    """
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / DESCRIPTION).exists())):
        fail("out", "a new folder, or one of shards", str(out))
    graph = one_graph(dataset)
    rows = {"x": graph.x, "y": graph.y} | {f"{name}_mask": split.mask for name, split in dataset.splits.items()}
    rows |= {name: spectra.get(name) for name in ("eigvecs", "rwse")}
    nodes = {name: tensor for name, tensor in rows.items() if tensor is not None}
    edges = {} if graph.edge_attr is None else {"edge_attr": graph.edge_attr}
    digest = hashlib.blake2b(part.numpy().data, digest_size=16, person=b"gssc shards").hexdigest()

    def contents() -> Iterator[tuple[str, bytes]]:
        files, crossing = [], 0
        say(f"{graph.num_edges:,} edges are set aside by process")
        for rank, tensors in enumerate(cut_graph(graph.edge_index, part, ranks, nodes, edges, out)):
            for name in {"x", "edge_attr"} & set(tensors) if dataset.mapped else ():
                tensors[name] = ready(dataset, name, tensors[name])
            crossing += int((tensors["edge_index"][0] >= tensors["nodes"].numel()).sum())
            name, kind = f"shard-{rank}.safetensors", {"kind": "shard", "rank": rank, "partition": digest}
            data = tensor_bytes(dict(spectra) | tensors, kind)
            sizes = {key: tensors[key].shape[-1] for key in ("nodes", "edge_index", "halo")}
            files.append({"name": name, "bytes": len(data), **sizes})
            counted = f"{sizes['nodes']:,} nodes, {sizes['edge_index']:,} edges, {sizes['halo']:,} nodes in the halo"
            say(f"shard {rank + 1} of {ranks}: {counted}, {len(data):,} bytes")
            yield name, data
            del tensors, data
        counts = {"nodes": graph.num_nodes, "edges": graph.num_edges, "cut": crossing}
        known = {"partition": digest, "graphs": dataset.content(), "dataset": dataset.about(), "files": files}
        yield DESCRIPTION, json_bytes({"format": 1} | counts | known | dict(about))

    replace_folder(out, contents())
