import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gssc.padding import Shape, smallest_fit, static_shapes

COUNTS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 200)), min_size=1, max_size=30)


@given(counts=COUNTS, batch_size=st.integers(1, 40), seed=st.integers(0, 100))
def test_some_shape_holds_every_batch(counts, batch_size, seed):
    nodes, edges = (torch.tensor(column) for column in zip(*counts, strict=True))
    shapes = static_shapes(nodes, edges, batch_size)
    assert 1 <= len(shapes) <= 3
    order = torch.randperm(len(counts), generator=torch.Generator().manual_seed(seed))
    worst = [nodes.argsort(descending=True)[:batch_size], edges.argsort(descending=True)[:batch_size]]
    for graphs in [*order.split(batch_size), *worst]:
        size = (graphs.numel(), int(nodes[graphs].sum()), int(edges[graphs].sum()))
        fit = smallest_fit(shapes, *size)
        assert fit.fits(*size)
        assert not any(shape.fits(*size) for shape in shapes[: shapes.index(fit)])


@given(counts=COUNTS, batch_size=st.integers(1, 40))
def test_shapes_grow(counts, batch_size):
    nodes, edges = (torch.tensor(column) for column in zip(*counts, strict=True))
    shapes = static_shapes(nodes, edges, batch_size)
    for small, large in itertools.pairwise(shapes):
        assert small.nodes <= large.nodes
        assert small.edges <= large.edges
    assert all(shape.nodes % 64 == 0 and shape.edges % 64 == 0 for shape in shapes)


def test_random_batches_mostly_take_the_smaller_shapes():
    generator = torch.Generator().manual_seed(0)
    nodes = torch.randint(10, 40, (2000,), generator=generator)
    shapes = static_shapes(nodes, 2 * nodes, 64, granularity=8)
    taken = []
    for graphs in torch.randperm(2000, generator=generator)[: 64 * 31].split(64):
        total = int(nodes[graphs].sum())
        taken.append(shapes.index(smallest_fit(shapes, 64, total, 2 * total)))
    assert taken.count(0) >= 15
    assert taken.count(2) <= 1


def test_at_least_one_node_is_padding():
    assert not Shape(2, 10, 4).fits(2, 10, 4)
    assert Shape(2, 10, 4).fits(2, 9, 4)


def test_a_batch_that_no_shape_holds_is_refused():
    with pytest.raises(ValueError, match="batch: expected no larger than"):
        smallest_fit([Shape(2, 10, 4)], 3, 1, 1)
