"""ogbg-molhiv through OGB's class, with its scaffold split."""

from pathlib import Path
from typing import Any

import torch

from gssc.checks import fail
from gssc.datasets.places import remove_empty_folders


def load_molhiv(root: Path) -> dict[str, Any]:
    """The scaffold split, each part an InMemoryDataset of its own."""
    try:
        from ogb.graphproppred import PygGraphPropPredDataset
    except ImportError:
        fail("molhiv", "the package ogb (pip install 'gssc[ogb]')", "no such package")
    remove_empty_folders(root / "ogbg_molhiv")
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    # OGB 1.3.6 reads its own processed file with torch.load, which since torch 2.6 wants to be told these names.
    with torch.serialization.safe_globals([DataEdgeAttr, DataTensorAttr, GlobalStorage]):
        dataset = PygGraphPropPredDataset("ogbg-molhiv", root=str(root))
        split = dataset.get_idx_split()
    parts = {"train": dataset[split["train"]], "val": dataset[split["valid"]], "test": dataset[split["test"]]}
    return {name: part.copy() for name, part in parts.items()}
