import itertools

import pytest
import torch

from benchmarks import bayes_lines as bayes
from gssc.datasets import sbm


def exact(adjacency, told, probability):
    """The posterior by enumeration of all assignments, of blocks of any size."""
    n, total, found = len(adjacency), 0.0, torch.zeros(len(adjacency), bayes.BLOCKS)
    for choice in itertools.product(*(range(bayes.BLOCKS) if one < 0 else [one] for one in told.tolist())):
        blocks = torch.tensor(choice)
        edge = probability[blocks][:, blocks]
        chance = torch.where(adjacency > 0, edge, 1 - edge)[torch.ones(n, n).triu(1) > 0].prod()
        weight = chance * torch.exp(torch.lgamma(torch.bincount(blocks, minlength=bayes.BLOCKS) + 1.0).sum())
        total, found = total + weight, found + weight * torch.nn.functional.one_hot(blocks, bayes.BLOCKS)
    return found / total


@pytest.mark.parametrize(("name", "nodes"), [("pattern", 4), ("cluster", 9)])
def test_the_sampler_has_the_posterior(name, nodes, monkeypatch):
    monkeypatch.setattr(bayes, "SIZES", (0, nodes + 1))
    generator = torch.Generator().manual_seed(1)
    upper = torch.triu(torch.rand(nodes, nodes, generator=generator) < 0.5, 1).float()
    adjacency, told = upper + upper.T, torch.full((nodes,), -1)
    if name == "cluster":
        told[torch.randperm(nodes, generator=generator)[: bayes.BLOCKS]] = torch.arange(bayes.BLOCKS)
    probability, many = bayes.MODELS[name].probability, 1500  # chains
    chains = adjacency.expand(many, -1, -1), torch.ones(many, nodes, dtype=torch.bool), told.expand(many, -1)
    found = bayes.posterior(*chains, probability, 15, generator).mean(0)
    assert torch.allclose(found, exact(adjacency, told, probability), atol=0.02)


def test_it_tells_blocks_apart(monkeypatch, capsys):
    monkeypatch.setattr(sbm, "GRAPHS", {name: {"train": 1, "val": 1, "test": 3} for name in sbm.GRAPHS})
    bayes.main(["cluster", "--generate", "--sweeps", "15"])
    score = float(capsys.readouterr().out.split()[1])
    assert 50 < score < 97
