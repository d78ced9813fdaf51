"""What is looked at: a run's model, and one graph of its dataset as that model takes it."""

from dataclasses import dataclass

import torch
from torch_geometric.data import Data

from gssc.checks import fail
from gssc.datasets import GraphDataset
from gssc.datasets.specs import SPECS
from gssc.explain.watch import bare_graph, check_number
from gssc.model import GSSC
from gssc.train.build import build_store
from gssc.train.evaluate import default_dtype
from gssc.train.loaded import LoadedRun


@dataclass(frozen=True)
class Subject:
    """A model and a graph, and what to call the two."""

    model: GSSC
    data: Data
    recipe: str
    glob: str
    local: str
    split: str
    graph: int

    @property
    def nodes(self) -> int:
        return int(self.data.num_nodes or 0)


def make_subject(run: LoadedRun, dataset: GraphDataset, split: str, graph: int, device: torch.device) -> Subject:
    """The graph with this number of a split, with the spectrum and encodings that the run's recipe asks for.

    Only this graph's spectrum is computed.
    """
    if split not in dataset.splits:
        fail("--split", f"one of {', '.join(dataset.splits)}", repr(split))
    graphs = dataset.splits[split]
    number = check_number("--graph", graph, graphs.num_graphs, f"a {split} graph")
    with default_dtype(run.recipe.train.precision):
        one = graphs.part(number, number + 1, dataset.task.level)
        store = build_store(one, run.recipe, dataset.task.level, device, None)
        inputs = store.batch(torch.arange(1)).inputs
    data = bare_graph(inputs, one.num_nodes)
    spec = SPECS.get(dataset.name)
    if spec is not None and spec.node[-1] == "pos" and one.x is not None:
        data.pos = one.x[:, -2:]
    model = run.recipe.model
    return Subject(run.model, data, run.recipe.name, model.glob, model.local, split, number)
