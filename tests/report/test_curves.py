import numpy as np
import pytest
from sklearn import metrics

from gssc.report.figures import confusion, ranking_curves


@pytest.fixture(params=[0, 1, 2])
def ranked(request):
    """Scores with many ties, and labels."""
    random = np.random.default_rng(request.param)
    labels = (random.random(300) < 0.2).astype(float)
    return np.round(random.normal(size=300) + labels, [1, 0, 6][request.param]), labels


def test_roc(ranked):
    scores, labels = ranked
    false, true, _, area, _ = ranking_curves(scores, labels)
    expected = metrics.roc_curve(labels, scores, drop_intermediate=False)
    np.testing.assert_allclose(false, expected[0], atol=1e-15)
    np.testing.assert_allclose(true, expected[1], atol=1e-15)
    assert area == pytest.approx(metrics.roc_auc_score(labels, scores), abs=1e-12)


def test_precision_recall(ranked):
    scores, labels = ranked
    _, recall, precision, _, average = ranking_curves(scores, labels)
    expected_precision, expected_recall, _ = metrics.precision_recall_curve(labels, scores)
    np.testing.assert_allclose(recall[::-1], expected_recall, atol=1e-15)
    np.testing.assert_allclose(precision[::-1], expected_precision, atol=1e-15)
    assert average == pytest.approx(metrics.average_precision_score(labels, scores), abs=1e-12)


def test_confusion_leaves_out_unknown_classes():
    random = np.random.default_rng(0)
    probabilities, classes = random.random((200, 4)), random.integers(-1, 3, 200)
    known = classes >= 0
    expected = metrics.confusion_matrix(classes[known], probabilities[known].argmax(1), labels=range(4))
    np.testing.assert_array_equal(confusion(probabilities, classes), expected)
