"""Many components: λ = 0 has as many dimensions, and may alone have more than k.

As a whole eigenspace it does not fit then, and nothing would be kept. One of its modes stands for all: the sum of those
of the components, each by its share of nodes. It depends on the graph alone, not on a solver's basis, and the places
left go to whole eigenspaces of the smallest λ > 0, which a cut at λ = 0 would never reach.
"""

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
import torch

from gssc.spectra.operators import Operator, degrees, smallest_nodes, zero_mode_mass
from gssc.spectra.truncation import Spectrum


def is_crowded(adjacency: sp.csr_array, k: int) -> bool:
    """Whether there are more than k components."""
    return int((smallest_nodes(adjacency) == np.arange(adjacency.shape[0])).sum()) > k


def with_one_zero_mode(others: Spectrum, adjacency: sp.csr_array, operator: Operator, k: int) -> Spectrum:
    """The k pairs: that of λ = 0, and as many as fit of the ``others``, which have λ > 0.

    With D - A the mode is constant, with the normalised operator sqrt(degree) within each component.
    """
    mass = zero_mode_mass(torch.from_numpy(degrees(adjacency)), operator).numpy()
    _, component, sizes = np.unique(smallest_nodes(adjacency), return_inverse=True, return_counts=True)
    total = np.bincount(component, mass)[component]
    zero, rest = np.sqrt(mass / total * (sizes[component] / mass.size)), slice(k - 1)
    across = float(np.abs(zero @ others.vectors).max(initial=0.0))
    certificate = replace(others.certificate, orthogonality=max(others.certificate.orthogonality, across))
    vectors = np.concatenate([zero[:, None], others.vectors[:, rest]], axis=1)
    values, mask = np.append(0.0, others.values[rest]), np.append(True, others.mask[rest])
    return Spectrum(values, vectors, mask, mass.size, certificate)
