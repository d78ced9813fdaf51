import numpy as np
import torch

from gssc.datasets import GraphDataset
from gssc.datasets.flat import FlatGraphs
from gssc.datasets.specs import SPECS
from tools import scaffold_folds


def test_scaffolds_stay_together_in_folds_of_about_equal_size():
    names = np.random.default_rng(0).integers(60, size=500)
    folds = scaffold_folds.deal([f"ring {name}" for name in names], 8)
    assert np.array_equal(np.sort(np.concatenate(folds)), np.arange(500))
    assert max(map(len, folds)) - min(map(len, folds)) <= np.bincount(names).max()
    for scaffold in range(60):
        assert sum(bool((names[fold] == scaffold).any()) for fold in folds) == 1


def test_each_rotation_tests_another_fold_and_no_official_one():
    ptr = torch.arange(41)
    empty = torch.zeros(41, dtype=torch.long)
    flat = FlatGraphs(ptr, empty, torch.zeros(2, 0).long(), None, None, torch.arange(40.0).unsqueeze(1))
    dataset = GraphDataset("molhiv", SPECS["molhiv"].task, None, None, {"train": flat, "val": None, "test": None}, {})
    folds = scaffold_folds.deal([str(n // 2) for n in range(40)], 8)
    tested = []
    for rotation in range(4):
        parts = {
            name: set(part.y[:, 0].tolist())
            for name, part in scaffold_folds.rotated(dataset, folds, rotation).splits.items()
        }
        assert len(set.union(*parts.values())) == sum(map(len, parts.values())) == 40
        assert parts["test"] == set(folds[2 * rotation].tolist())
        tested += parts["test"]
    assert len(set(tested)) == len(tested) == 20
