import pytest
import torch
from small_run import small_dataset, small_recipe

from gssc.nn.norm import in_eval_mode
from gssc.train.build import build_model, build_stores
from gssc.train.evaluate import batches_in_order, default_dtype, predictions, raw_outputs
from gssc.train.evaluate import score as score_of


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    dataset, recipe = small_dataset(root), small_recipe()
    stores = build_stores(dataset, recipe, torch.device("cpu"), root / "cache")
    torch.manual_seed(0)
    return build_model(recipe, dataset.about()), stores, dataset.task


def test_batches_are_all_graphs_in_their_order(parts):
    _, stores, _ = parts
    store = stores["train"]
    batches = list(batches_in_order(store, 5))
    assert [batch.inputs["num_graphs"] for batch in batches] == [5, 5, 2]
    assert torch.equal(torch.cat([batch.y for batch in batches]), store.y[:-1])


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_scores_do_not_depend_on_the_batches(parts, batch_size):
    model, stores, task = parts
    loss, score = score_of(raw_outputs(model, stores["test"], batch_size, "float32"), stores["test"], task)
    raw = raw_outputs(model, stores["test"], batch_size, "float32")
    prediction, target = predictions(raw, stores["test"], task).values()
    expected = float((prediction - target).abs().mean() / task.scale)
    assert score == pytest.approx(expected, rel=1e-5)
    assert loss == pytest.approx(expected, rel=1e-5)
    assert prediction.shape == target.shape == (stores["test"].y.shape[0] - 1, 1)


def test_masked_rows_are_left_out(parts):
    model, stores, task = parts
    store = stores["test"]
    rows = store.y.shape[0]
    store.mask = torch.arange(rows) % 3 == 0
    store.mask[-1] = False
    try:
        prediction, target = predictions(raw_outputs(model, store, 2, "float32"), store, task).values()
        assert target.shape[0] == int(store.mask.sum())
        loss, score = score_of(raw_outputs(model, store, 2, "float32"), store, task)
        assert score == pytest.approx(float((prediction - target).abs().mean() / task.scale), rel=1e-5)
        assert loss == pytest.approx(score, rel=1e-5)
    finally:
        store.mask = None


def test_evaluation_leaves_the_model_as_it_was(parts):
    model, stores, _ = parts
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for training in (True, False):
        model.train(training)
        raw_outputs(model, stores["val"], 2, "float32")
        assert model.training is training
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


def test_the_mode_comes_back_after_an_error(parts):
    model, _, _ = parts
    model.train()
    with in_eval_mode(model):
        assert not model.training
    with pytest.raises(ZeroDivisionError), in_eval_mode(model):
        1 / 0  # noqa: B018
    assert model.training


def test_the_default_dtype_comes_back():
    with default_dtype("float64"):
        assert torch.get_default_dtype() == torch.float64
    with pytest.raises(ZeroDivisionError), default_dtype("float64"):
        1 / 0  # noqa: B018
    assert torch.get_default_dtype() == torch.float32
    with default_dtype("bf16"):
        assert torch.get_default_dtype() == torch.float32
