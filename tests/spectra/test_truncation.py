import numpy as np
import pytest

from gssc.spectra.truncation import magnitude_order, merge_clusters, truncate


def test_clusters_take_their_mean_and_noise_becomes_zero():
    values, cluster = merge_clusters(np.array([-1e-17, 1e-16, 0.5 - 1e-15, 0.5 + 1e-15, 0.9]), 1e-14)
    assert values.tolist() == [0.0, 0.0, 0.5, 0.5, 0.9]
    assert cluster.tolist() == [0, 0, 1, 1, 2]


def test_clusters_of_nothing():
    assert merge_clusters(np.zeros(0), 1e-9)[0].size == 0


def test_magnitude_order_puts_plus_before_minus():
    values = np.array([-2.0 - 1e-15, -1.0, 0.0, 1.0, 2.0])
    assert values[magnitude_order(values, 1e-12)].tolist() == [2.0, -2.0 - 1e-15, 1.0, -1.0, 0.0]


@pytest.mark.parametrize(
    ("k", "mode", "zero", "kept"),
    [
        (3, "eigenspace", "keep", [0.0]),
        (3, "raw", "keep", [0.0, 1.0, 1.0]),
        (4, "eigenspace", "keep", [0.0, 1.0, 1.0, 1.0]),
        (6, "eigenspace", "keep", [0.0, 1.0, 1.0, 1.0, 2.0]),
        (3, "eigenspace", "drop", [1.0, 1.0, 1.0]),
        (2, "eigenspace", "drop", []),
    ],
)
def test_cut_keeps_whole_eigenspaces(k, mode, zero, kept):
    values = np.array([0.0, 1.0, 1.0, 1.0, 2.0])
    out = truncate(values, np.eye(5), k, tolerance=1e-12, truncation=mode, zero_modes=zero)
    assert out.values[out.mask].tolist() == kept
    assert out.mask.tolist() == [i < len(kept) for i in range(k)]
    assert (out.values[~out.mask] == 0).all()
    assert (out.vectors[:, ~out.mask] == 0).all()
    assert np.array_equal(np.abs(out.vectors[:, out.mask]).sum(0), np.ones(len(kept)))


def test_by_magnitude_ignores_zero_modes():
    out = truncate(np.array([-3.0, 0.0, 1.0]), np.eye(3), 3, tolerance=1e-12, by_magnitude=True, zero_modes="drop")
    assert out.values.tolist() == [-3.0, 1.0, 0.0]
    assert out.mask.all()
