"""Every recipe that ships is complete, valid, and says what the paper's tables say."""

import dataclasses
import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from gssc.config import SECTIONS
from gssc.datasets import DATASETS, GraphDataset
from gssc.datasets.flat import FlatGraphs
from gssc.datasets.specs import ONE_GRAPH, SPECS
from gssc.model import GLOBALS
from gssc.nn.local import LOCALS
from gssc.recipes import (
    MANY_EDGES,
    find_recipe,
    for_large_graphs,
    for_one_graph,
    known_recipes,
    large_graphs,
    own_recipe,
    recipe_folder,
    recipe_names,
    recipe_variants,
)
from gssc.spectra import LaplacianSpectrum
from gssc.tasks import Task
from gssc.train.build import build_model, transforms

# Layers, width, local, k, batch size, learning rate, weight decay: appendix of the paper.
PAPER = {
    "cycles-3": (4, 96, "gatedgcn", 16, 256, 1e-3, 1e-5),
    "cycles-4": (4, 96, "gatedgcn", 16, 256, 1e-3, 1e-5),
    "cycles-5": (4, 96, "gatedgcn", 16, 256, 1e-3, 1e-5),
    "cycles-6": (4, 96, "gatedgcn", 16, 256, 1e-3, 1e-5),  # as those of the other lengths: it is not in the paper
    "zinc-12k": (10, 64, "gine", 16, 32, 1e-3, 1e-5),
    "zinc-full": (10, 64, "gine", 16, 128, 2e-3, 1e-3),
    "molhiv": (6, 64, "gatedgcn", 16, 32, 2e-3, 1e-3),
    "mnist": (3, 52, "gatedgcn", 32, 16, 5e-3, 0.01),
    "cifar10": (3, 52, "gatedgcn", 32, 16, 5e-3, 0.01),
    "pattern": (24, 36, "gatedgcn", 32, 32, 1e-3, 0.1),
    "cluster": (24, 36, "gatedgcn", 32, 16, 1e-3, 0.1),
    "malnet-tiny": (5, 64, "gatedgcn", 32, 16, 1.5e-3, 1e-3),
    "voc-sp": (4, 96, "gatedgcn", 32, 32, 2e-3, 0.1),
    "peptides-func": (4, 96, "gatedgcn", 32, 128, 3e-3, 0.1),
    "peptides-struct": (4, 96, "gatedgcn", 32, 128, 1e-3, 0.1),
}


# Where validation chose otherwise (docs/ablations.md).
CHANGED = {f"cycles-{length}": {"k": 30, "batch_size": 32} for length in (3, 4, 5, 6)}
for name in ("cycles-3", "cycles-4"):
    CHANGED[name]["lr"] = 0.002
CHANGED["peptides-func"] = {"lr": 0.006}


def test_one_recipe_for_every_row():
    assert set(recipe_names()) == set(PAPER)


@pytest.mark.parametrize("name", sorted(PAPER))
def test_recipe_is_complete_and_follows_the_paper_or_says_where_not(name):
    written = yaml.safe_load((recipe_folder() / f"{name}.yaml").read_text(encoding="utf-8"))
    recipe = find_recipe(name)
    for section in SECTIONS:
        fields = {field.name for field in dataclasses.fields(getattr(recipe, section))}
        assert set(written[section]) == fields, section
    assert recipe.name == name
    assert recipe.data.dataset in DATASETS
    assert recipe.model.local in LOCALS
    assert recipe.model.glob in GLOBALS
    model, optim = recipe.model, recipe.optim
    row = {
        "layers": model.layers,
        "channels": model.channels,
        "local": model.local,
        "k": recipe.spectrum.k,
        "batch_size": recipe.train.batch_size,
        "lr": optim.lr,
        "weight_decay": optim.weight_decay,
    }
    assert row == dict(zip(row, PAPER[name], strict=True)) | CHANGED.get(name, {})
    said = (recipe_folder() / f"{name}.yaml").read_text(encoding="utf-8").partition("name:")[0]
    assert all(f"{key}={value}" in said for key, value in CHANGED.get(name, {}).items())


