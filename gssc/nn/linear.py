"""Whether the weights of Linears may be used without calling them."""

from torch import nn

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def plain_linears(*modules: nn.Module | None) -> bool:
    """Whether all (that are there) are PyTorch's own Linear with nobody listening.

    One that was replaced (adapters, quantisation) or has hooks (pruning, spectral norm, probes) must be called.
    """
    return all(
        module is None or (type(module) is nn.Linear and not any(getattr(module, hooks) for hooks in HOOKS))
        for module in modules
    )
