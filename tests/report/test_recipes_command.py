import re

import pytest
from typer.testing import CliRunner

from gssc.cli import app
from gssc.datasets.specs import SPECS
from gssc.recipes import find_recipe, recipe_names
from gssc.report.published import published_gssc


@pytest.mark.parametrize("columns", ["80", "140"])
def test_every_recipe_with_dataset_metric_and_published_number(columns):
    output = CliRunner().invoke(app, ["recipes"], env={"COLUMNS": columns}, catch_exceptions=False).output
    assert max(map(len, output.splitlines())) <= int(columns)
    for name in recipe_names():
        (line,) = [line for line in output.splitlines() if re.match(rf"\s*{name}\s", line)]
        dataset = find_recipe(name).data.dataset
        task = SPECS[dataset].task
        assert f" {dataset} " in line
        assert f"{task.metric} {'↑' if task.higher_is_better else '↓'}" in line
        published = published_gssc(name)
        assert published is None or published.text in line
    assert ("superpixel" in output.lower()) == (columns == "140")


def test_variants_are_listed_below_their_recipe():
    lines = CliRunner().invoke(app, ["recipes"], env={"COLUMNS": "140"}, catch_exceptions=False).output.splitlines()
    (at,) = [number for number, line in enumerate(lines) if re.match(r"\s*voc-sp\s", line)]
    assert ":released" in lines[at + 1]
