import numpy as np
import pytest

from gssc.datasets.rows import decode_rows, encode_rows


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.eye(7, dtype=np.float32)[np.random.default_rng(0).integers(0, 7, 5000)], "table"),
        (np.random.default_rng(0).integers(0, 2, (5000, 2)), "columns"),
        (np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32), "columns"),
        (np.array([[0.0, -0.0], [-0.0, 0.0]] * 500, np.float32), "columns"),
        (np.zeros((0, 3), np.int64), "columns"),
        (np.arange(5), "column"),
    ],
)
def test_arrays_come_back_as_they_were(values, kind):
    columns = {}
    how = encode_rows("x", values, columns)
    assert how["as"] == kind
    back = decode_rows("x", how, columns)
    assert (back.dtype, back.shape, back.tobytes()) == (values.dtype, values.shape, values.tobytes())


def test_nothing_stays_nothing():
    assert decode_rows("x", encode_rows("x", None, {}), {}) is None
