"""Whether the weights of modules may be used without calling them."""

from torch import nn

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def plain_linears(*modules: nn.Module | None) -> bool:
    """Whether all (that are there) are PyTorch's own Linear with nobody listening.

    One that was replaced (adapters, quantisation) or has hooks (pruning, spectral norm, probes) must be called.
    """
    return all(module is None or (type(module) is nn.Linear and not _has_hooks(module)) for module in modules)


def plain_embeddings(*modules: nn.Module) -> bool:
    """Whether all are PyTorch's own Embedding without hooks and options."""
    return all(
        type(module) is nn.Embedding
        and not _has_hooks(module)
        and module.padding_idx is None
        and module.max_norm is None
        and not module.scale_grad_by_freq
        and not module.sparse
        for module in modules
    )


def plain_layer_norms(*modules: nn.Module) -> bool:
    """Whether all are PyTorch's own LayerNorm of the last dimension, with weight and bias, no hooks and no options."""
    return all(
        type(module) is nn.LayerNorm
        and not _has_hooks(module)
        and len(module.normalized_shape) == 1
        and module.eps == 1e-5
        and module.weight is not None
        and module.bias is not None
        for module in modules
    )


def plain_silus(*modules: nn.Module) -> bool:
    """Whether all are PyTorch's own SiLU without hooks."""
    return all(type(module) is nn.SiLU and not _has_hooks(module) for module in modules)


def plain_sequences(*modules: nn.Module) -> bool:
    """Whether all are PyTorch's own Sequential without hooks; what is inside must be asked for itself."""
    return all(type(module) is nn.Sequential and not _has_hooks(module) for module in modules)


def _has_hooks(module: nn.Module) -> bool:
    return any(getattr(module, hooks) for hooks in HOOKS)
