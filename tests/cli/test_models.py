from typer.testing import CliRunner

from gssc.cli import app


def test_lists_what_ships_with_its_scores():
    said = CliRunner().invoke(app, ["models"], env={"COLUMNS": "200"}, catch_exceptions=False)
    assert said.exit_code == 0
    line = next(line for line in said.output.splitlines() if line.split()[:1] == ["zinc-12k"])
    assert "mae" in line
    assert "0.06715" in line
    assert "(3)" in line
