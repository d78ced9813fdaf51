import pytest

from gssc.datasets.specs import SPECS
from gssc.recipes import find_recipe, recipe_names
from gssc.report.published import all_published, published_costs, published_gssc, published_rows

# Read off the paper by eye, independently of how the data file was made.
PRINTED = [
    ("mnist", "Exphormer", "98.550", "0.039", 1),
    ("cifar10", "GIN", "55.255", "1.527", 1),
    ("cluster", "Grit", "80.026", "0.277", 1),
    ("malnet-tiny", "GCN", "81.0", "", 1),
    ("voc-sp", "Graph-Mamba-I", "0.4191", "0.0126", 1),
    ("peptides-func", "GRED", "0.7133", "0.0011", 1),
    ("peptides-struct", "SAN", "0.2545", "0.0012", 1),
    ("cycles-5", "I²-GNN", "0.0028", "", 2),
    ("zinc-full", "Graphormer", "0.052", "0.005", 3),
    ("molhiv", "SUN", "80.03", "0.55", 3),
    ("zinc-12k", "Graph-Mamba-I", "NaN", "", 10),
    ("pattern", "Graph-Mamba-II", "87.140", "0.120", 10),
]
GSSC = {
    "cycles-3": "0.0002",
    "cycles-4": "0.0013",
    "cycles-5": "0.0113",
    "zinc-12k": "0.064 ± 0.002",
    "zinc-full": "0.019 ± 0.001",
    "molhiv": "80.35 ± 1.42",
    "mnist": "98.492 ± 0.051",
    "cifar10": "77.642 ± 0.456",
    "pattern": "87.510 ± 0.082",
    "cluster": "79.156 ± 0.152",
    "malnet-tiny": "94.06 ± 0.64",
    "voc-sp": "0.4561 ± 0.0039",
    "peptides-func": "0.7081 ± 0.0062",
    "peptides-struct": "0.2459 ± 0.0020",
}


@pytest.mark.parametrize(("recipe", "model", "mean", "std", "table"), PRINTED)
def test_values_as_printed(recipe, model, mean, std, table):
    (row,) = [
        row
        for row in all_published()
        if (row.recipe, row.model) == (recipe, model) and row.source.endswith(f" {table}")
    ]
    assert (row.mean, row.std) == (mean, std)


NOT_PUBLISHED = ["cycles-6"]


def test_what_the_paper_has_no_row_for():
    assert [name for name in recipe_names() if not published_rows(name)] == NOT_PUBLISHED


@pytest.mark.parametrize("recipe", sorted(set(recipe_names()) - set(NOT_PUBLISHED)))
def test_every_recipe_has_its_gssc_row_in_our_metric(recipe):
    row = published_gssc(recipe)
    task = SPECS[find_recipe(recipe).data.dataset].task
    assert row is not None
    assert row.text == GSSC[recipe]
    assert (row.metric, row.higher_is_better) == (task.metric, task.higher_is_better)
    assert row.factor == (100 if float(row.mean) > 1 else 1)
    assert row.seeds == (3 if recipe == "zinc-full" else 5)


def test_rows_per_table():
    # Cells with a number in each of the printed tables, dashes and N/A left out.
    tables = [row.source.rpartition(" ")[2] for row in all_published()]
    assert {number: tables.count(number) for number in set(tables)} == {"1": 78, "2": 18, "3": 38, "10": 22}


def test_a_number_printed_twice_is_one_row():
    models = [row.model for row in published_rows("voc-sp")]
    assert models.count("GSSC") == models.count("Graph-Mamba-I") == 1
    assert published_gssc("voc-sp").source == "arXiv 2406.05815, Table 1 and Table 10"


def test_nothing_for_another_task_or_metric():
    assert published_rows("my-data") == ()
    assert published_gssc("zinc-12k", "rmse") is None


def test_costs():
    assert published_costs("zinc-12k")["training time per epoch"].value == 10.9
    assert published_costs("voc-sp")["total preprocessing time"].value == 334.8
    assert published_costs("voc-sp")["preprocessing / training"].unit == "%"
    assert [name for name in recipe_names() if "parameters" not in published_costs(name)] == NOT_PUBLISHED
    assert published_costs("cifar10")["parameters"].value == 131
