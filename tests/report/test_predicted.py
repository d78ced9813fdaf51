import numpy as np
import pytest
from report.fake_runs import fake_run
from safetensors.numpy import load_file, save_file

from gssc.report.figures import predictions_plot
from gssc.report.runs import read_runs
from gssc.report.svg import drawing_style, to_svg


def run_of(tmp_path, recipe, **tensors):
    out = fake_run(tmp_path, recipe, seeds=(0,), epochs=3)
    if tensors:
        save_file(tensors, out / "seed-0/predictions.safetensors")
    return read_runs([out]).seeds[0]


@pytest.fixture(autouse=True)
def _style():
    with drawing_style():
        yield


def test_regression_is_a_scatter_for_each_target(tmp_path):
    figure, caption = predictions_plot(run_of(tmp_path, "peptides-struct"))
    drawn = [axis for axis in figure.axes if axis.axison]
    assert len(drawn) == 11
    assert caption == "181 of 2,000 rows drawn"
    tensors = load_file(tmp_path / "seed-0/predictions.safetensors")
    prediction, target = tensors["prediction"], tensors["target"]
    assert prediction.shape == target.shape == (2000, 11)
    # The points lie at (true, predicted), and the error is that of all rows.
    points = drawn[2].collections[0].get_offsets()
    rows = np.isin(target[:, 2], points[:, 0].astype(np.float32))
    np.testing.assert_array_equal(np.sort(prediction[rows, 2]), np.sort(points[:, 1].astype(np.float32)))
    assert drawn[2].get_title() == f"target 3, MAE {np.abs(prediction - target)[:, 2].mean():.3g}"


def test_classes_are_a_confusion_matrix(tmp_path):
    probabilities = np.eye(10, dtype=np.float32)[[0, 1, 1, 1, 9]]
    figure, caption = predictions_plot(
        run_of(tmp_path, "cifar10", prediction=probabilities, target=np.array([0, 0, 0, 1, -1]))
    )
    numbers = {text.get_position(): text.get_text() for text in figure.axes[0].texts}
    assert numbers == {(0, 0): "33", (1, 0): "67", (1, 1): "100"}
    assert caption == "percent of each true class, 4 rows"


def test_labels_are_curves(tmp_path):
    scores = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.9], [0.1, 0.3]], dtype=np.float32)
    labels = np.array([[1, 0], [1, 0], [0, 0], [np.nan, 0]], dtype=np.float32)
    figure, caption = predictions_plot(run_of(tmp_path, "peptides-func", prediction=scores, target=labels))
    # The second label is never there, so that only the first has curves.
    assert figure.axes[0].get_title() == "ROC, area 1.0000"
    assert figure.axes[1].get_title() == "precision-recall, AP 1.0000"
    assert caption == "4 rows"


@pytest.mark.parametrize(
    ("recipe", "prediction", "target"),
    [
        ("zinc-12k", np.full((3, 1), np.nan), np.full((3, 1), np.nan)),
        ("zinc-12k", np.zeros((0, 1)), np.zeros((0, 1))),
        ("zinc-12k", np.zeros((1, 1)), np.zeros(1)),
        ("molhiv", np.zeros((0, 1)), np.zeros((0, 1))),
        ("molhiv", np.ones((4, 1)), np.ones((4, 1))),
        ("cifar10", np.ones((2, 10)), np.array([-1, -1])),
        ("cifar10", np.zeros((0, 10)), np.zeros(0, dtype=np.int64)),
    ],
)
def test_nothing_to_draw_is_no_failure(tmp_path, recipe, prediction, target):
    figure, _ = predictions_plot(run_of(tmp_path, recipe, prediction=prediction, target=target))
    assert to_svg(figure, "x", "empty").startswith("<svg")


@pytest.mark.parametrize(
    ("recipe", "prediction", "target", "message"),
    [
        ("zinc-12k", np.zeros((3, 2)), np.zeros((3, 1)), r"targets of shape \(3, 2\), got \(3, 1\)"),
        ("zinc-12k", np.zeros((3, 1)), np.zeros((2, 1)), "as many targets as predictions"),
        ("zinc-12k", np.zeros(3), np.zeros(3), "as many targets as predictions"),
        ("cifar10", np.zeros((3, 10)), np.zeros((3, 10)), "one class for each prediction"),
        ("cifar10", np.zeros((3, 10)), np.array([0, 10, 1]), "classes below 10, got 10"),
    ],
)
def test_tensors_that_do_not_fit(tmp_path, recipe, prediction, target, message):
    with pytest.raises(ValueError, match=f"predictions.safetensors: expected .*{message}"):
        predictions_plot(run_of(tmp_path, recipe, prediction=prediction, target=target))


def test_no_predictions_yet(tmp_path):
    run = run_of(tmp_path, "zinc-12k")
    (run.folder / "predictions.safetensors").unlink()
    assert predictions_plot(run) is None
