"""The graph state space convolution as a module."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from gssc.checks import check_choice, check_positive, check_shape, fail
from gssc.nn.reset import Resets
from gssc.ops import conv_features, conv_of_linears, degree_scale, frequency_gains, gssc_conv, selective_gssc_conv
from gssc.ops.context import Gains, GraphContext, batch_to_ptr
from gssc.ops.conv import Projection, joint_frequency_gains

Kernel = Literal["channel", "shared"]
DegreeInit = Literal["one", "small"]


class GSSConv(Resets, nn.Module):
    r"""Graph state space convolution: every node hears from every other, at linear cost.

    Eq. 4 of `What Can We Learn from State Space Models for Machine Learning on Graphs?
    <https://arxiv.org/abs/2406.05815>`_

    .. math::
        h_u = \sum_v \langle z_u W_q, z_v W_k \rangle \odot W_o x_v
              + \langle z_u W_{sq}, z_u W_{sk} \rangle \odot W_s x_u,
        \qquad z_u = \mathrm{diag}(p_u)\, \Phi

    with p_u the row of node u in the eigenvectors P and Φ = φ(λ). It is computed in the collapsed form
    :math:`P (A \odot P^\top X_o) + ((P \odot P) A_s) \odot X_s`, :math:`A = (\Phi W_q) \odot (\Phi W_k)`: no tensor of
    size n × K × C exists.

    The output is equivariant to permuting nodes, invariant to signs and rotations of eigenvectors inside an
    eigenspace, and independent of the other graphs of a batch.

    Args:
        channels: C, channels of input and output.
        phi_channels: c, channels of Φ; ``None`` means C.
        kernel: ``"channel"``, one gain per frequency and channel (the paper's equation), or ``"shared"``, the kernel
            summed over channels (the released code).
        selective: Replace z by data-dependent positions z̃ (Eq. 6); needs c = C.
        normalize: With ``selective``: keep the magnitudes of z̃ tame; ``False`` is Eq. 6 to the letter.
        self_term: Keep the second term. Without it, and with ``ElementwisePhi``, this is graph spectral convolution.
        degree_scaling: First scale x by a + b log(degree + 1), a and b learned per channel.
        out_proj: A Linear with bias after the global term.
        kernel_channels: Width of ΦW_q, ΦW_k, ΦW_sq and ΦW_sk, over which ``kernel="shared"`` sums; ``None`` means C.
        in_proj: W_q, W_k, W_o and those of the self term; without them, for ``kernel="shared"`` alone, the kernel is
            the sum of the squares of Φ, and the terms mix and scale x itself.
        degree_init: With ``degree_scaling``, ``"one"`` begins with a = 1 and b = 0, so with x as it is; ``"small"``
            with both drawn from N(0, 1 / 2C).

    Shapes:
        x [N, C], phi [G, K, c], vectors [N, K], batch [N] (sorted, as PyG makes it) -> [N, C]

    Example:
        >>> conv = GSSConv(8)
        >>> x, phi, vectors = torch.randn(5, 8), torch.randn(1, 3, 8), torch.randn(5, 3)
        >>> conv(x, phi, vectors).shape
        torch.Size([5, 8])
    """

    def __init__(
        self,
        channels: int,
        phi_channels: int | None = None,
        kernel: Kernel = "channel",
        selective: bool = False,
        normalize: bool = True,
        self_term: bool = True,
        degree_scaling: bool = False,
        out_proj: bool = False,
        kernel_channels: int | None = None,
        in_proj: bool = True,
        degree_init: DegreeInit = "one",
    ) -> None:
        super().__init__()
        check_positive("channels", channels)
        check_choice("kernel", kernel, get_args(Kernel))
        check_choice("degree_init", degree_init, get_args(DegreeInit))
        phi_channels = channels if phi_channels is None else phi_channels
        check_positive("phi_channels", phi_channels)
        if selective and phi_channels != channels:
            fail("phi_channels", f"channels = {channels}, which selection needs", phi_channels)
        if not in_proj and (kernel != "shared" or selective):
            fail("in_proj", "True, but for kernel='shared' without selection", in_proj)
        if kernel_channels is not None and (kernel != "shared" or selective or not in_proj):
            fail("kernel_channels", "None, but for kernel='shared' with in_proj, without selection", kernel_channels)
        inner = channels if kernel_channels is None else kernel_channels
        check_positive("kernel_channels", inner)
        self.channels, self.phi_channels, self.kernel = channels, phi_channels, kernel
        self.selective, self.normalize, self.self_term = selective, normalize, self_term
        self.kernel_channels, self.in_proj, self.degree_init = kernel_channels, in_proj, degree_init

        def linear(before: int, after: int) -> nn.Module:
            return nn.Linear(before, after, bias=False) if in_proj else nn.Identity()

        self.lin_q, self.lin_k = linear(phi_channels, inner), linear(phi_channels, inner)
        self.lin_o = linear(channels, channels)
        if self_term:
            self.lin_sq, self.lin_sk = linear(phi_channels, inner), linear(phi_channels, inner)
            self.lin_s = linear(channels, channels)
        if selective:
            self.lin_dq = nn.Linear(channels, channels, bias=False)
            self.lin_dk = nn.Linear(channels, channels, bias=False)
            self.lin_dv = nn.Linear(channels, channels, bias=False)
        self.degree_scale = nn.Parameter(torch.empty(channels)) if degree_scaling else None
        self.degree_log_scale = nn.Parameter(torch.empty(channels)) if degree_scaling else None
        self.lin_out = nn.Linear(channels, channels) if out_proj else None
        self.draw()

    def draw(self) -> None:
        """First values of a and b."""
        if self.degree_scale is None or self.degree_log_scale is None:
            return
        if self.degree_init == "small":
            for coefficients in (self.degree_scale, self.degree_log_scale):
                nn.init.normal_(coefficients, std=(2 * self.channels) ** -0.5)
        else:
            nn.init.ones_(self.degree_scale)
            nn.init.zeros_(self.degree_log_scale)

    def forward(
        self,
        x: Tensor,
        phi: Tensor,
        vectors: Tensor,
        batch: Tensor | None = None,
        degree: Tensor | None = None,
        *,
        context: GraphContext | None = None,
    ) -> Tensor:
        """Convolve.

        Args:
            x: Node features, [N, C].
            phi: Encoded eigenvalues Φ, zero where masked, [G, K, c].
            vectors: Eigenvectors P, zero where masked, [N, K].
            batch: Graph number of every node, sorted, [N]; may be left out for one graph.
            degree: Node degrees, [N]; needed with ``degree_scaling``.
            context: What layers of a model share, in place of ``batch`` and ``degree``.
        """
        if context is None:
            context = self._context(x, phi, vectors, batch, degree)
        if self.degree_scale is not None and self.degree_log_scale is not None:
            x = degree_scale(x, self.degree_scale, self.degree_log_scale, context.degree)
        lin_s = self.lin_s if self.self_term else None
        if not self.selective:
            gains, self_gains = context.gains.get(self) or self.gains(phi)
            return conv_of_linears(
                x, self.lin_o, lin_s, vectors, gains, self_gains, context.ptr, self.lin_out, reduce=context.begin_reduce
            )
        x_o, x_s, projection = conv_features(x, self.lin_o, lin_s, self.lin_out, shared=self.kernel == "shared")
        return self.mix(x, x_o, x_s, phi, vectors, context, projection)

    def mix(
        self,
        x: Tensor,
        x_o: Tensor | None,
        x_s: Tensor | None,
        phi: Tensor,
        vectors: Tensor,
        context: GraphContext,
        projection: Projection = None,
    ) -> Tensor:
        """Both terms, or the one whose features are given; linear in X_o and X_s, while x is what selects."""
        if self.selective:
            pairs, shared = self.lin_dq(phi) * self.lin_dk(phi), self.kernel == "shared"
            settings: dict[str, Any] = {"shared": shared, "normalize": self.normalize, "projection": projection}
            settings["reduce"] = context.begin_reduce
            return selective_gssc_conv(x, x_o, x_s, vectors, phi, pairs, self._turns(), context.ptr, **settings)
        a, a_s = context.gains.get(self) or self.gains(phi)
        gains, self_gains = None if x_o is None else a, None if x_s is None else a_s
        settings = {"projection": projection, "reduce": context.begin_reduce}
        return gssc_conv(x_o, x_s, vectors, gains, self_gains, context.ptr, **settings)

    def gains(self, phi: Tensor) -> Gains:
        """A and, where there is a self term, A_s of Φ [G, K, c]: [G, K, C], or [G, K, 1] for the shared kernel."""
        shared = self.kernel == "shared"
        self_gains = frequency_gains(phi, self.lin_sq, self.lin_sk, shared) if self.self_term else None
        return frequency_gains(phi, self.lin_q, self.lin_k, shared), self_gains

    def _turns(self) -> dict[str, nn.Module]:
        """The Linears that turn selected positions."""
        turns: dict[str, nn.Module] = {"dv": self.lin_dv, "q": self.lin_q, "k": self.lin_k}
        return turns | {"sq": self.lin_sq, "sk": self.lin_sk} if self.self_term else turns

    def _context(
        self, x: Tensor, phi: Tensor, vectors: Tensor, batch: Tensor | None, degree: Tensor | None
    ) -> GraphContext:
        check_shape("x", x, None, self.channels)
        check_shape("phi", phi, None, None, self.phi_channels)
        check_shape("vectors", vectors, x.shape[0], phi.shape[1])
        if degree is not None:
            check_shape("degree", degree, x.shape[0])
        ptr = batch_to_ptr(batch, x.shape[0], phi.shape[0], x.device)
        return GraphContext(x.shape[0], phi.shape[0], ptr, batch, known_degree=degree)

    def extra_repr(self) -> str:
        names = "channels phi_channels kernel kernel_channels selective normalize self_term in_proj"
        options = {name: getattr(self, name) for name in names.split()}
        options |= {"degree_scaling": self.degree_scale is not None, "out_proj": self.lin_out is not None}
        return ", ".join(f"{name}={value!r}" for name, value in options.items())


def joint_gains(convolutions: Sequence[Any], phi: Tensor) -> dict[nn.Module, Gains]:
    """A and A_s (``None`` without self term) by convolution: `GSSConv.gains` of all layers at once.

    They depend on φ alone, and small products are dear. Empty where convolutions are not of one kind, or where it is
    not worth it: then each makes its own.
    """
    kinds = set()
    pairs = []
    for conv in convolutions:
        if type(conv) is not GSSConv or conv.selective:
            return {}
        kinds.add((conv.kernel, conv.self_term, conv.channels, conv.phi_channels, conv.kernel_channels))
        pairs += [(conv.lin_q, conv.lin_k), *([(conv.lin_sq, conv.lin_sk)] if conv.self_term else [])]
    gains = joint_frequency_gains(phi, pairs, convolutions[0].kernel == "shared") if len(kinds) == 1 else None
    if gains is None:
        return {}
    both = convolutions[0].self_term
    of_each = zip(gains[::2], gains[1::2], strict=True) if both else zip(gains, [None] * len(gains), strict=True)
    return dict(zip(convolutions, of_each, strict=True))
