import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gssc.datasets.columns import decode_column, encode_column


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@given(
    st.sampled_from(["bool", "uint8", "int8", "int32", "int64", "float16", "float32", "float64"]).flatmap(
        lambda dtype: hnp.arrays(dtype, st.integers(0, 40))
    )
)
def test_any_column_comes_back_bit_for_bit(values):
    assert same(decode_column(*encode_column(values)), values)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.array([0.0, 1.0, 3.0], np.float32), "whole"),
        (np.array([0.0, -0.0, 1.0], np.float32), "half"),
        (np.array([0.5, 0.25, 1.0], np.float32), "half"),
        ((np.arange(1, 27) / np.float32(28)).astype(np.float32), "half"),
        (np.tile(np.array([0.123, 0.234, np.nan], np.float32), 9), "table"),
        (np.array([0.123, np.nan, np.inf], np.float32), "bits"),
        (np.array([3e9, 1.0], np.float64), "bits"),
    ],
)
def test_floats_take_the_smallest_form_that_keeps_every_bit(values, kind):
    data, how = encode_column(values)
    assert how["float"] == kind
    assert same(decode_column(data, how), values)


def test_sorted_numbers_are_stored_as_steps_and_constants_as_nothing():
    values = np.cumsum(np.random.default_rng(0).integers(1, 3, 50_000))
    data, how = encode_column(values)
    assert how["integers"]["as"] == "steps"
    assert len(data) < len(values) / 6
    assert same(decode_column(data, how), values)
    assert encode_column(np.full(1000, 7))[0] == b""


def test_extremes_of_int64():
    values = np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max, 0, -1])
    assert same(decode_column(*encode_column(values)), values)


def test_a_column_of_the_wrong_length_is_refused():
    data, how = encode_column(np.arange(1000) ** 2)
    for count in (999, 1001, -1):
        with pytest.raises(ValueError, match="column"):
            decode_column(data, {**how, "count": count})
    with pytest.raises(ValueError, match=r"a column (does not unpack|has 0 bytes)"):
        decode_column(b"not lzma", how)
    with pytest.raises(ValueError, match="no column of"):
        decode_column(data, {**how, "dtype": "object"})
