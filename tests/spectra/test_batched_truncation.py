"""The vectorised truncation against `truncate`, row by row, on equal input."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gssc.spectra.batched_truncation import gather_rows, merge_clusters_batched, select_batched
from gssc.spectra.truncation import merge_clusters, truncate

TOLERANCE = 1e-9
# Few distinct values, both signs, zeros, and noise below the tolerance: clusters and ties everywhere.
VALUE = st.tuples(st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0]), st.sampled_from([0.0, 1e-10, -3e-10]))
ROWS = st.lists(st.lists(VALUE.map(sum), min_size=1, max_size=9), min_size=1, max_size=5)


def padded(rows: list[list[float]]) -> tuple[torch.Tensor, torch.Tensor, list[np.ndarray]]:
    """Ascending rows padded beyond their largest value, their lengths, and the rows themselves."""
    arrays = [np.sort(np.array(row)) for row in rows]
    size = max(map(len, arrays))
    values = torch.full((len(rows), size), 100.0, dtype=torch.float64)
    for target, array in zip(values, arrays, strict=True):
        target[: len(array)] = torch.from_numpy(array)
    return values, torch.tensor([len(a) for a in arrays]), arrays


@settings(deadline=None, max_examples=150)
@given(ROWS)
def test_clusters_equal_those_of_each_row(rows: list[list[float]]) -> None:
    values, count, arrays = padded(rows)
    merged, cluster = merge_clusters_batched(values, count, torch.full((len(rows),), TOLERANCE, dtype=torch.float64))
    for i, array in enumerate(arrays):
        want, number = merge_clusters(array, TOLERANCE)
        assert np.array_equal(merged[i, : len(array)].numpy(), want)
        assert np.array_equal(cluster[i, : len(array)].numpy(), number)


@settings(deadline=None, max_examples=300)
@given(
    ROWS,
    st.integers(1, 11),
    st.booleans(),
    st.sampled_from(["keep", "drop"]),
    st.sampled_from(["eigenspace", "raw"]),
)
def test_selection_equals_truncate(rows, k, by_magnitude, zero_modes, truncation) -> None:
    values, count, arrays = padded(rows)
    options = {"by_magnitude": by_magnitude, "zero_modes": zero_modes, "truncation": truncation}
    chosen = select_batched(values, count, k, tolerance=torch.full((len(rows),), TOLERANCE).double(), **options)
    size = values.shape[1]
    vectors = torch.randn(len(rows), size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kept = gather_rows(vectors, chosen.index, chosen.mask)
    for i, array in enumerate(arrays):
        n = len(array)
        want = truncate(array, vectors[i, :n, :].T.numpy(), k, tolerance=TOLERANCE, **options)
        assert np.array_equal(chosen.values[i].numpy(), want.values)
        assert np.array_equal(chosen.mask[i].numpy(), want.mask)
        assert np.array_equal(kept[i].T.numpy(), want.vectors)
        assert int(chosen.available[i]) == want.available


@pytest.mark.parametrize(
    ("k", "truncation", "gap"),
    [(2, "eigenspace", 0.5), (3, "eigenspace", 0.5), (3, "raw", 0.0), (4, "raw", 2.0), (5, "eigenspace", np.inf)],
)
def test_gap_at_the_cut(k: int, truncation: str, gap: float) -> None:
    values = torch.tensor([[0.0, 0.5, 1.0, 1.0, 3.0]], dtype=torch.float64)
    tolerance = torch.tensor([TOLERANCE], dtype=torch.float64)
    chosen = select_batched(values, torch.tensor([5]), k, tolerance=tolerance, truncation=truncation)
    assert float(chosen.gap) == gap
