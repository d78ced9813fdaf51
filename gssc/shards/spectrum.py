"""Spectra of a graph that no process holds: the Chebyshev-Krylov solver and its certificate on shards.

A block of vectors [n, b] lies over the processes like the nodes: a product with it needs the halo of its rows, and VᵀW
a sum over processes; all else is the solver of one process. Graphs are undirected, without weights; parallel edges add.
"""

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from gssc.checks import fail
from gssc.ops.halo import Halo
from gssc.shards.shard import Shard
from gssc.spectra.chebyshev import ChebyshevBlock
from gssc.spectra.components import Part
from gssc.spectra.operators import Operator, zero_mode_mass
from gssc.spectra.random_features import RandomFeatures
from gssc.spectra.solve import Merge
from gssc.spectra.solver_choice import LargeComponent, SolverSettings
from gssc.spectra.sparse_operator import Shifted, SparseOperator, row_of_entry, upload
from gssc.spectra.transforms import LaplacianSpectrum
from gssc.spectra.truncation import Spectrum, SpectrumSettings

MOST_COMPONENTS = 64  # each has a zero mode [n]


@dataclass(frozen=True)
class ShardedOperator(SparseOperator):
    """Own rows of a matrix, [N, N + H]."""

    halo: Halo

    @property
    def nodes(self) -> int:
        return self.halo.nodes

    @property
    def columns(self) -> int:
        return self.n + self.halo.size

    def fused(self) -> bool:
        return False

    def extend(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.halo.fetch(x)])

    def sum(self, statistic: Tensor) -> Tensor:
        return self.halo.sum(statistic)

    def __matmul__(self, block: np.ndarray) -> np.ndarray:
        return np.asarray((Shifted(self) @ torch.from_numpy(block).to(self.device)).cpu())

    def norms(self, block: Tensor) -> Tensor:
        return self.sum(block.square().sum(0)).sqrt()

    @property
    def stream(self) -> int:
        return 7_919 * (1 + self.halo.rank)

    def bound(self) -> float:
        rows = row_of_entry(self.crow, self.weight.numel())
        sums = self.weight.new_zeros(self.n).index_add(0, rows, self.weight.abs())
        return float(self.halo.gather(sums).max())

    def basis(self, block: Tensor) -> Tensor:
        values, turn = torch.linalg.eigh(self.dots(block, block))
        return block @ (turn * values.clamp_min(1e-15 * float(values[-1])).rsqrt())


def laplacian(shard: Shard, operator: Operator) -> tuple[ShardedOperator, Tensor]:
    """Own rows of D - A or I - D^-1/2 A D^-1/2, and the degrees of own nodes [N]."""
    if operator == "adjacency":
        fail("operator", "'sym' or 'combinatorial' for shards", repr(operator))
    halo, (source, target) = shard.halo, shard.inputs["edge_index"].cpu().numpy()
    own = shard.inputs["num_nodes"]
    ones = np.ones(source.size)
    adjacency = sp.coo_array((ones, (target, source)), shape=(own, own + halo.size)).tocsr()
    degree = torch.from_numpy(adjacency.sum(1)).to(shard.device)
    crow, col, weight = upload(adjacency, shard.device)
    whole = ShardedOperator(own, crow, col, weight, halo)
    generator = torch.Generator(shard.device).manual_seed(halo.rank)
    probe = torch.randn(own, 2, dtype=torch.float64, device=shard.device, generator=generator)
    image = whole.sum(torch.linalg.vecdot(probe.flip(1), Shifted(whole) @ probe, dim=0))
    if not torch.isclose(image[0], image[1], rtol=1e-9, atol=1e-9 * float(whole.sum(degree.sum()))):
        fail("edge_index", "an undirected graph, for spectra of shards", "edges without their reverse")
    diagonal = degree
    if operator == "sym":
        scale = torch.where(degree > 0, degree, 1.0).rsqrt()
        weight = weight * scale[row_of_entry(crow, weight.numel())] * whole.extend(scale)[col.long()]
        diagonal = (degree > 0).double()
    built = SparseOperator.from_entries(crow, col, -weight, diagonal)
    return ShardedOperator(own, built.crow, built.col, built.weight, halo), degree


def component_of(shard: Shard) -> tuple[Tensor, int]:
    """The number of every own node's component, [N], and how many there are; the halo joins those of processes."""
    halo, (source, target) = shard.halo, shard.inputs["edge_index"].cpu().numpy()
    own = shard.inputs["num_nodes"]
    inside = source < own
    part = sp.coo_array((np.ones(inside.sum()), (target[inside], source[inside])), shape=(own, own))
    here, labels = connected_components(part, directed=False)
    counts = halo.gather(torch.tensor([here], device=shard.device)).cpu()
    first = int(counts[: halo.rank].sum())
    label = torch.from_numpy(labels.astype(np.int64)).to(shard.device) + first
    known = torch.cat([label, halo.fetch(label)])
    pairs = known[torch.stack([torch.from_numpy(target[~inside]), torch.from_numpy(source[~inside])]).to(known.device)]
    joined = halo.gather(torch.unique(pairs, dim=1).T.contiguous()).cpu().numpy()
    total = int(counts.sum())
    graph = sp.coo_array((np.ones(len(joined)), (joined[:, 0], joined[:, 1])), shape=(total, total))
    number, merged = connected_components(graph, directed=False)
    return torch.from_numpy(merged.astype(np.int64)).to(shard.device)[label], number


