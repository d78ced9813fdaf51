"""A run that follows several protocols against runs that have each of them as their own."""

import json

import pytest
import torch
from small_run import outcome, run_small, timeless

from gssc.files import load_tensors
from gssc.train.seeds import aggregate

ALSO = {
    "running": (),
    "reestimated": ("train.batch_stats=reestimated",),
    "ema=0.9": ("train.ema=0.9",),
    "ema=0.5+reestimated": ("train.ema=0.5", "train.batch_stats=reestimated"),
}
EPOCHS = ("train.epochs=5", "optim.lr=0.05")  # so large that the scores go up and down


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    run_small(folder, "all", *EPOCHS, f"train.also={','.join(ALSO)}", "train.also_every=2")
    run_small(folder, "plain", *EPOCHS)
    return folder


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text())


@pytest.mark.parametrize("name", [name for name in ALSO if name != "running"])
def test_each_selects_and_scores_as_it_does_alone(root, name):
    alone, expected = run_small(root, name, *EPOCHS, *ALSO[name], "train.eval_every=2")
    found = summary_of(root / "all")["protocols"][name]
    assert expected["protocol"] == name
    assert "protocols" not in expected
    assert (found["val"], found["test"]) == (expected["validation"], expected["test"])
    assert found["epoch"] == expected["epoch_selected"]
    weights, about = load_tensors(root / "all" / f"model-{name}.safetensors")
    torch.testing.assert_close(weights, load_tensors(alone / "model.safetensors")[0], rtol=0, atol=0)
    assert about["protocol"] == name
    vals = [outcome(folder)["metrics"] for folder in (root / "all", alone)]
    assert [record.get(f"val_{name}") for record in vals[0]] == [record.get("val") for record in vals[1]]
    assert [record["epoch"] for record in vals[0] if f"val_{name}" in record] == [2, 4, 5]
    # Evaluated at the end alone, the last weights are those that are selected.
    _, last = run_small(root, f"last {name}", *EPOCHS, *ALSO[name], "train.eval_every=9")
    assert (found["last_val"], found["last_test"]) == (last["validation"], last["test"])


def test_the_own_one_is_what_it_is_without_the_others(root):
    plain, expected = root / "plain", summary_of(root / "plain")
    _, last = run_small(root, "last", *EPOCHS, "train.eval_every=9")
    before, after, summary = outcome(plain), outcome(root / "all"), summary_of(root / "all")
    assert load_tensors(plain / "model.safetensors")[0].keys() == load_tensors(root / "all/model.safetensors")[0].keys()
    for name in ("predictions.safetensors", "model.safetensors"):
        tensors = [load_tensors(folder / name)[0] for folder in (plain, root / "all")]
        torch.testing.assert_close(*tensors, rtol=0, atol=0)
    for old, new in zip(before["metrics"], after["metrics"], strict=True):
        assert old == {key: value for key, value in new.items() if key in old}
        assert all(key.startswith("val_") for key in new.keys() - old.keys())
    assert timeless(expected) == timeless({key: value for key, value in summary.items() if key != "protocols"})
    own = summary["protocols"]["running"]
    assert set(summary["protocols"]) == set(ALSO)
    assert (own["val"], own["test"], own["epoch"]) == tuple(
        expected[key] for key in ("validation", "test", "epoch_selected")
    )
    assert (own["last_val"], own["last_test"]) == (last["validation"], last["test"])
    assert not (root / "all" / "model-running.safetensors").exists()
    assert len({entry["val"] for entry in summary["protocols"].values()}) > 1


def test_seeds_are_taken_together(root):
    summaries = [summary_of(root / "all")] * 2
    total = aggregate(summaries)["protocols"]
    assert set(total) == set(ALSO)
    first = summaries[0]["protocols"]["ema=0.9"]["last_test"]
    assert total["ema=0.9"]["last_test"] == {"mean": first, "std": 0.0, "values": [first, first]}
    assert "protocols" not in aggregate([summaries[0], summary_of(root / "plain")])
