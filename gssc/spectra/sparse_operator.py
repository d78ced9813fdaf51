"""A symmetric sparse matrix on a device: its products with blocks of vectors, shifted and scaled at no extra cost.

The diagonal is stored whole, as the first entry of every row, so that (H - c)/e is the same pattern with other values.
A product then reads the matrix and the block once, and a Laplacian is made of an adjacency matrix without sorting.
"""

import importlib.util
import warnings
from dataclasses import dataclass
from functools import cached_property

import scipy.sparse as sp
import torch
from torch import Tensor

from gssc.checks import fail
from gssc.spectra.fused_product import RowPlan, fused_step
from gssc.spectra.operators import Operator, zero_mode_mass

HAS_TRITON = importlib.util.find_spec("triton") is not None
# Smaller matrices are left to torch.sparse: there the time is that of a launch, which is longer for a Triton kernel.
FUSED_ENTRIES = 1_000_000
POWER_STEPS = 12
# Set by tests: also where Triton's interpreter runs the kernels on the host.
INTERPRETED = False


@dataclass(frozen=True)
class SparseOperator:
    """H [n, n] as CSR: crow [n + 1], col [nnz], weight [nnz] in float64; entry crow[u] of row u is its diagonal.

    An entry may appear twice in its row (a self-loop besides the diagonal); products add them.
    """

    n: int
    crow: Tensor
    col: Tensor
    weight: Tensor

    @classmethod
    def from_entries(cls, crow: Tensor, col: Tensor, weight: Tensor, diagonal: Tensor) -> "SparseOperator":
        """The matrix with these entries in CSR order plus this diagonal [n]."""
        n, entries = crow.numel() - 1, col.numel()
        index = torch.int32 if entries + n < 2**31 else torch.int64
        place = torch.arange(entries, device=col.device) + row_of_entry(crow, entries) + 1
        start = crow.long() + torch.arange(n + 1, device=col.device)
        cols = torch.empty(entries + n, dtype=index, device=col.device)
        values = torch.empty(entries + n, dtype=torch.float64, device=col.device)
        cols[place], values[place] = col.to(index), weight
        cols[start[:-1]], values[start[:-1]] = torch.arange(n, dtype=index, device=col.device), diagonal
        return cls(n, start.to(index), cols, values)

    @classmethod
    def from_scipy(cls, matrix: sp.csr_array, device: torch.device | str = "cpu") -> "SparseOperator":
        """The same matrix on a device."""
        diagonal = matrix.diagonal()
        entries = upload((matrix - sp.diags_array(diagonal)).tocsr(), device)
        return cls.from_entries(*entries, torch.from_numpy(diagonal).to(entries[-1]))

    @property
    def device(self) -> torch.device:
        return self.weight.device

    def csr(self, centre: float = 0.0, half: float = 1.0, dtype: torch.dtype = torch.float64) -> Tensor:
        """(H - centre)/half as a torch CSR tensor."""
        weight = self.weight
        if centre or half != 1.0:
            weight = weight / half
            weight[self.crow[:-1].long()] -= centre / half
        return sparse_rows(self.crow, self.col, weight.to(dtype), (self.n, self.columns))

    @property
    def stream(self) -> int:
        """Of random numbers: another one where other rows are."""
        return 0

    @property
    def nodes(self) -> int:
        """Rows of the whole matrix, of which others may hold some (`gssc.shards.spectrum`); here all are."""
        return self.n

    @property
    def columns(self) -> int:
        """Those of the rows here."""
        return self.n

    def extend(self, x: Tensor) -> Tensor:
        """A block [n, b] with the rows that others hold behind it, where a product needs some."""
        return x

    def sum(self, statistic: Tensor) -> Tensor:
        """A sum over the rows here as one over all."""
        return statistic

    def dots(self, left: Tensor, right: Tensor) -> Tensor:
        """The products of columns, leftᵀ right."""
        return self.sum(left.T @ right)

    def norms(self, block: Tensor) -> Tensor:
        """The norms of columns."""
        return torch.linalg.vector_norm(block, dim=0)

    def basis(self, block: Tensor) -> Tensor:
        """An orthonormal basis of nearly dependent columns."""
        return torch.linalg.qr(block)[0]

    def fused(self) -> bool:
        """Whether products run in the kernels of ``fused_product.py``: large matrices on a GPU, with Triton."""
        here = self.device.type == "cuda" or INTERPRETED
        return HAS_TRITON and here and self.col.numel() >= FUSED_ENTRIES

    @cached_property
    def plan(self) -> RowPlan:
        """How the kernels take the rows."""
        return RowPlan.of(self.crow)

    def __neg__(self) -> "SparseOperator":
        return SparseOperator(self.n, self.crow, self.col, -self.weight)

    def bound(self) -> float:
        """A guaranteed bound of |λ|: max_u (|H| x)_u / x_u for positive x (Collatz-Wielandt), x by power iteration."""
        magnitude = SparseOperator(self.n, self.crow, self.col, self.weight.abs()).csr()
        x = torch.ones(self.n, 1, dtype=torch.float64, device=self.device)
        bounds = []
        for _ in range(POWER_STEPS):
            y = magnitude @ x
            bounds.append((y / x).max())
            # Half a step keeps bipartite graphs from oscillating; the floor keeps x positive.
            x = (y / y.max().clamp_min(1e-300) + x).clamp_min(1e-6)
            x = x / x.max()
        return float(torch.stack(bounds).min())


