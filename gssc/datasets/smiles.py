"""Molecules from SMILES: graphs with the nine atom and three bond columns that OGB defines, and their scaffolds.

Every column is a number in a vocabulary; its last number stands for whatever the vocabulary does not name. For models
trained on ZINC there is its own encoding, of one column each. RDKit is imported where it is used.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch_geometric.utils import cumsum

from gssc.checks import check_installed, fail
from gssc.datasets.flat import FlatGraphs
from gssc.datasets.specs import OGB_ATOM, OGB_BOND
from gssc.datasets.zinc_atoms import zinc_columns

CHIRALITY = ("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW", "CHI_OTHER")
HYBRIDIZATION = ("SP", "SP2", "SP3", "SP3D", "SP3D2")
BOND_TYPE = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")
BOND_STEREO = ("STEREONONE", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS", "STEREOANY")
LOWEST_CHARGE = -5
Encoding = Literal["ogb", "zinc"]


class Molecules(NamedTuple):
    """Graphs without targets, both directions of every bond; ``rows`` are their numbers among what was given."""

    graphs: FlatGraphs
    scaffolds: list[str]
    rows: list[int]


def read_molecules(
    smiles: Sequence[str],
    where: Sequence[str],
    *,
    scaffolds: bool = False,
    skip_invalid: bool = False,
    encoding: Encoding = "ogb",
) -> Molecules:
    """Graphs of SMILES strings.

    Args:
        smiles: One molecule each.
        where: How an error calls each of them, e.g. "row 3".
        scaffolds: Whether Bemis-Murcko scaffolds are needed as well.
        skip_invalid: Leave out what RDKit cannot read, or the encoding has no number for, instead of an error.
        encoding: ``"ogb"``, or ``"zinc"`` for the types of atoms and bonds of ZINC (`gssc.datasets.zinc_atoms`).
    """
    check_installed("SMILES", "rdkit", "molecules")
    from rdkit import Chem, rdBase
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    encode, width = (zinc_columns, 1) if encoding == "zinc" else (_ogb_columns, len(OGB_BOND))
    atoms: list[list[int]] = []
    bonds: list[list[int]] = []
    pairs: list[tuple[int, int]] = []
    atom_counts, bond_counts, rows, all_scaffolds = [], [], [], []
    with rdBase.BlockLogs():
        for number, text in enumerate(smiles):
            molecule = Chem.MolFromSmiles(text)
            try:
                if molecule is None or molecule.GetNumAtoms() == 0:
                    expected = "a SMILES that RDKit can read (--skip-invalid leaves such rows out)"
                    fail(where[number], expected, repr(text))
                # Before the encoding, which may change the molecule.
                scaffold = MurckoScaffoldSmiles(mol=molecule, includeChirality=False) if scaffolds else ""
                its_atoms, its_bonds = encode(molecule, where[number])
            except ValueError:
                if skip_invalid:
                    continue
                raise
            rows.append(number)
            all_scaffolds.append(scaffold)
            atom_counts.append(len(its_atoms))
            bond_counts.append(2 * len(its_bonds))
            atoms += its_atoms
            bonds += its_bonds
            pairs += [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in molecule.GetBonds()]
    if not rows:
        fail("SMILES", "one or more molecules", f"none among {len(smiles)} rows")
    ptr, edge_ptr = (cumsum(torch.tensor(counts)) for counts in (atom_counts, bond_counts))
    ends = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)
    edge_index = torch.stack([ends, ends.flip(1)], dim=1).reshape(-1, 2).T.contiguous()
    edge_attr = torch.tensor(bonds, dtype=torch.long).reshape(-1, width).repeat_interleave(2, dim=0)
    graphs = FlatGraphs(ptr, edge_ptr, edge_index, torch.tensor(atoms), edge_attr, y=torch.empty(0))
    return Molecules(graphs, all_scaffolds, rows)


def _ogb_columns(molecule: Any, _: str) -> tuple[list[list[int]], list[list[int]]]:
    """Columns of the atoms and of the bonds; there is a number for everything."""
    atoms = [
        (
            atom.GetAtomicNum() - 1,
            _number(CHIRALITY, atom.GetChiralTag()),
            atom.GetTotalDegree(),
            atom.GetFormalCharge() - LOWEST_CHARGE,
            atom.GetTotalNumHs(),
            atom.GetNumRadicalElectrons(),
            _number(HYBRIDIZATION, atom.GetHybridization()),
            int(atom.GetIsAromatic()),
            int(atom.IsInRing()),
        )
        for atom in molecule.GetAtoms()
    ]
    bonds = [
        (_number(BOND_TYPE, bond.GetBondType()), _number(BOND_STEREO, bond.GetStereo()), int(bond.GetIsConjugated()))
        for bond in molecule.GetBonds()
    ]
    return [_in_vocabulary(atom, OGB_ATOM) for atom in atoms], [_in_vocabulary(bond, OGB_BOND) for bond in bonds]


def _number(names: Sequence[str], value: Any) -> int:
    """Place of a value in a vocabulary, -1 where it has none."""
    return names.index(str(value)) if str(value) in names else -1


def _in_vocabulary(values: Sequence[int], sizes: Sequence[int]) -> list[int]:
    return [value if 0 <= value < size else size - 1 for value, size in zip(values, sizes, strict=True)]
