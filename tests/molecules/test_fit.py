from dataclasses import replace

import pytest
import torch
from molecule_run import molecule_dataset, molecule_recipe
from molecule_samples import molecule_graphs

from gssc.molecules import why_not
from gssc.molecules.supported import why_not_run
from gssc.train.processes import Processes

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_small_molecules_are_taken():
    recipe, dataset = molecule_recipe(), molecule_dataset()
    assert why_not_run(molecule_recipe("train.precision=tf32"), dataset, CPU) is None
    state = torch.random.get_rng_state()
    assert why_not_run(recipe, dataset, CPU) is None
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("train.precision=bf16", "train.precision is bf16"),
        ("train.capture=false", "train.capture is false"),
    ],
)
def test_recipes_that_are_not(override, reason):
    assert reason in why_not_run(molecule_recipe(override), molecule_dataset(), CPU)


def test_other_reasons():
    recipe, dataset = molecule_recipe(), molecule_dataset()
    assert why_not(recipe, dataset, CPU, Processes()) == "there is no GPU"
    assert why_not(molecule_recipe("train.kernels=none"), dataset, CUDA, Processes()) == "train.kernels is none"
    assert "GINE" in why_not_run(molecule_recipe("model.local=gatedgcn"), dataset, CPU)
    assert "halve the width" in why_not_run(molecule_recipe("model.head=wide"), dataset, CPU)
    assert "too large" in why_not_run(molecule_recipe("train.batch_size=10000000"), dataset, CPU)
    binary = replace(dataset, task=replace(dataset.task, kind="binary", metric="ap"))
    assert "binary of graphs" in why_not_run(recipe, binary, CPU)


def test_graphs_that_are_not():
    recipe, dataset = molecule_recipe(), molecule_dataset()
    large = replace(dataset, splits={**dataset.splits, "val": molecule_graphs((5, 65))})
    assert why_not_run(recipe, large, CPU) == "graphs have up to 65 nodes, not 64"
    train = dataset.splits["train"]
    edges = train.edge_index.clone()
    edges[:, 1] = edges[:, 0]
    twice = replace(dataset, splits={**dataset.splits, "train": replace(train, edge_index=edges)})
    assert why_not_run(recipe, twice, CPU) == "two edges join the same nodes"
    masked = replace(train, mask=torch.ones(train.num_graphs, dtype=torch.bool))
    some = replace(dataset, splits={**dataset.splits, "train": masked})
    assert why_not_run(recipe, some, CPU) == "only some targets count"
