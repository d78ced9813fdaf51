import pytest
import torch

from gssc.checks import check_choice, check_device, check_installed, check_positive, check_probability, check_shape


def test_good_values_pass():
    check_shape("x", torch.zeros(2, 3), None, 3)
    check_choice("mode", "a", ("a", "b"))
    check_positive("k", 3)
    check_probability("p", 0.0)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda: check_shape("x", torch.zeros(2, 3), None, 4), r"x: expected shape \[\*, 4\], got \[2, 3\]"),
        (lambda: check_shape("x", torch.zeros(2), 2, 1), r"x: expected shape \[2, 1\], got \[2\]"),
        (lambda: check_shape("x", None, 2), "x: expected a tensor, got NoneType"),
        (lambda: check_device("device", "gpu"), "device: expected a device such as 'cpu' or 'cuda', got 'gpu'"),
        (lambda: check_choice("mode", "alpa", ("alpha", "beta")), r"got 'alpa' \(did you mean 'alpha'\?\)"),
        (lambda: check_choice("mode", 7, ("alpha",)), "mode: expected one of 'alpha', got 7$"),
        (lambda: check_positive("k", True), "k: expected a positive integer, got True"),
        (lambda: check_positive("k", 1.5), "k: expected a positive integer, got 1.5"),
        (lambda: check_probability("p", 1.0), r"p: expected a probability in \[0, 1\), got 1.0"),
    ],
)
def test_bad_values_name_argument_expectation_and_value(action, message):
    with pytest.raises(ValueError, match=message):
        action()


def test_installed():
    check_installed("plot", "numpy")
    with pytest.raises(
        ValueError, match=r"^plot: expected the package no_such_thing \(pip install no_such_thing\), got no"
    ):
        check_installed("plot", "no_such_thing")
