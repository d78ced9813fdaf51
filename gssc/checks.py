"""Argument checks that speak to people: one line naming the argument, what was expected, what came."""

import difflib
import importlib.util
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:  # `gssc --help` needs checks, but no tensors
    import torch
    from torch import Tensor

LONGEST = 300  # characters of an error
MOST_NEAR, LONGEST_NEAR = 1000, 100  # options, and their characters, among which the nearest one is sought


def shorten(text: str, most: int = LONGEST) -> str:
    """One line of printable characters; what is too long loses its middle."""
    if len(text) > most:
        end = most // 3
        text = f"{text[: most - end - 3]} … {text[-end:]}"
    return "".join(c if c.isprintable() else " " for c in text)


def first_line(error: BaseException) -> str:
    """What an error says in its first line; its name, where it says nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def fail(argument: str, expected: str, got: object) -> NoReturn:
    """Raise the one-line ValueError that every check of the package ends in."""
    raise ValueError(shorten(f"{argument}: expected {expected}, got {got}"))


def check_shape(argument: str, tensor: "Tensor", *shape: int | None) -> None:
    """Fail unless ``tensor`` has this shape; ``None`` stands for any size."""
    from torch import Tensor

    if not isinstance(tensor, Tensor):
        fail(argument, "a tensor", type(tensor).__name__)
    fits = tensor.dim() == len(shape)
    for have, want in zip(tensor.shape, shape, strict=False):
        fits = fits and (want is None or have == want)
    if not fits:
        wanted = ", ".join("*" if size is None else str(size) for size in shape)
        fail(argument, f"shape [{wanted}]", list(tensor.shape))


def check_pairs(argument: str, pairs: "Tensor | None", nodes: int) -> None:
    """Fail unless these are pairs of node numbers, [2, M]; the numbers are looked at on a CPU (no GPU has to wait)."""
    import torch

    if pairs is None:
        fail(argument, "pairs of nodes, [2, M]", "None")
    check_shape(argument, pairs, 2, None)
    if pairs.is_floating_point() or pairs.dtype == torch.bool:
        fail(argument, "node numbers", pairs.dtype)
    if pairs.device.type == "cpu" and not torch.compiler.is_compiling() and pairs.numel():
        low, high = int(pairs.min()), int(pairs.max())
        if low < 0 or high >= nodes:
            fail(argument, f"node numbers in 0..{nodes - 1}", f"{low}..{high}")


def check_device(argument: str, name: "str | torch.device", *, present: bool = True) -> "torch.device":
    """The device of this name; fail where there can be none, or, if it must be present, where there is none."""
    import torch

    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        fail(argument, "a device such as 'cpu' or 'cuda'", repr(name))
    if present and device.type == "cuda" and not torch.cuda.is_available():
        fail(argument, "'cpu' (no GPU was found)", repr(str(name)))
    return device


def check_installed(argument: str, package: str) -> None:
    """Fail unless an optional package is there, naming what to install."""
    if importlib.util.find_spec(package) is None:
        fail(argument, f"the package {package} (pip install {package})", "no such package")


def check_choice(argument: str, value: object, choices: Iterable[object]) -> None:
    """Fail unless ``value`` is one of ``choices``, naming the nearest one."""
    options = list(choices)
    if value in options:
        return
    names = [str(option)[:LONGEST_NEAR] for option in options[:MOST_NEAR]]
    near = difflib.get_close_matches(str(value)[:LONGEST_NEAR], names, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    fail(argument, "one of " + ", ".join(repr(option) for option in options), f"{value!r}{hint}")


def check_positive(argument: str, value: int) -> None:
    """Fail unless ``value`` is an integer of at least one."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        fail(argument, "a positive integer", repr(value))


def check_probability(argument: str, value: float) -> None:
    """Fail unless 0 <= ``value`` < 1."""
    if not 0.0 <= value < 1.0:
        fail(argument, "a probability in [0, 1)", repr(value))


def check_at_least_zero(argument: str, value: float) -> None:
    """Fail unless ``value`` is a finite number that is not negative."""
    if not 0.0 <= value < math.inf:
        fail(argument, "a finite number of at least 0", repr(value))


def check_shapes(*triples: "tuple[str, Tensor | None, tuple[int | None, ...]]") -> None:
    """`check_shape` of several arguments (name, tensor, shape) in one call; tensors that are ``None`` are left out."""
    for argument, tensor, shape in triples:
        if tensor is not None:
            check_shape(argument, tensor, *shape)
