"""One graph as a folder of plain ``.npy`` files, which are mapped: no more of them is in memory than is looked at.

    edge_index.npy  [2, E] or [E, 2], int32 or int64        train_mask.npy, val_mask.npy, test_mask.npy  [N]
    x.npy           [N, D] or [N]                           y.npy  [N] or [N, T], as in `gssc.datasets.infer`
    edge_attr.npy   [E, D] or [E]

Only ``edge_index`` and ``y`` must be there.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gssc.checks import check_choice, check_shape, fail, first_line
from gssc.datasets.flat import FlatGraphs, pieces
from gssc.datasets.infer import infer_features
from gssc.datasets.split import NAMES
from gssc.nn.encoders import Features

FILES = ("edge_index", "x", "y", "edge_attr", *(f"{name}_mask" for name in NAMES))


def map_graph(folder: Path) -> tuple[dict[str, Tensor], FlatGraphs]:
    """The arrays of a folder by the names of `FILES`, and the graph that they are, with ``y`` as it is stored.

    Shapes agree, and edges [2, E] are between nodes that exist.
    """
    found: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.npy")):
        check_choice(f"array in {folder}", path.stem, FILES)
        try:
            # Copied on write, so that PyTorch does not remark that it cannot be written.
            array = torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))
            if array.dtype in (torch.uint16, torch.uint32, torch.uint64):
                raise TypeError(f"{array.dtype}; PyTorch computes with signed ones")
        except (OSError, EOFError, ValueError, TypeError) as error:
            fail("data", "an array of numbers in a .npy file", f"{path} ({first_line(error)})")
        found[path.stem] = array.unsqueeze(1) if path.stem in ("x", "edge_attr") and array.dim() == 1 else array
    for name in ("edge_index", "y"):
        if name not in found:
            fail("data", f"a folder with {name}.npy", f"{folder} without it")
    ends, nodes = found["edge_index"], found["y"].shape[:1].numel()
    if ends.dtype not in (torch.int32, torch.int64):
        fail("edge_index", "int32 or int64", ends.dtype)
    found["edge_index"] = ends = ends.T if ends.dim() == 2 and ends.shape[0] != 2 else ends
    check_shape("edge_index", ends, 2, None)
    for name, rows in (("x", nodes), ("edge_attr", ends.shape[1])):
        if name in found:
            check_shape(name, found[name], rows, None)
    for piece in pieces(ends.T):
        if piece.numel() and not (int(piece.min()) >= 0 and int(piece.max()) < nodes):
            fail("edge_index", f"node numbers in 0..{nodes - 1}", f"{int(piece.min())}..{int(piece.max())}")
    ptr, edge_ptr = torch.tensor([0, nodes]), torch.tensor([0, ends.shape[1]])
    return found, FlatGraphs(ptr, edge_ptr, ends, found.get("x"), found.get("edge_attr"), found["y"])


def mapped_features(values: Tensor | None, name: str) -> tuple[Features, Tensor | None]:
    """What `infer_features` says of columns [rows, D], piece by piece, and the columns as they are."""
    if values is None or values.shape[1] == 0:
        return None, None
    seen = [infer_features(piece, name)[0] for piece in pieces(values)]
    if all(isinstance(one, int) for one in seen):
        return seen[0], values
    # Pieces of zeros and ones alone looked like bags of words.
    sizes = torch.tensor([one if isinstance(one, tuple) else (2,) * values.shape[1] for one in seen])
    return tuple(sizes.amax(0).tolist()), values