class _Component(LargeComponent):
    """All of a graph that lies in shards, whose zero modes are columns [N, z]."""

    def __init__(self, operator: ShardedOperator, modes: Tensor, normalised: bool, settings: SolverSettings) -> None:
        self.modes, self.cheap, nodes = modes, False, np.arange(operator.n)
        super().__init__(lambda: sp.csr_array((0, 0)), modes[:, 0], normalised, nodes, settings, operator)
        self.n = operator.nodes

    def _run(self, count: int, attempt: int) -> list[Part]:
        zeros, nodes = np.zeros((1, self.modes.shape[1])), self.nodes[None]
        end = self._solve_end(1.0, min(count, self.n - zeros.size), attempt)
        self.ends, pairs = [end], end.pairs
        found = pairs.values[None], torch.as_tensor(pairs.vectors)[None], pairs.residuals[None], pairs.orthogonality
        return [Part(nodes, zeros, self.modes[None], zeros, 0.0), Part(nodes, *found)]

    def _chebyshev(self, sign: float, seed: int) -> ChebyshevBlock:
        return ChebyshevBlock(self.operator, self.scale, self.modes, self.settings.seed + seed)


class _ShardedMerge(Merge):
    def __init__(self, component: _Component, settings: SpectrumSettings) -> None:
        self.n, self.rows, self.settings, self.both = component.n, component.operator.n, settings, False
        self.count, self.zeros = settings.k + settings.drops_zeros, component.modes.shape[1]
        self.small, self.large, self.floor, self.scale = [], [component], 0.0, component.scale


def solve_sharded(shard: Shard, wanted: LaplacianSpectrum, seed: int = 0) -> Spectrum:
    """What ``wanted.spectrum`` gives of the whole graph, certified alike, with the rows of own nodes; a collective."""
    settings = wanted.wanted
    if settings.by_magnitude:
        fail("which", "'low' for shards", repr(settings.which))
    operator, degree = laplacian(shard, settings.operator)
    component, zeros = component_of(shard)
    if zeros > (most := MOST_COMPONENTS if settings.drops_zeros else min(settings.k, MOST_COMPONENTS)):
        fail("graph", f"at most {most} components for spectra of shards (zero_modes={settings.zero_modes})", zeros)
    mass = F.one_hot(component, zeros) * zero_mode_mass(degree, settings.operator).unsqueeze(1)
    modes = (mass / operator.sum(mass.sum(0))).sqrt()
    how = SolverSettings("chebyshev", shard.device.type, seed)
    return _ShardedMerge(_Component(operator, modes, settings.operator == "sym", how), settings).run()


def with_spectrum(shard: Shard, wanted: LaplacianSpectrum) -> Shard:
    """The shard with what `LaplacianSpectrum` attaches; a collective."""
    found = solve_sharded(shard, wanted)
    arrays = {"eigvals": found.values[None], "eigvecs": found.vectors, "eigmask": found.mask[None]}
    return replace(shard, tensors={**shard.tensors, **{name: torch.from_numpy(rows) for name, rows in arrays.items()}})


def random_features(shard: Shard, wanted: RandomFeatures) -> Tensor:
    """What `RandomFeatures` attaches, [N, K], of probes that every process draws for itself; a collective."""
    operator, _ = laplacian(shard, wanted.operator)
    probes = wanted.probe(np.random.default_rng([wanted.seed, shard.halo.rank]), operator.n)
    return torch.from_numpy(wanted.filtered(operator, operator.bound(), probes))


def walk_probabilities(shard: Shard, steps: int, columns: int = 256) -> Tensor:
    """What `RandomWalkSE` attaches, [N, steps]: time grows with the square of the number of nodes; a collective."""
    operator, degree = laplacian(shard, "sym")
    product, there, numbers = Shifted(operator), (degree > 0).double().unsqueeze(1), shard.here("nodes")
    out = torch.zeros(operator.nodes, steps, dtype=torch.float64, device=shard.device)
    for first in range(0, operator.nodes, columns):
        power = (numbers.unsqueeze(1) == torch.arange(first, first + columns, device=shard.device)).double()
        for t in range(1, steps + 1):  # diag(S^(a + b)) = Σ (S^a ⊙ S^b), S = I - L
            following = there * power - product @ power if t % 2 else power
            out[first : first + columns, t - 1] = operator.sum((power * following).sum(0))[: operator.nodes - first]
            power = following
    return out[numbers]
