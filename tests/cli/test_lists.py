import pytest
from typer.testing import CliRunner

import gssc
from gssc.cli import app
from gssc.pretrained.find import pretrained_folder
from gssc.recipes import recipe_names


def test_lists_what_ships_with_its_scores():
    said = CliRunner().invoke(app, ["models"], env={"COLUMNS": "200"}, catch_exceptions=False)
    assert said.exit_code == 0
    line = next(line for line in said.output.splitlines() if line.split()[:1] == ["zinc-12k"])
    assert "mae" in line
    assert "0.06715" in line
    assert "(3)" in line


def test_nothing_is_cut_off_in_a_narrow_terminal():
    said = CliRunner().invoke(app, ["models"], env={"COLUMNS": "80"}, catch_exceptions=False)
    first = [line.split()[0] for line in said.output.splitlines() if line.strip()]
    assert set(gssc.pretrained.pretrained_names()) <= set(first)
    assert "…" not in said.output


def test_one_model_for_each_recipe_that_was_run_and_one_that_was_taught():
    names = gssc.pretrained.pretrained_names()
    assert [name for name in names if name not in recipe_names()] == ["peptides-func-taught"]
    shipped = [path for path in pretrained_folder().rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in shipped) < 15 * 2**20  # a checkout stays small: tools/compact.py
    with pytest.raises(ValueError, match=r"model: expected one of 'cifar10', .*, got 'molhiv-recombined'"):
        gssc.load_pretrained("molhiv-recombined")
