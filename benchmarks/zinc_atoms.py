"""Whether the types of atoms of ZINC are what `gssc.datasets.zinc_atoms` takes them for: graphs judged by chemistry.

    python -m benchmarks.zinc_atoms --data-root data

Each graph is turned back into a molecule, which RDKit must accept, and the benchmark's target is computed from it anew:
penalised logP, a logP - b SA - c (longest ring - 6)⁺ + d, with the constants of the benchmark. With the wrong elements,
charges or hydrogens neither would fit.
"""

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gssc.datasets import FlatGraphs, open_dataset
from gssc.datasets.zinc_atoms import ATOMS, BONDS

LOGP, SA, CYCLE, SHIFT = 0.6976318, 1.19816758, 3.47513915, 2.11182993
CLOSE = 1e-4


@dataclass(frozen=True)
class Judged:
    """How many graphs are valid molecules, correlation of computed and recorded targets, and the share that agree."""

    graphs: int
    valid: int
    correlation: float
    agreeing: float


def judge(graphs: FlatGraphs) -> Judged:
    """All graphs of a part."""
    targets, computed = [], []
    for g in range(graphs.num_graphs):
        try:
            molecule = graph_molecule(graphs, g)
        except ValueError:  # RDKit's errors are such
            continue
        targets.append(float(graphs.y[g]))
        computed.append(penalised_logp(molecule))
    correlation = float(np.corrcoef(targets, computed)[0, 1])
    agreeing = float((np.abs(np.subtract(targets, computed)) < CLOSE).mean())
    return Judged(graphs.num_graphs, len(targets), correlation, agreeing)


def graph_molecule(graphs: FlatGraphs, number: int) -> Any:
    """One graph as an RDKit molecule; configurations are not in the graph."""
    from rdkit import Chem

    one = graphs.part(number, number + 1, "graph")
    assert one.x is not None
    assert one.edge_attr is not None
    orders = {order: getattr(Chem.BondType, name) for name, order in BONDS.items()}
    molecule = Chem.RWMol()
    for kind in one.x[:, 0].tolist():
        element, *rest = ATOMS[kind].split()
        atom = Chem.Atom(element)
        atom.SetFormalCharge({"+": 1, "-": -1}.get(rest[-1] if rest else "", 0))
        hydrogens = next((int(part[1:]) for part in rest if part.startswith("H")), 0)
        if atom.GetFormalCharge() or element == "P":
            atom.SetNoImplicit(True)
            atom.SetNumExplicitHs(hydrogens)
        molecule.AddAtom(atom)
    for (i, j), order in zip(one.edge_index.T.tolist(), one.edge_attr[:, 0].tolist(), strict=True):
        if molecule.GetBondBetweenAtoms(i, j) is None:
            molecule.AddBond(i, j, orders[order])
    molecule = molecule.GetMol()
    Chem.SanitizeMol(molecule)
    return molecule


def penalised_logp(molecule: Any) -> float:
    """The benchmark's target of a molecule."""
    import networkx
    from rdkit import Chem, RDConfig
    from rdkit.Chem.rdMolDescriptors import CalcCrippenDescriptors

    place = os.path.join(RDConfig.RDContribDir, "SA_Score")
    if place not in sys.path:
        sys.path.append(place)
    import sascorer  # type: ignore[import-not-found]

    rings = networkx.cycle_basis(networkx.Graph(Chem.GetAdjacencyMatrix(molecule)))
    cycle = max(0, max(map(len, rings), default=0) - 6)
    logp, _ = CalcCrippenDescriptors(molecule)
    return LOGP * logp - SA * float(sascorer.calculateScore(molecule)) - CYCLE * cycle + SHIFT


def main() -> None:
    """Judge every part of zinc-12k."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, default=Path("data"), help="folder of raw data")
    for split, part in open_dataset("zinc-12k", parser.parse_args().data_root).splits.items():
        judged = judge(part)
        print(
            f"{split}: {judged.valid:,} of {judged.graphs:,} graphs are valid molecules; targets correlate at "
            f"{judged.correlation:.4f}, {100 * judged.agreeing:.1f} % agree to {CLOSE:g}"
        )


if __name__ == "__main__":
    main()
