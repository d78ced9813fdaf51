"""Where the time of one large spectrum goes: seconds spent in each stage, stages within stages not counted twice.

The device is waited for at every change of stage, so that the sum is somewhat larger than the time without it.
"""

import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

# Module, attribute (of a class where there is a dot) and the stage it belongs to.
STAGES = (
    ("gssc.spectra.device_graph", "DeviceGraph.from_scipy", "copy to the device"),
    ("gssc.spectra.device_graph", "DeviceGraph.labels", "components"),
    ("gssc.spectra.solve", "find_components", "components"),
    ("gssc.spectra.device_graph", "DeviceGraph.laplacian", "operator"),
    ("gssc.spectra.solve", "build_operator", "operator"),
    ("gssc.spectra.sparse_operator", "SparseOperator.from_scipy", "copy to the device"),
    ("gssc.spectra.krylov", "spectral_edges", "density of eigenvalues"),
    ("gssc.spectra.chebyshev", "spectral_edges", "density of eigenvalues"),
    ("gssc.spectra.chebyshev_filter", "ChebyshevFilter.filtered", "filter"),
    ("gssc.spectra.krylov", "_Space.expand", "orthonormal basis"),
    ("gssc.spectra.chebyshev_filter", "ChebyshevFilter.orthonormal", "orthonormal basis"),
    ("gssc.spectra.krylov", "_Space.pairs", "Rayleigh-Ritz"),
    ("gssc.spectra.krylov", "_Space.ritz", "Rayleigh-Ritz"),
    ("gssc.spectra.chebyshev_filter", "ChebyshevFilter.residual_norms", "Rayleigh-Ritz"),
    ("gssc.spectra.chebyshev_filter", "ChebyshevFilter.rayleigh_ritz", "Rayleigh-Ritz"),
    ("gssc.spectra.miss_check", "MissCheck.miss_probability", "certificate"),
    ("gssc.spectra.solver_choice", "negative_count", "certificate"),
    ("gssc.spectra.solver_choice", "is_cheap", "estimate of the fill"),
    ("gssc.spectra.solver_choice", "solve_shift_invert", "shift-invert"),
    ("gssc.spectra.solver_choice", "solve_lobpcg", "LOBPCG"),
    ("gssc.spectra.solve", "to_host", "copy to the host"),
    ("gssc.spectra.chebyshev", "to_host", "copy to the host"),
)
# A filter or a product that runs inside the certificate is the certificate's.
WHOLE = ("certificate", "density of eigenvalues")


@contextmanager
def stages(device: str) -> Iterator[dict[str, float]]:
    """Inside, fill a dictionary of seconds by stage; what belongs to none is under "rest" at the end."""
    spent: dict[str, float] = {}
    stack = ["rest"]
    clock = [0.0]

    def now() -> float:
        if device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter()

    def turn() -> None:
        moment = now()
        spent[stack[-1]] = spent.get(stack[-1], 0.0) + moment - clock[0]
        clock[0] = moment

    def watched(function: Callable[..., Any], stage: str) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            turn()
            stack.append(stack[-1] if stack[-1] in WHOLE else stage)
            try:
                return function(*given, **named)
            finally:
                turn()
                stack.pop()

        return run

    undo: list[tuple[Any, str, Any]] = []
    try:
        for module, path, stage in STAGES:
            owner: Any = importlib.import_module(module)
            *classes, name = path.split(".")
            for part in classes:
                owner = getattr(owner, part)
            plain = vars(owner)[name]
            undo.append((owner, name, plain))
            wrapped = watched(plain.__func__, stage) if isinstance(plain, classmethod) else watched(plain, stage)
            setattr(owner, name, classmethod(wrapped) if isinstance(plain, classmethod) else wrapped)
        clock[0] = now()
        yield spent
        turn()
    finally:
        for owner, name, plain in reversed(undo):
            setattr(owner, name, plain)
