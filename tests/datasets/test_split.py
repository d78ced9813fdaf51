import numpy as np
import pytest

from gssc.datasets.split import random_split, scaffold_split


@pytest.mark.parametrize("count", [3, 4, 10, 11, 100, 1234])
def test_random_parts_are_disjoint_complete_and_not_empty(count):
    parts = random_split(count, seed=1)
    assert list(parts) == ["train", "val", "test"]
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(count))
    assert all(len(part) for part in parts.values())
    if count >= 10:
        assert len(parts["val"]) == len(parts["test"]) == round(count / 10)


def test_the_seed_decides():
    first, again, other = (random_split(50, seed)["test"].tolist() for seed in (0, 0, 1))
    assert first == again != other
    with pytest.raises(ValueError, match="split: expected three or more graphs"):
        random_split(2)


def test_scaffolds_stay_together_and_the_common_ones_train():
    scaffolds = ["common"] * 6 + ["second"] * 2 + [f"rare {i}" for i in range(12)]
    order = np.random.default_rng(0).permutation(20)
    shuffled = [scaffolds[i] for i in order]
    parts = scaffold_split(shuffled)
    found = {name: {shuffled[i] for i in members} for name, members in parts.items()}
    assert {"common", "second"} <= found["train"]
    assert not found["train"] & found["val"]
    assert not found["train"] & found["test"]
    assert not found["val"] & found["test"]
    assert {name: len(members) for name, members in parts.items()} == {"train": 16, "val": 2, "test": 2}
    assert all(np.array_equal(parts[name], again) for name, again in scaffold_split(shuffled).items())


def test_no_part_is_empty_even_if_one_scaffold_is_almost_everything():
    parts = scaffold_split(["a"] * 50 + ["b", "c"])
    assert [len(part) for part in parts.values()] == [50, 1, 1]
    with pytest.raises(ValueError, match="three or more scaffolds"):
        scaffold_split(["a", "a", "b"])
