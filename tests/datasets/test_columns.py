import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gssc.datasets.columns import decode_array, encode_array, join_rows, split_rows


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@given(
    st.sampled_from(["bool", "uint8", "int8", "int32", "int64", "float16", "float32", "float64"]).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(max_dims=2, min_side=0, max_side=9))
    )
)
def test_any_array_comes_back_bit_for_bit(values):
    assert same(decode_array(*encode_array(values), values.size), values)


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
    assert same(decode_array(*encode_array(values), values.size), values)


def test_constants_take_no_bytes():
    assert encode_array(np.full(1000, 7))[0] == b""


def test_an_array_of_the_wrong_length_is_refused():
    data, how = encode_array(np.arange(1000) ** 2)
    for count in (999, 1001, -1):
        with pytest.raises(ValueError, match="array"):
            decode_array(data, {**how, "shape": [count]}, 2000)
    with pytest.raises(ValueError, match=r"no array of \[1000\] int64"):
        decode_array(data, how, 999)
    with pytest.raises(ValueError, match=r"an array (that does not unpack|of \d+ bytes)"):
        decode_array(b"not packed", how, 1000)
    with pytest.raises(ValueError, match="no array of"):
        decode_array(data, {**how, "dtype": "object"}, 1000)


def test_a_bomb_is_not_unpacked():
    """A stream of zeros without end is left at the announced size."""
    data, how = encode_array(np.r_[np.zeros(10**7, np.uint8), np.uint8(1)])
    with pytest.raises(ValueError, match="an array of 6 bytes instead of 5"):
        decode_array(data, {**how, "shape": [5]}, 10)


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
    columns = split_rows("x", values)
    assert ("x/row" in columns) == table
    assert same(join_rows("x", columns, list(values.shape)), values)


def test_a_table_that_would_make_a_larger_array_is_refused():
    columns = {"x": np.zeros((1, 1000)), "x/row": np.zeros(1000, np.int64)}
    with pytest.raises(ValueError, match="rows that do not fit x"):
        join_rows("x", columns, [1000, 3])