class Shifted:
    """(H - centre)/half for products with blocks [n, b] of one dtype, in one pass each."""

    def __init__(
        self, operator: SparseOperator, centre: float = 0.0, half: float = 1.0, dtype: torch.dtype = torch.float64
    ) -> None:
        self.operator, self.centre, self.half, self.dtype = operator, centre, half, dtype
        self.fused = operator.fused()
        if self.fused:
            self._weight = operator.weight.to(dtype)
        else:
            self._csr = operator.csr(centre, half, dtype)
        self._coefficients: dict[tuple[float, float], Tensor] = {}

    def __matmul__(self, x: Tensor) -> Tensor:
        """The product with a block, a new tensor."""
        return self.step(x, None)

    def step(self, x: Tensor, z: Tensor | None, alpha: float = 1.0, gamma: float = 0.0) -> Tensor:
        """α (H - c)/e X + γ Z, written over Z where there is one."""
        if not self.fused:
            x = self.operator.extend(x)
            return self._csr @ x if z is None else z.addmm_(self._csr, x, beta=gamma, alpha=alpha)
        x = x.contiguous()
        out = torch.empty_like(x) if z is None else z
        if not out.is_contiguous():
            out.copy_(self.step(x, out.contiguous(), alpha, gamma))
            return out
        if (alpha, gamma) not in self._coefficients:
            numbers = [alpha / self.half, -alpha * self.centre / self.half, gamma]
            self._coefficients[alpha, gamma] = torch.tensor(numbers, dtype=self.dtype, device=x.device)
        matrix = (self.operator.plan, self.operator.crow, self.operator.col, self._weight)
        fused_step(*matrix, self._coefficients[alpha, gamma], x, out, adds=z is not None and gamma != 0.0)
        return out


class DeviceGraph:
    """A symmetric adjacency matrix copied to a device: crow [n + 1], col, weight and row of every entry [nnz].

    On a GPU the solver takes a second for a million nodes; to build the operator and find the components on the host
    would take as long.
    """

    def __init__(self, adjacency: sp.csr_array, device: str) -> None:
        self.n: int = adjacency.shape[0]
        self.crow, self.col, self.weight = upload(adjacency, device)
        self.row = row_of_entry(self.crow, self.col.numel())

    def labels(self) -> Tensor:
        """The smallest node of every node's component, [n].

        FastSV: every node points to a smaller one of its component. In each round a node's parent, and the node, learn
        of the smallest grandparent among the node's neighbours, and paths are halved; rounds grow like log n.
        """
        parent = grand = torch.arange(self.n, device=self.row.device)
        col = self.col.long()
        while col.numel():
            least = grand.scatter_reduce(0, self.row, grand[col], "amin")
            parent = parent.scatter_reduce(0, parent, least, "amin")
            parent = torch.minimum(torch.minimum(parent, least), grand)
            following = parent[parent]
            if torch.equal(following, grand):
                break
            grand = following
        return grand

    def laplacian(self, operator: Operator) -> tuple[SparseOperator, Tensor]:
        """D - A or I - D^-1/2 A D^-1/2 of a connected graph, and its zero mode [n]: constant, or ∝ sqrt(degree)."""
        if self.weight.numel() and float(self.weight.min()) < 0:
            fail("edge_weight", f"weights of at least 0 for operator {operator!r}", f"{float(self.weight.min()):g}")
        ones = torch.ones(self.n, 1, dtype=torch.float64, device=self.weight.device)
        # A product rather than atomic additions: the same bytes in every run.
        degree = (SparseOperator(self.n, self.crow, self.col, self.weight).csr() @ ones).squeeze(1)
        mass = zero_mode_mass(degree, operator)
        zero_mode = (mass / mass.sum()).sqrt()
        diagonal, weight = degree, self.weight
        if operator == "sym":
            scale = torch.where(degree > 0, torch.where(degree > 0, degree, 1.0).rsqrt(), 0.0)
            # In the order of the host: (weight · scale of the row) · scale of the column.
            diagonal, weight = (degree > 0).double(), weight * scale[self.row] * scale[self.col.long()]
        return SparseOperator.from_entries(self.crow, self.col, -weight, diagonal), zero_mode


def sparse_rows(crow: Tensor, col: Tensor, values: Tensor, size: tuple[int, ...]) -> Tensor:
    """A CSR tensor, without PyTorch's remark that these are young."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(crow, col, values, size, check_invariants=False)


def upload(matrix: sp.csr_array, device: torch.device | str) -> tuple[Tensor, Tensor, Tensor]:
    """Row starts, columns and float64 values of a CSR matrix, on a device; indices as wide as they came."""
    crow, col, weight = (torch.as_tensor(part).to(device) for part in (matrix.indptr, matrix.indices, matrix.data))
    return crow, col, weight.double()


def row_of_entry(crow: Tensor, entries: int) -> Tensor:
    """The row of every entry, [nnz], int64."""
    rows = torch.arange(crow.numel() - 1, device=crow.device)
    return torch.repeat_interleave(rows, crow.diff().long(), output_size=entries)
