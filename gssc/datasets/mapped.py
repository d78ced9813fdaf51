"""One graph as a folder of plain ``.npy`` files, of which nothing but what is asked for comes into memory.

    edge_index.npy  [2, E] or [E, 2], int32 or int64        train_mask.npy, val_mask.npy, test_mask.npy  [N]
    x.npy           [N, D] or [N]                           y.npy  [N] or [N, T], as in `gssc.datasets.infer`
    edge_attr.npy   [E, D] or [E]

Only ``edge_index`` and ``y`` must be there. `gssc partition` reads edges and features in pieces.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from gssc.checks import check_choice, check_shape, fail
from gssc.datasets.flat import FlatGraphs, GraphDataset
from gssc.datasets.infer import apply_scale, continuous, infer_features, pieces
from gssc.datasets.split import NAMES
from gssc.nn.encoders import Features

FILES = ("edge_index", "x", "y", "edge_attr", *(f"{name}_mask" for name in NAMES))


@dataclass(frozen=True)
class MappedDataset(GraphDataset):
    """A dataset of one graph that stays in files: columns ``x`` and ``edge_attr`` are as they were stored."""

    mapped: ClassVar[bool] = True

    def ready(self, column: str, rows: Tensor) -> Tensor:
        """Some rows of a column, as a model takes them."""
        if not isinstance(self.node_features if column == "x" else self.edge_features, int):
            return rows.long()
        rows = continuous(rows, column)
        return apply_scale(rows, *self.standardize[column]) if column in self.standardize else rows

    def content(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for split, graphs in self.splits.items():
            held = {f"{split}_mask": graphs.mask, "y": graphs.y}
            held |= {"ends": graphs.edge_index.T, "x": graphs.x, "edge_attr": graphs.edge_attr}
            for name, rows in held.items() if split == "train" else [(f"{split}_mask", graphs.mask)]:
                digest.update(f"|{name}:{None if rows is None else (str(rows.dtype), list(rows.shape))}|".encode())
                for piece in () if rows is None else pieces(rows):
                    digest.update(piece.contiguous().numpy().data)
        return digest.hexdigest()


def map_arrays(folder: Path) -> dict[str, Tensor]:
    """The arrays of a folder by the names of `FILES`: shapes that agree, and edges [2, E] between nodes that exist."""
    found = {}
    for path in sorted(folder.glob("*.npy")):
        check_choice(f"array in {folder}", path.stem, FILES)
        try:
            # Copied on write, so that PyTorch does not remark that it cannot be written.
            found[path.stem] = torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))
        except (OSError, ValueError, TypeError) as error:
            fail("data", "an array of numbers in a .npy file", f"{path} ({error})")
    for name in ("edge_index", "y"):
        if name not in found:
            fail("data", f"a folder with {name}.npy", f"{folder} without it")
    ends, nodes = found["edge_index"], len(found["y"]) if found["y"].dim() else 0
    if ends.dtype not in (torch.int32, torch.int64):
        fail("edge_index", "int32 or int64", ends.dtype)
    found["edge_index"] = ends = ends.T if ends.dim() == 2 and ends.shape[0] != 2 else ends
    check_shape("edge_index", ends, 2, None)
    for name, rows in (("x", nodes), ("edge_attr", ends.shape[1])):
        if name in found:
            columns = found[name].unsqueeze(1) if found[name].dim() == 1 else found[name]
            check_shape(name, columns, rows, None)
            found[name] = columns
    for piece in pieces(ends.T):
        low, high = (int(end) for end in piece.aminmax()) if piece.numel() else (0, -1)
        if low < 0 or high >= nodes:
            fail("edge_index", f"node numbers in 0..{nodes - 1}", f"{low}..{high}")
    return found


def mapped_graph(arrays: dict[str, Tensor]) -> tuple[FlatGraphs, Tensor]:
    """The graph of a folder without targets (``y`` is empty), and its targets."""
    ends, y = arrays["edge_index"], arrays["y"]
    ptr, edge_ptr = torch.tensor([0, len(y)]), torch.tensor([0, ends.shape[1]])
    return FlatGraphs(ptr, edge_ptr, ends, arrays.get("x"), arrays.get("edge_attr"), torch.empty(0)), y


def mapped_features(values: Tensor | None, name: str) -> tuple[Features, Tensor | None]:
    """What `infer_features` says of columns [rows, D], piece by piece, and the columns as they are."""
    if values is None:
        return None, None
    seen = [infer_features(piece, name)[0] for piece in pieces(values)]
    sizes = [one for one in seen if isinstance(one, tuple)]
    if not sizes:
        return seen[0], None if seen[0] is None else values
    # Pieces of zeros and ones alone looked like a bag of words.
    sizes += [(2,) * values.shape[1]] * (len(sizes) < len(seen))
    return tuple(map(max, *sizes, sizes[0])), values
