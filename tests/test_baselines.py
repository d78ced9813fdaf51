"""The commands that the page of results has for the paper's baselines make a model each."""

import re
from pathlib import Path

import pytest

from gssc.datasets.specs import SPECS
from gssc.recipes import find_recipe
from gssc.train.build import build_model

PAGE = (Path(__file__).parents[1] / "docs" / "results.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([^|]+) \| ((?:yes|no|its|in Python)[^|]*) \| ([^|]*)\|$", PAGE, flags=re.MULTILINE)
COMMANDS = [found for _, _, text in ROWS for found in re.findall(r"`gssc train (\S+) ([^`]+)`", text)]


def test_there_are_21_and_no_one_that_can_be_trained_lacks_a_command():
    assert len(ROWS) == 21
    assert all(
        "`gssc train" in command or "`python examples/" in command
        for _, here, command in ROWS
        if not here.startswith("no")
    )
    scripts = re.findall(r"`python (examples/\S+) ", PAGE)
    assert scripts
    assert all((Path(__file__).parents[1] / script).exists() for script in scripts)


@pytest.mark.parametrize(("name", "changes"), COMMANDS)
def test_commands_make_a_model(name, changes):
    recipe = find_recipe(name).override([*changes.split(), "model.layers=2"])
    spec = SPECS[recipe.data.dataset]
    about = {"task": vars(spec.task), "node_features": spec.node_features, "edge_features": spec.edge_features}
    model = build_model(recipe, about | {"degree_histogram": [1, 2, 3]})
    assert (model.layers[0].glob is None) == ("glob=none" in changes)
