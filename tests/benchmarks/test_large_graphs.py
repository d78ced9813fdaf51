"""Graphs of the benchmarks: connected, simple, of the size that was asked for, the same for the same seed."""

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from benchmarks import large_graphs


@pytest.mark.parametrize("name", ["geometric", "grid", "powerlaw", "random"])
def test_connected_simple_and_repeatable(name):
    make = getattr(large_graphs, name)
    adjacency = make(900, seed=1)
    assert 800 <= adjacency.shape[0] <= 900
    assert connected_components(adjacency)[0] == 1
    assert (adjacency != adjacency.T).nnz == 0
    assert not adjacency.diagonal().any()
    assert set(np.unique(adjacency.data)) == {1.0}
    assert (adjacency != make(900, seed=1)).nnz == 0
