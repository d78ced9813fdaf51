"""Small molecule-like graphs in a store, for tests of the kernels."""

import torch

from gssc import GSSC
from gssc.datasets.flat import FlatGraphs
from gssc.spectra import LaplacianSpectrum, RandomWalkSE, prepare_spectra
from gssc.tasks import Task
from gssc.train.store import GraphStore

TASK = Task("graph", "regression", 1, "mae")
VOCABULARY, BONDS, STEPS, FREQUENCIES = 7, 3, 5, 6
SIZES = (5, 9, 1, 12, 2, 16, 7, 3)


def molecule_graphs(sizes=SIZES, seed=0, outputs=1) -> FlatGraphs:
    """Random trees with some rings, categorical nodes and edges, both directions of every edge."""
    generator = torch.Generator().manual_seed(seed)
    edges, edge_counts = [], []
    for n in sizes:
        pairs = [(i, int(torch.randint(max(0, i - 3), i, (1,), generator=generator))) for i in range(1, n)]
        pairs += [(i, i - 4) for i in range(5, n, 4) if (i, i - 4) not in pairs]
        edges += pairs + [(j, i) for i, j in pairs]
        edge_counts.append(2 * len(pairs))
    return FlatGraphs(
        ptr=torch.tensor([0, *sizes]).cumsum(0),
        edge_ptr=torch.tensor([0, *edge_counts]).cumsum(0),
        edge_index=torch.tensor(edges).reshape(-1, 2).T.contiguous(),
        x=torch.randint(VOCABULARY, (sum(sizes), 1), generator=generator),
        edge_attr=torch.randint(BONDS, (len(edges), 1), generator=generator),
        y=torch.randn(len(sizes), outputs, generator=generator, dtype=torch.get_default_dtype()),
    ).sorted_by_destination()


def molecule_store(sizes=SIZES, device="cpu", seed=0, frequencies=FREQUENCIES, steps=STEPS, outputs=1) -> GraphStore:
    flat = molecule_graphs(sizes, seed, outputs)
    found = prepare_spectra(
        flat.packed(), LaplacianSpectrum(frequencies, "combinatorial", "drop"), RandomWalkSE(steps), cache=None
    ).flat
    spectra = {name: getattr(found, name) for name in ("eigvals", "eigvecs", "eigmask", "rwse")}
    spectra = {name: t.to(torch.get_default_dtype()) if t.is_floating_point() else t for name, t in spectra.items()}
    return GraphStore(flat, spectra, device, node_level=False)


def molecule_model(layers=2, channels=16, steps=STEPS, **settings) -> GSSC:
    """A model that the kernels support, with norms and scales away from their initial values."""
    given = {"rwse_channels": 4, "phi_channels": 16, "kernel": "shared", "degree_scaling": True, "out_proj": True}
    given |= {"local": "gine", "pool": "sum", "node_features": [VOCABULARY], "edge_features": [BONDS], "rwse": steps}
    model = GSSC(1, channels, layers, **(given | settings))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "degree" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model
