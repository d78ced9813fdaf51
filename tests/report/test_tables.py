import csv

import pytest
from report.fake_runs import fake_run

from gssc.report.published import published_gssc, published_rows
from gssc.report.render import escape_latex, render
from gssc.report.runs import read_runs
from gssc.report.tables import compare, difference_text, spread_text, to_csv
from gssc.report.variants import Spread, group_variants


@pytest.fixture(scope="module")
def comparisons(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    fake_run(folder / "a", "cifar10", seeds=(0, 1, 2), epochs=3)
    fake_run(folder / "b", "cifar10", ["model.glob=none"], seeds=(0,), worse=0.05, epochs=3)
    fake_run(folder / "c", "zinc-12k", seeds=(0,), unfinished=(0,), epochs=3)
    return [compare(mine) for mine in group_variants(read_runs([folder]).seeds).values()]


@pytest.mark.parametrize(
    ("recipe", "spread", "expected"),
    [
        ("cifar10", Spread(0.781434, 0.002811, 3), "78.143 ± 0.281"),
        ("zinc-12k", Spread(0.06512, 0.00221, 5), "0.0651 ± 0.0022"),
        ("cycles-3", Spread(0.000172, 0.0000123, 2), "0.000172 ± 0.000012"),
        ("cycles-3", Spread(0.70076, 0.00457, 2), "0.7008 ± 0.0046"),
        ("molhiv", Spread(0.8035, 0.0, 1), "80.35"),
        ("my-data", Spread(12.3456, 0.5, 2), "12.3 ± 0.5"),
        ("my-data", Spread(float("nan"), float("nan"), 2), "nan ± nan"),
    ],
)
def test_values_have_the_units_and_digits_of_the_print(recipe, spread, expected):
    published = published_gssc(recipe)
    assert spread_text(spread.times(published.factor if published else 1.0), published) == expected


@pytest.mark.parametrize(
    ("recipe", "value", "expected"),
    [
        ("zinc-12k", 0.0601, ("−0.0039", "better")),
        ("zinc-12k", 0.0701, ("+0.0061", "worse")),
        ("cifar10", 78.0, ("+0.3580", "better")),
        ("cifar10", 77.0, ("−0.6420", "worse")),
        ("zinc-12k", 0.06401, ("±0.0000", "equal")),
        ("zinc-12k", float("nan"), ("", "")),
        ("my-data", 1.0, ("", "")),
    ],
)
def test_the_difference_has_a_sign_and_a_direction(recipe, value, expected):
    assert difference_text(value, 4, published_gssc(recipe)) == expected


def test_rows(comparisons):
    cifar, zinc = comparisons
    assert [row.model for row in cifar.rows[:3]] == ["as shipped", "model.glob=none", "GSSC"]
    assert len(cifar.rows) == 2 + len(published_rows("cifar10"))
    assert cifar.variant.metric_text == "accuracy ↑ (%)"
    assert cifar.rows[0].value == pytest.approx(77.642, abs=2)
    assert (cifar.rows[0].seeds, cifar.rows[1].seeds, cifar.rows[1].std) == (3, 1, None)
    assert cifar.rows[1].verdict == "worse"
    gcn = next(row for row in cifar.rows if row.model == "GCN")
    assert (gcn.text, gcn.difference, gcn.verdict) == ("55.710 ± 0.381", "−21.932", "worse")
    assert (zinc.rows[0].text, zinc.rows[0].value) == ("–", None)
    assert "seed 0 unfinished (epoch 1 of 2000)" in zinc.rows[0].source
    mamba = next(row for row in zinc.rows if row.model == "Graph-Mamba-I")
    assert (mamba.text, mamba.value, mamba.difference) == ("NaN", None, "")


def test_markdown(comparisons):
    text = render("report.md", tables=comparisons, paper="it", origins="", notes=())
    tables = [block for block in text.split("\n\n") if block.startswith("|")]
    assert len(tables) == 2
    for table, one in zip(tables, comparisons, strict=True):
        lines = table.splitlines()
        assert len(lines) == 2 + len(one.rows)
        assert {line.count("|") for line in lines} == {8}
    assert "| GSSC (the paper) | 5 | 77.642 ± 0.456 |" in text


def test_csv(comparisons):
    rows = list(csv.DictReader(to_csv(comparisons).splitlines()))
    assert len(rows) == sum(len(one.rows) for one in comparisons)
    ours = rows[0]
    assert (ours["origin"], ours["percent"], ours["better"]) == ("ours", "yes", "higher")
    assert float(ours["difference"]) == pytest.approx(float(ours["mean"]) - 77.642)
    assert [row["mean"] for row in rows if row["recipe"] == "zinc-12k" and row["model"] == "as shipped"] == [""]


def test_latex(comparisons):
    text = render("report.tex", tables=comparisons)
    assert text.count("\\begin{table}") == text.count("\\end{table}") == 2
    assert text.count("\\\\\n") == 2 + sum(len(one.rows) for one in comparisons)
    assert "55.710 $\\pm$ 0.381 & $-$21.932 \\\\" in text
    assert "accuracy $\\uparrow$ (\\%)" in text
    assert text.isascii()


def test_latex_prints_text_as_it_is():
    assert escape_latex("a_b=1e-5 & 50% {x} \\y ~ ^") == (
        "a\\_b=1e-5 \\& 50\\% \\{x\\} \\textbackslash{}y \\textasciitilde{} \\textasciicircum{}"
    )
