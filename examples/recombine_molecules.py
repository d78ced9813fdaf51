"""New molecules from pieces of the training molecules of ZINC-12k, as `train.recombined` makes them; needs RDKit.

python examples/recombine_molecules.py --data-root data
"""

import argparse

from rdkit import Chem, RDLogger
from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

from gssc.datasets import open_dataset
from gssc.datasets.flat import FlatGraphs
from gssc.datasets.recombine import recombine
from gssc.datasets.zinc_atoms import zinc_molecule


def smiles(graphs: FlatGraphs, number: int) -> str | None:
    """The molecule of a graph, if it is one."""
    nodes = slice(int(graphs.ptr[number]), int(graphs.ptr[number + 1]))
    edges = slice(int(graphs.edge_ptr[number]), int(graphs.edge_ptr[number + 1]))
    bonds = [(int(u), int(v)) for u, v in graphs.edge_index[:, edges].T]
    assert graphs.x is not None
    assert graphs.edge_attr is not None
    try:
        molecule = zinc_molecule(graphs.x[nodes, 0].tolist(), bonds, graphs.edge_attr[edges, 0].tolist())
        Chem.SanitizeMol(molecule)
    except ValueError:
        return None
    return str(Chem.MolToSmiles(molecule))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", default="data", help="where ZINC is, or is downloaded to")
    parser.add_argument("--count", type=int, default=4000, help="how many molecules to make")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    RDLogger.DisableLog("rdApp.*")
    training = open_dataset("zinc-12k", options.data_root).splits["train"]
    new = recombine(training, options.count, options.seed)
    known = {text for number in range(len(training)) if (text := smiles(training, number))}
    made = [smiles(new, number) for number in range(len(new))]
    valid = [text for text in made if text]
    scaffolds = {MurckoScaffoldSmiles(text) for text in known}
    strange = sum(MurckoScaffoldSmiles(text) not in scaffolds for text in valid)
    print(f"made: {len(made):,}, molecules: {len(valid):,}, different: {len(set(valid)):,}")
    print(f"in the training set: {len(set(valid) & known):,}")
    print(f"with a scaffold that no training molecule has: {strange / max(len(valid), 1):.1%}")
    print("\n".join(valid[:5]))


if __name__ == "__main__":
    main()
