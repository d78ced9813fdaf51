"""Encodings of eigenvalues: phi(eigvals [G, K], eigmask [G, K]) -> Φ [G, K, c], zero where masked.

Each is equivariant to permuting the eigenvalues of a graph and a function of them alone, so that equal eigenvalues get
equal rows: this is what makes the convolution independent of the basis chosen inside an eigenspace.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import chain, pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gssc.checks import check_choice, check_positive, check_shape, fail
from gssc.nn.local import Source
from gssc.nn.reset import Resets
from gssc.ops import deep_set


class Phi(Resets, nn.Module, ABC):
    """Base of all encodings: checks, and zeros where masked. Subclasses write ``encode``.

    Attributes:
        channels: c, the number of channels of Φ.
    """

    channels: int
    masks_itself = False  # whether ``encode`` takes any numbers where masked, and returns zeros there

    def forward(self, eigvals: Tensor, eigmask: Tensor) -> Tensor:
        if eigvals.dim() != 2 or eigmask.shape != eigvals.shape:
            check_shape("eigvals", eigvals, None, None)
            check_shape("eigmask", eigmask, *eigvals.shape)
        if eigmask.dtype != torch.bool:
            fail("eigmask", "a boolean tensor (True = valid)", eigmask.dtype)
        if self.masks_itself:
            return self.encode(eigvals, eigmask)
        encoded = self.encode(eigvals.masked_fill(~eigmask, 0.0), eigmask)
        return encoded.masked_fill(~eigmask.unsqueeze(-1), 0.0)

    @abstractmethod
    def encode(self, eigvals: Tensor, eigmask: Tensor) -> Tensor:
        """Φ [G, K, c] before masking; ``eigvals`` are zero where masked."""


def signed_sqrt(eigvals: Tensor) -> Tensor:
    """sign(λ) sqrt(|λ|): spreads the small eigenvalues, where the large-scale structure is."""
    return eigvals.sign() * eigvals.abs().sqrt()


def _units(*widths: int) -> list[nn.Module]:
    """Linear, LayerNorm and SiLU from each width to the next."""
    units = ((nn.Linear(before, after), nn.LayerNorm(after), nn.SiLU()) for before, after in pairwise(widths))
    return list(chain.from_iterable(units))


class DeepSetPhi(Phi):
    r"""Eigenvalues that see the whole spectrum, by set pooling (the default).

    .. math:: e_k \leftarrow e_k + \mathrm{mean}_l(\mathrm{MLP}_1(e_l)) \odot \mathrm{MLP}_2(e_k)

    three times, starting from an embedding of sign(λ)√|λ|; the mean runs over the valid frequencies of the graph.

    Args:
        channels: c, channels of Φ.
        blocks: Number of such updates.
    """

    masks_itself = True

    def __init__(self, channels: int, blocks: int = 3) -> None:
        super().__init__()
        check_positive("channels", channels)
        self.channels = channels
        self.embed = nn.Sequential(*_units(1, channels))
        self.pool = nn.ModuleList(nn.Sequential(*_units(*[channels] * 3)) for _ in range(blocks))
        self.update = nn.ModuleList(nn.Sequential(*_units(*[channels] * 3)) for _ in range(blocks))

    def encode(self, eigvals: Tensor, eigmask: Tensor) -> Tensor:
        return deep_set(eigvals, eigmask, self.embed, list(self.pool), list(self.update))


class ElementwisePhi(Phi):
    """An MLP of each eigenvalue alone: the filter of graph spectral convolution.

    Args:
        channels: c, channels of Φ.
        layers: Number of Linear + LayerNorm + SiLU steps before the last Linear.
    """

    def __init__(self, channels: int, layers: int = 2) -> None:
        super().__init__()
        check_positive("channels", channels)
        self.channels = channels
        self.mlp = nn.Sequential(*_units(1, *[channels] * layers), nn.Linear(channels if layers else 1, channels))

    def encode(self, eigvals: Tensor, eigmask: Tensor) -> Tensor:
        return self.mlp(signed_sqrt(eigvals).unsqueeze(-1))


class PolynomialPhi(Phi):
    r"""An MLP of the powers of each eigenvalue alone, which brings counts of walks within reach.

    .. math:: \Phi_k = \mathrm{MLP}(\lambda_k / s, (\lambda_k / s)^2, \dots, (\lambda_k / s)^p)

    With all eigenpairs of the adjacency matrix, :math:`\sum_k p_{uk}^2 \lambda_k^j` is the number of closed walks of
    length j at node u. The powers enter as they are, without a LayerNorm, whose output hardly changes where |λ| is
    large, and there the counts change most.

    Args:
        channels: c, channels of Φ.
        degree: p, the highest power.
        scale: s, of the size of the eigenvalues: powers of λ / s beyond a few units are hard to train on.
        layers: Number of steps before the last Linear; the first is Linear + SiLU, the others have a LayerNorm between.
    """

    def __init__(self, channels: int, degree: int = 5, scale: float = 3.0, layers: int = 2) -> None:
        super().__init__()
        for name, value in (("channels", channels), ("degree", degree), ("layers", layers)):
            check_positive(name, value)
        if not scale > 0:
            fail("scale", "a positive number", scale)
        self.channels, self.degree, self.scale = channels, degree, scale
        first = nn.Linear(degree, channels), nn.SiLU()
        self.mlp = nn.Sequential(*first, *_units(*[channels] * layers), nn.Linear(channels, channels))

    def encode(self, eigvals: Tensor, eigmask: Tensor) -> Tensor:
        scaled = (eigvals / self.scale).unsqueeze(-1)
        return self.mlp(scaled.expand(-1, -1, self.degree).cumprod(dim=-1))


class TransformerPhi(Phi):
    """Softmax attention among the eigenvalues of a graph, without positions.

    Args:
        channels: c, channels of Φ.
        heads: Attention heads, a divisor of ``channels``; ``None`` takes the largest of 4, 2 and 1.
        layers: Number of pre-norm attention + feed-forward blocks.
    """

    def __init__(self, channels: int, heads: int | None = None, layers: int = 2) -> None:
        super().__init__()
        check_positive("channels", channels)
        heads = next(h for h in (4, 2, 1) if channels % h == 0) if heads is None else heads
        check_positive("heads", heads)
        if channels % heads:
            fail("heads", f"a divisor of channels = {channels}", heads)
        self.channels, self.heads = channels, heads
        self.embed = nn.Sequential(*_units(1, channels))
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(layers))
        self.queries_keys_values = nn.ModuleList(nn.Linear(channels, 3 * channels) for _ in range(layers))
        self.mixes = nn.ModuleList(nn.Linear(channels, channels) for _ in range(layers))
        self.feed_forwards = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(channels), nn.Linear(channels, 2 * channels), nn.SiLU(), nn.Linear(2 * channels, channels)
            )
            for _ in range(layers)
        )

    def embedded(self, eigvals: Tensor) -> Tensor:
        """What attention begins with, [G, K, c]."""
        return self.embed(signed_sqrt(eigvals).unsqueeze(-1))

    def encode(self, eigvals: Tensor, eigmask: Tensor) -> Tensor:
        e = self.embedded(eigvals)
        # Every frequency may look at itself, so that no row is all masked (softmax of nothing is NaN); for a valid one
        # this adds nothing, and the rows of masked ones are zeroed in the end.
        itself = torch.eye(eigvals.shape[1], dtype=torch.bool, device=eigvals.device)
        visible = (eigmask.unsqueeze(1) | itself).unsqueeze(1)
        for norm, qkv, mix, feed_forward in zip(
            self.norms, self.queries_keys_values, self.mixes, self.feed_forwards, strict=True
        ):
            q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in qkv(norm(e)).chunk(3, dim=-1))
            attended = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
            e = e + mix(attended.transpose(1, 2).flatten(2))
            e = e + feed_forward(e)
        return e


class SpecformerPhi(TransformerPhi):
    r"""Specformer's encoding of eigenvalues: attention among them, each as sines and cosines of it.

    .. math:: e_k = W [\lambda_k, \sin(s \lambda_k \tau_0), \cos(s \lambda_k \tau_0), \sin(s \lambda_k \tau_1), …]

    with s = 100, τ_i = 10000^(-2i/c), for λ in [0, 2]. From `Specformer <https://arxiv.org/abs/2303.01028>`_.
    """

    def __init__(self, channels: int, heads: int | None = None, layers: int = 2) -> None:
        super().__init__(channels, heads, layers)
        self.embed = nn.Sequential(nn.Linear(1 + 2 * -(-channels // 2), channels))

    def embedded(self, eigvals: Tensor) -> Tensor:
        i = torch.arange(-(-self.channels // 2), device=eigvals.device, dtype=eigvals.dtype)
        angles = eigvals.unsqueeze(-1) * (100.0 * 10_000.0 ** (-2.0 * i / self.channels))
        return self.embed(torch.cat([eigvals.unsqueeze(-1), angles.sin(), angles.cos()], dim=-1))


class DiffusionPhi(Phi):
    """Fixed diffusion kernels: Φ_kc = exp(-t_c λ_k), so that P diag(Φ_c) Pᵀ = exp(-t_c L) with all eigenpairs.

    Args:
        times: Diffusion times t_c.
    """

    def __init__(self, times: Sequence[float] = (0.5, 1.0, 2.0, 4.0)) -> None:
        super().__init__()
        if not times or min(times) < 0:
            fail("times", "one or more times of at least 0", list(times))
        self.channels = len(times)
        self.times = nn.Buffer(torch.tensor(times, dtype=torch.float64))

    def encode(self, eigvals: Tensor, eigmask: Tensor) -> Tensor:
        return torch.exp(-eigvals.unsqueeze(-1) * self.times.to(eigvals.dtype))


class PageRankPhi(Phi):
    """Fixed personalised PageRank kernels: Φ_kc = α_c / (α_c + (1 - α_c) λ_k).

    With all eigenpairs of the normalised Laplacian, P diag(Φ_c) Pᵀ = α (I - (1 - α) D^-1/2 A D^-1/2)^-1, the
    PageRank matrix up to the similarity by D^1/2.

    Args:
        restarts: Restart probabilities α_c in (0, 1].
    """

    def __init__(self, restarts: Sequence[float] = (0.05, 0.15, 0.5)) -> None:
        super().__init__()
        if not restarts or min(restarts) <= 0 or max(restarts) > 1:
            fail("restarts", "one or more probabilities in (0, 1]", list(restarts))
        self.channels = len(restarts)
        self.restarts = nn.Buffer(torch.tensor(restarts, dtype=torch.float64))

    def encode(self, eigvals: Tensor, eigmask: Tensor) -> Tensor:
        restarts = self.restarts.to(eigvals.dtype)
        return restarts / (restarts + (1.0 - restarts) * eigvals.unsqueeze(-1))


class ResistancePhi(Phi):
    """The fixed resistance kernel: Φ_k = 1/λ_k, and 0 for λ_k = 0, so that P diag(Φ) Pᵀ is the pseudo-inverse of L.

    For the combinatorial Laplacian the resistance distance is K_uu + K_vv - 2 K_uv.
    """

    channels = 1

    def encode(self, eigvals: Tensor, eigmask: Tensor) -> Tensor:
        zero = eigvals == 0
        return torch.where(zero, 0.0, 1.0 / torch.where(zero, 1.0, eigvals)).unsqueeze(-1)


PHIS: dict[str, Callable[[int], Phi]] = {
    "deepset": DeepSetPhi,
    "elementwise": ElementwisePhi,
    "polynomial": PolynomialPhi,
    "transformer": TransformerPhi,
    "specformer": SpecformerPhi,
}


def make_phi(phi: str | Source, channels: int) -> Phi:
    """φ by name, as it is, or by a function of its channels."""
    if isinstance(phi, str):
        check_choice("phi", phi, PHIS)
        return PHIS[phi](channels)
    module = phi if isinstance(phi, nn.Module) else phi(channels)
    if not isinstance(getattr(module, "channels", None), int):
        fail("phi", "a module with an attribute channels, its number of channels", type(module).__name__)
    return module  # type: ignore[return-value]
