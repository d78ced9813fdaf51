import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gssc.datasets.columns import decode_column, encode_column, join_columns, split_columns


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@given(
    st.sampled_from(["bool", "uint8", "int8", "int32", "int64", "float16", "float32", "float64"]).flatmap(
        lambda dtype: hnp.arrays(dtype, st.integers(0, 40))
    )
)
def test_any_column_comes_back_bit_for_bit(values):
    assert same(decode_column(*encode_column(values), len(values)), values)


@pytest.mark.parametrize(
    "values",
    [
        np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max, 0, -1]),
        np.array([0.0, -0.0, np.nan, np.inf, 3e9], np.float64),
        np.random.default_rng(0).integers(0, 2**20, 5000),
        np.random.default_rng(0).random(5000) < 0.3,
    ],
)
def test_extremes_and_noise_come_back(values):
    assert same(decode_column(*encode_column(values), len(values)), values)


def test_constants_take_no_bytes():
    assert encode_column(np.full(1000, 7))[0] == b""


def test_a_column_of_the_wrong_length_is_refused():
    data, how = encode_column(np.arange(1000) ** 2)
    for count in (999, 1001, -1):
        with pytest.raises(ValueError, match="column"):
            decode_column(data, {**how, "count": count}, 2000)
    with pytest.raises(ValueError, match="no column of 1000 int64"):
        decode_column(data, how, 999)
    with pytest.raises(ValueError, match=r"a column (that does not unpack|of \d+ bytes)"):
        decode_column(b"not packed", how, 1000)
    with pytest.raises(ValueError, match="no column of"):
        decode_column(data, {**how, "dtype": "object"}, 1000)


def test_a_bomb_is_not_unpacked():
    """A stream of zeros without end is left at the announced size."""
    data, how = encode_column(np.r_[np.zeros(10**7, np.uint8), np.uint8(1)])
    with pytest.raises(ValueError, match="a column of 6 bytes instead of 5"):
        decode_column(data, {**how, "count": 5}, 10)


@pytest.mark.parametrize(
    ("values", "table"),
    [
        (np.eye(7, dtype=np.float32)[np.random.default_rng(0).integers(0, 7, 5000)], True),
        (np.random.default_rng(0).integers(0, 2, (5000, 2)), True),
        (np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32), False),
        (np.array([[0.0, -0.0], [-0.0, 0.0]] * 500, np.float32), True),
        (np.zeros((0, 3), np.int64), False),
        (np.zeros((4, 0), np.float32), False),
        (np.arange(5), False),
    ],
)
def test_arrays_come_back_as_they_were(values, table):
    columns = split_columns("x", values)
    assert ("x/row" in columns) == table
    assert same(join_columns("x", columns, str(values.dtype), list(values.shape)), values)
