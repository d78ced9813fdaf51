"""Every recipe trains with the paper's ablations, by an override."""

from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data

from gssc.config import Recipe
from gssc.datasets.flat import GraphDataset, flatten
from gssc.datasets.specs import SPECS
from gssc.recipes import find_recipe, recipe_names
from gssc.train import RunSettings, train

SMALL = ["model.layers=1", "model.channels=16", "spectrum.k=4", "model.heads=2", "train.epochs=1"]
CHANGES = [
    ["model.glob=none"],
    ["model.glob=attention"],
    ["model.glob=gsc"],
    ["model.local=none"],
    *([f"model.local={local}"] for local in ("gcn", "gin", "gine", "gat", "gatedgcn", "pna")),
]


def random_dataset(recipe: Recipe) -> GraphDataset:
    """A few random graphs with features and targets as the recipe's dataset has them."""
    spec = SPECS[recipe.data.dataset]
    task = spec.task

    def features(columns, rows):
        if columns is None:
            return None
        if isinstance(columns, int):
            return torch.randn(rows, columns)
        return torch.stack([torch.randint(size, (rows,)) for size in columns], dim=1)

    graphs = []
    for n in (5, 9, 1, 7, 6, 8):
        edges = torch.randint(n, (2, 3 * n))
        edges = torch.cat([edges, edges.flip(0)], dim=1)
        rows = n if task.level == "node" else 1
        y = torch.arange(rows) % task.outputs if task.kind == "multiclass" else torch.randn(rows, task.outputs)
        if task.kind == "binary":
            y = (y > 0).float()
        graph = Data(edge_index=edges, y=y, num_nodes=n, x=features(spec.node_features, n))
        graph.edge_attr = features(spec.edge_features, edges.shape[1])
        graphs.append(graph)
    part = flatten(graphs, task)
    return GraphDataset(
        recipe.data.dataset,
        task,
        spec.node_features,
        spec.edge_features,
        dict.fromkeys(("train", "val", "test"), part),
        {},
    )


def run(name, changes, folder):
    torch.manual_seed(0)
    recipe = find_recipe(name)
    small = [*SMALL, f"spectrum.rwse={min(recipe.spectrum.rwse, 3)}", "train.tensorboard=false", "train.batch_size=4"]
    encodings = {key: min(getattr(recipe.model, key), 4) for key in ("diagonal_channels", "lappe_channels")}
    extra = ["model.rwse_channels=4", *(f"model.{key}={channels}" for key, channels in encodings.items())]
    recipe = recipe.override([*small, *extra, *changes])
    dataset = random_dataset(recipe)
    settings = RunSettings(torch.device("cpu"), cache=False, quiet=True)
    return train(recipe, replace(dataset), 0, folder, settings)


@pytest.mark.parametrize("name", recipe_names())
def test_recipe_trains(name, tmp_path):
    summary = run(name, [], tmp_path / "run")
    assert summary["epochs_run"] == 1
    assert summary["metric"] == SPECS[find_recipe(name).data.dataset].task.metric


@pytest.mark.parametrize("name", ["pattern:released", "voc-sp:released", "cifar10:mirrored"])
def test_released_models_train(name, tmp_path):
    assert run(name, [], tmp_path / "run")["epochs_run"] == 1


def test_only_images_are_mirrored(tmp_path):
    with pytest.raises(ValueError, match=r"data.dataset where train.mirror is true: expected one of .* got 'pattern'"):
        run("pattern", ["train.mirror=true"], tmp_path / "run")


@pytest.mark.parametrize("changes", CHANGES, ids=lambda changes: changes[0])
@pytest.mark.parametrize("name", ["zinc-12k", "pattern"])
def test_ablation_trains(name, changes, tmp_path):
    assert run(name, changes, tmp_path / "run")["parameters"] > 0
