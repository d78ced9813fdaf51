import json

import pytest
from report.fake_runs import fake_run

from gssc.report.figures import ablation_bars, learning_curves
from gssc.report.runs import read_runs
from gssc.report.svg import INK, ROLES, SERIES, drawing_style, to_svg
from gssc.report.variants import group_variants


@pytest.fixture(autouse=True)
def _style():
    with drawing_style():
        yield


@pytest.fixture
def variants(tmp_path):
    fake_run(tmp_path / "a", "cifar10", seeds=(0, 1), epochs=10)
    fake_run(tmp_path / "b", "cifar10", ["model.glob=none"], seeds=(0,), worse=0.03, epochs=10)
    return group_variants(read_runs([tmp_path]).seeds)["cifar10"]


def test_curves_are_those_of_metrics_jsonl(variants):
    left, right = learning_curves(variants).axes
    for axis, key in ((left, "train_loss"), (right, "val")):
        lines = [line for line in axis.lines if len(line.get_xdata()) > 1]
        runs = [run for variant in variants for run in variant.runs]
        assert len(lines) == len(runs) == 3
        for line, run in zip(lines, runs, strict=True):
            assert list(line.get_xdata()) == [point["epoch"] for point in run.history]
            assert list(line.get_ydata()) == [point[key] for point in run.history]
    dots = [line.get_xydata()[0] for line in right.lines if len(line.get_xdata()) == 1]
    assert [dot[0] for dot in dots] == [7, 7, 7]
    assert dots[0][1] == variants[0].runs[0].history[6]["val"]
    # Variants by colour; the seeds of one are alike.
    assert [line.get_color() for line in left.lines] == [SERIES[0], SERIES[0], SERIES[1]]


def test_seeds_of_a_single_variant_are_told_apart(variants):
    figure = learning_curves(variants[:1])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["seed 0", "seed 1"]
    assert [line.get_color() for line in figure.axes[0].lines] == [SERIES[0], SERIES[1]]


def test_epochs_without_evaluation_and_losses_that_are_no_numbers(tmp_path):
    out = fake_run(tmp_path / "a", "zinc-12k", seeds=(0,), epochs=3)
    lines = [{"epoch": 1, "train_loss": 1.0}, {"epoch": 2, "train_loss": float("nan"), "val": 0.5}, {"epoch": 3}]
    (out / "seed-0/metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    left, right = learning_curves(group_variants(read_runs([out]).seeds)["zinc-12k"]).axes
    assert left.lines[0].get_xydata().tolist() == [[1, 1.0]]
    assert right.lines[0].get_xydata().tolist() == [[2, 0.5]]
    (out / "seed-0/metrics.jsonl").unlink()
    assert learning_curves(group_variants(read_runs([out]).seeds)["zinc-12k"]) is None


def test_bars_are_means_in_the_units_of_the_print(variants):
    (axis,) = ablation_bars(variants).axes
    bars = axis.patches[:2]
    for bar, variant in zip(bars, variants, strict=True):
        assert bar.get_width() == pytest.approx(100 * variant.spread("test").mean)
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["as shipped", "model.glob=none"]
    assert axis.get_legend().get_texts()[0].get_text() == "GSSC as published, 77.642 ± 0.456"
    assert axis.get_xlim()[0] > 0
    assert "does not start at zero" in axis.get_xlabel()
    assert ablation_bars(variants[:1]) is None


def test_svg_takes_its_colours_from_the_page_and_its_ids_are_its_own(variants):
    figure = ablation_bars(variants)
    first, second = (to_svg(figure, name, 'bars of "a" & <b>') for name in ("one", "two"))
    assert not any(colour in first for colour in ROLES)
    assert "currentColor" in first
    assert "var(--series-3)" in first
    assert INK not in first
    assert first.replace("one-", "two-") == second
    assert 'aria-label="bars of &quot;a&quot; &amp; &lt;b&gt;"' in first
    assert "http" not in first


def test_labels_are_not_formulas(tmp_path):
    fake_run(tmp_path / "a", "zinc-12k", seeds=(0,), epochs=3)
    out = fake_run(tmp_path / "b", "zinc-12k", ["optim.lr=0.5"], seeds=(0,), epochs=3)
    config = out / "seed-0/config.yaml"
    config.write_text(config.read_text().replace("lr: 0.5", "lr: $\\broken{<b>$"))
    figure = ablation_bars(group_variants(read_runs([tmp_path]).seeds)["zinc-12k"])
    assert "optim.lr=$\\broken{&lt;b&gt;$" in to_svg(figure, "x", "bars")