def test_a_path_is_a_recipe_too(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\ndata: {dataset: cycles-3}\n")
    assert find_recipe(str(path)).name == "mine"


def test_unknown_name():
    with pytest.raises(ValueError, match=r"recipe: expected one of .* got 'zinc12k' \(did you mean 'zinc-12k'\?\)"):
        find_recipe("zinc12k")


def test_own_data_have_the_spectra_of_the_transform():
    recipe = own_recipe(Path("mine.pt"))
    spectrum, walks = transforms(recipe.spectrum, recipe.model)
    assert spectrum.wanted == LaplacianSpectrum().wanted
    assert walks.steps == 16


def test_own_large_graphs_have_no_random_walks():
    said = []
    recipe = own_recipe(Path("mine.pt"))
    assert for_large_graphs(recipe, 10_000, said.append) is recipe
    assert said == []
    changed = for_large_graphs(recipe, 10_001, said.append)
    assert changed.spectrum.rwse == 0
    (line,) = said
    assert line.startswith("no random-walk encodings, since a graph has 10,001 nodes (spectrum.rwse=16 ")


def one_graph(train, edges=100, level="node"):
    """Of 1,000 nodes in four classes, so many of them for training."""
    mask = torch.arange(1000) < train
    ptr, edge_ptr = torch.tensor([0, 1000]), torch.tensor([0, edges])
    flat = FlatGraphs(ptr, edge_ptr, torch.zeros(2, edges).long(), None, None, torch.zeros(1000).long(), mask=mask)
    return GraphDataset("mine", Task(level, "multiclass", 4, "accuracy"), None, None, {"train": flat}, {})


def test_one_graph_is_trained_as_its_labels_suggest():
    said, recipe = [], own_recipe(Path("mine.pt"))
    few = for_one_graph(recipe, one_graph(200), ["optim.lr=0.5", "train.epochs=7"], said.append)
    assert (few.optim.decay, few.optim.lr, few.train.epochs, few.model.smooth) == ("l2", 0.001, 100, "ends")
    many = for_one_graph(recipe, one_graph(201), [], said.append)
    assert (many.optim.decay, many.model.local, many.model.norm) == ("decoupled", "gatedgcn", "batch")
    large = for_one_graph(recipe, one_graph(201, MANY_EDGES + 1), [], said.append)
    assert replace(large.model, local="gatedgcn") == many.model
    assert large.model.local == "gcn"
    assert few.train.patience == many.train.patience > 0
    assert [line.partition(":")[0] for line in said] == [
        "one graph, 200 training nodes for 4 classes, treated as few",
        "one graph, 201 training nodes for 4 classes, treated as many",
        "one graph, 201 training nodes for 4 classes, treated as many; 500,001 edges",
    ]
    pairs = torch.stack([torch.arange(20), torch.arange(1, 21)])
    for labels, local in ((torch.zeros(1000), "gcn"), (torch.arange(1000) % 2, "gatedgcn")):  # neighbours differ
        dataset = one_graph(200, 20)
        train = replace(dataset.splits["train"], edge_index=pairs, y=labels.long())
        dataset = replace(dataset, splits={"train": train})
        assert for_one_graph(recipe, dataset, [], said.append).model.local == local
    assert for_one_graph(recipe, one_graph(200, level="graph"), [], said.append) is recipe


@pytest.mark.parametrize("name", ONE_GRAPH)
def test_large_graphs_are_trained_as_files_of_ones_own_with_their_size(name):
    about, recipe = large_graphs()[name], find_recipe(name)
    dataset = one_graph(201)
    train = dataset.splits["train"]
    train = replace(train, edge_ptr=torch.tensor([0, about.edges]))  # it is the number that decides
    own = for_one_graph(own_recipe(Path(name)), replace(dataset, splits={"train": train}), [], str)
    own = for_large_graphs(own, about.nodes, str)
    for section in ("spectrum", "model", "optim", "train"):
        assert getattr(recipe, section) == getattr(own, section)
    assert (recipe.name, recipe.data.dataset, recipe.data.file) == (name, name, None)
    assert SPECS[name].task.level == "node"


def test_large_graphs_are_not_among_the_rows_of_the_paper():
    assert set(large_graphs()) == set(ONE_GRAPH)
    assert known_recipes() == [*recipe_names(), *large_graphs()]
    with pytest.raises(ValueError, match="recipe: expected tolokers alone, which has no variants, got 'tolokers:x'"):
        find_recipe("tolokers:x")


# To the last one as computed from the released code, with one logit for the two classes of PATTERN; and as the paper
# prints them in thousands. That prints one number for both peptides, of which struct, with its halving head, has more:
# 410 is what a linear one would make. Of MalNet-Tiny no configuration was released.
RELEASED = {
    "cifar10": 130_706,
    "mnist": 133_390,
    "pattern": 538_983,
    "voc-sp": 375_797,
    "peptides-func": 409_706,
    "peptides-struct": 415_307,
}
PRINTED = {
    "cifar10": 131,
    "mnist": 133,
    "pattern": 539,
    "cluster": 539,
    "voc-sp": 375,
    "peptides-func": 410,
    "peptides-struct": 410,
    "molhiv": 351,
}


@pytest.mark.parametrize("name", PRINTED)
def test_released_models_have_the_papers_number_of_parameters(name):
    recipe, spec = find_recipe(f"{name}:released"), SPECS[name]
    outputs = 1 if name == "pattern" else spec.task.outputs
    about = {"task": {"outputs": outputs, "level": spec.task.level}}
    about |= {"node_features": spec.node_features, "edge_features": spec.edge_features}
    parameters = sum(p.numel() for p in build_model(recipe, about).parameters())
    assert parameters == RELEASED.get(name, parameters)
    if name == "peptides-struct":
        parameters += 11 * 100 + 11 - (100 * 50 + 50 + 50 * 25 + 25 + 25 * 11 + 11)
    assert PRINTED[name] in (round(parameters / 1000), parameters // 1000)


def test_candidates_of_pilots_are_recipes():
    text = (Path(__file__).parents[1] / "results" / "pilots.md").read_text("utf-8")
    commands = [line.split() for line in text.splitlines() if line.startswith("gssc train ")]
    settings = [find_recipe(words[2]).override([w for w in words[3:] if "=" in w]).to_dict() for words in commands]
    assert len(settings) > 20
    assert all(one != other for one, other in itertools.combinations(settings, 2))


def test_variants_change_what_they_say_and_nothing_that_the_recipe_has():
    for name in recipe_names():
        base = find_recipe(name).to_dict()
        for variant, (about, changes) in recipe_variants(name).items():
            assert len(about) > 10
            changed = find_recipe(f"{name}:{variant}").to_dict()
            differing = {f"{s}.{key}" for s in SECTIONS for key in base[s] if base[s][key] != changed[s][key]}
            assert differing == {change.partition("=")[0] for change in changes}, (name, variant)
    with pytest.raises(
        ValueError, match=r"variant of cifar10: expected one of .* got 'relesed' \(did you mean 'released'\?\)"
    ):
        find_recipe("cifar10:relesed")
    with pytest.raises(ValueError, match="recipe: expected cycles-4 alone, which has no variants, got 'cycles-4:x'"):
        find_recipe("cycles-4:x")
