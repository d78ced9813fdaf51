"""The graph state space convolution as a module."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gssc.checks import check_choice, check_positive, check_shape, fail
from gssc.nn.plain_modules import plain_linears
from gssc.ops import batch_to_ptr, degree_scale, gssc_conv, selective_gssc_conv
from gssc.ops.conv import side_by_side
from gssc.ops.cpu_layer import projected_conv

Kernel = Literal["channel", "shared"]
KERNELS = ("channel", "shared")


class GSSConv(nn.Module):
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
    ) -> None:
        super().__init__()
        check_positive("channels", channels)
        check_choice("kernel", kernel, KERNELS)
        phi_channels = channels if phi_channels is None else phi_channels
        check_positive("phi_channels", phi_channels)
        if selective and phi_channels != channels:
            fail("phi_channels", f"channels = {channels}, which selection needs", phi_channels)
        self.channels, self.phi_channels, self.kernel = channels, phi_channels, kernel
        self.selective, self.normalize, self.self_term = selective, normalize, self_term

        self.lin_q = nn.Linear(phi_channels, channels, bias=False)
        self.lin_k = nn.Linear(phi_channels, channels, bias=False)
        self.lin_o = nn.Linear(channels, channels, bias=False)
        if self_term:
            self.lin_sq = nn.Linear(phi_channels, channels, bias=False)
            self.lin_sk = nn.Linear(phi_channels, channels, bias=False)
            self.lin_s = nn.Linear(channels, channels, bias=False)
        if selective:
            self.lin_dq = nn.Linear(channels, channels, bias=False)
            self.lin_dk = nn.Linear(channels, channels, bias=False)
            self.lin_dv = nn.Linear(channels, channels, bias=False)
        self.degree_scale = nn.Parameter(torch.ones(channels)) if degree_scaling else None
        self.degree_log_scale = nn.Parameter(torch.zeros(channels)) if degree_scaling else None
        self.lin_out = nn.Linear(channels, channels) if out_proj else None

    def forward(
        self,
        x: Tensor,
        phi: Tensor,
        vectors: Tensor,
        batch: Tensor | None = None,
        degree: Tensor | None = None,
        *,
        ptr: Tensor | None = None,
        gains: tuple[Tensor, Tensor | None] | None = None,
    ) -> Tensor:
        """Convolve.

        Args:
            x: Node features, [N, C].
            phi: Encoded eigenvalues Φ, zero where masked, [G, K, c].
            vectors: Eigenvectors P, zero where masked, [N, K].
            batch: Graph number of every node, sorted, [N]; may be left out for one graph.
            degree: Node degrees, [N]; needed with ``degree_scaling``.
            ptr: First node of every graph and, last, N, [G + 1]: ``batch`` in the form that the op needs. Layers of
                a model share it; where it is given, ``batch`` is not read.
            gains: A and A_s, if `gssc.nn.gains.gains_of_all` has made them already; not with ``selective``.
        """
        check_shape("x", x, None, self.channels)
        check_shape("phi", phi, None, None, self.phi_channels)
        check_shape("vectors", vectors, x.shape[0], phi.shape[1])
        if ptr is None:
            ptr = batch_to_ptr(batch, x.shape[0], phi.shape[0], x.device)
        self._check_degree(degree, x.shape[0])
        linears = (self.lin_out, self.lin_o, self.lin_s if self.self_term else None)
        projected = self.lin_out is not None and self.kernel == "shared" and not self.selective
        projected = projected and plain_linears(*linears)
        if projected and x.device.type == "cpu":
            gains, own = self._all_gains(phi) if gains is None else gains, self._projections()
            if projected_conv.fits(x, gains[0], vectors, ptr, own):
                return projected_conv.projected_conv(x, *gains, vectors, ptr, degree, own)
        x = self._scaled(x, degree)
        if self.self_term and not self.selective and (projected or (self.lin_out is None and plain_linears(*linears))):
            a, a_s = self._all_gains(phi) if gains is None else gains
            if a_s is not None and side_by_side.fits(x, vectors, a, a_s):
                return self._convolve_side_by_side(x, vectors, a, a_s, ptr)
            gains = a, a_s
        if self.lin_out is None:
            return self._convolve(x, phi, vectors, ptr, use_global=True, use_self=self.self_term, given=gains)
        if projected:
            return self._convolve_projected(x, phi, vectors, ptr, gains)
        out = self.lin_out(self._convolve(x, phi, vectors, ptr, use_global=True, use_self=False, given=gains))
        if self.self_term:
            out = out + self._convolve(x, phi, vectors, ptr, use_global=False, use_self=True, given=gains)
        return out

    def _scaled(self, x: Tensor, degree: Tensor | None) -> Tensor:
        """The features as the convolution sees them: x ⊙ (a + b log(degree + 1)) with ``degree_scaling``."""
        if self.degree_scale is None or self.degree_log_scale is None or degree is None:
            return x
        return degree_scale(x, self.degree_scale, self.degree_log_scale, degree)

    def _check_degree(self, degree: Tensor | None, nodes: int) -> None:
        if self.degree_scale is None:
            return
        if degree is None:
            fail("degree", "the degree of every node [N], for degree_scaling", "None")
        check_shape("degree", degree, nodes)

    def _projections(self) -> projected_conv.Parameters:
        """What stands around the convolution, for a CPU."""
        assert self.lin_out is not None
        w_s = self.lin_s.weight if self.self_term else None
        linear = (self.lin_o.weight, w_s, self.lin_out.weight, self.lin_out.bias)
        return projected_conv.Parameters(self.degree_scale, self.degree_log_scale, *linear)

    def _convolve_side_by_side(
        self, x: Tensor, vectors: Tensor, gains: Tensor, self_gains: Tensor, ptr: Tensor
    ) -> Tensor:
        """Both terms from one product of x, with what stands after the global term in it."""
        w_o, bias = self.lin_o.weight, None
        if self.lin_out is not None:
            w_o, bias = self.lin_out.weight @ w_o, self.lin_out.bias
        both = F.linear(x, torch.cat([w_o, self.lin_s.weight]))
        return side_by_side.gssc_conv(both, vectors, gains, self_gains, bias, ptr)

    def _convolve_projected(
        self, x: Tensor, phi: Tensor, vectors: Tensor, ptr: Tensor, given: tuple[Tensor, Tensor | None] | None
    ) -> Tensor:
        """Both terms in one call: a gain that all channels share commutes with the Linear after the global term."""
        assert self.lin_out is not None
        x_o = F.linear(x, self.lin_out.weight @ self.lin_o.weight)
        x_s = self.lin_s(x) if self.self_term else None
        return self._mix(x, x_o, x_s, phi, vectors, ptr, given) + self.lin_out.bias

    def _convolve(
        self,
        x: Tensor,
        phi: Tensor,
        vectors: Tensor,
        ptr: Tensor,
        use_global: bool,
        use_self: bool,
        given: tuple[Tensor, Tensor | None] | None = None,
    ) -> Tensor:
        x_o = self.lin_o(x) if use_global else None
        x_s = self.lin_s(x) if use_self else None
        return self._mix(x, x_o, x_s, phi, vectors, ptr, given)

    def _mix(
        self,
        x: Tensor,
        x_o: Tensor | None,
        x_s: Tensor | None,
        phi: Tensor,
        vectors: Tensor,
        ptr: Tensor,
        given: tuple[Tensor, Tensor | None] | None = None,
    ) -> Tensor:
        """The terms whose features are given; linear in X_o and X_s, while x is what selects."""
        if self.selective:
            weights = {"dv": self.lin_dv.weight}
            if x_o is not None:
                weights |= {"q": self.lin_q.weight, "k": self.lin_k.weight}
            if x_s is not None:
                weights |= {"sq": self.lin_sq.weight, "sk": self.lin_sk.weight}
            pair_gains = self.lin_dq(phi) * self.lin_dk(phi)
            shared = self.kernel == "shared"
            return selective_gssc_conv(
                x, x_o, x_s, vectors, phi, pair_gains, weights, ptr, shared=shared, normalize=self.normalize
            )
        if given is not None:
            gains, self_gains = (None if x_o is None else given[0]), (None if x_s is None else given[1])
        else:
            gains = None if x_o is None else self._gains(phi, self.lin_q, self.lin_k)
            self_gains = None if x_s is None else self._gains(phi, self.lin_sq, self.lin_sk)
        return gssc_conv(x_o, x_s, vectors, gains, self_gains, ptr)

    def _all_gains(self, phi: Tensor) -> tuple[Tensor, Tensor | None]:
        """A and, where there is a self term, A_s."""
        own = self._gains(phi, self.lin_sq, self.lin_sk) if self.self_term else None
        return self._gains(phi, self.lin_q, self.lin_k), own

    def _gains(self, phi: Tensor, query: nn.Linear, key: nn.Linear) -> Tensor:
        """A = (ΦW_q) ⊙ (ΦW_k) [G, K, C]; for the shared kernel its sum over channels, diag(Φ W_q W_kᵀ Φᵀ) [G, K, 1]."""
        if self.kernel == "shared":
            return ((phi @ (query.weight.t() @ key.weight)) * phi).sum(-1, keepdim=True)
        return query(phi) * key(phi)

    def extra_repr(self) -> str:
        return (
            f"channels={self.channels}, phi_channels={self.phi_channels}, kernel={self.kernel!r}, "
            f"selective={self.selective}, normalize={self.normalize}, self_term={self.self_term}, "
            f"degree_scaling={self.degree_scale is not None}, out_proj={self.lin_out is not None}"
        )
