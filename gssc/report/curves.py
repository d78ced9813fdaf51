"""Numbers behind the plots of predictions: confusion counts, ROC and precision-recall curves. NumPy alone."""

import numpy as np


def confusion(probabilities: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Counts [true class, predicted class] from probabilities [rows, C]; negative classes are unknown and left out."""
    known = classes.reshape(-1) >= 0
    size = probabilities.shape[1]
    true, predicted = classes.reshape(-1)[known].astype(np.int64), probabilities[known].argmax(1)
    return np.bincount(true * size + predicted, minlength=size * size).reshape(size, size)


def roc_curve(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """False-positive rates, true-positive rates and the area under them.

    One point for each distinct score, so that ties are crossed in a straight line.
    """
    hits, misses = _counts(scores, labels)
    false, true = misses / misses[-1], hits / hits[-1]
    return false, true, float(np.sum(np.diff(false) * (true[1:] + true[:-1])) / 2)


def precision_recall_curve(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Recalls, precisions and their average precision Σ (Rᵢ - Rᵢ₋₁) Pᵢ."""
    hits, misses = _counts(scores, labels)
    recall = hits / hits[-1]
    precision = np.concatenate([[1.0], hits[1:] / (hits[1:] + misses[1:])])
    return recall, precision, float(np.sum(np.diff(recall) * precision[1:]))


def _counts(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positives and negatives at or above each distinct score, from the highest down, starting from none."""
    order = np.argsort(-scores, kind="stable")
    scores, positive = scores[order], labels[order] > 0.5
    last = np.append(np.flatnonzero(np.diff(scores)), scores.size - 1)
    hits = np.cumsum(positive)[last]
    return np.concatenate([[0], hits]), np.concatenate([[0], last + 1 - hits])
