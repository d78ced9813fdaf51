"""Molecules from SMILES: graphs with the nine atom and three bond columns that OGB defines, and their scaffolds.

Every column is a number in a vocabulary; its last number stands for whatever the vocabulary does not name. For models
trained on ZINC there is its own encoding, of one column each. RDKit is imported where it is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from gssc.checks import fail
from gssc.datasets.specs import OGB_ATOM, OGB_BOND
from gssc.datasets.zinc_atoms import zinc_columns

CHIRALITY = ("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW", "CHI_OTHER")
HYBRIDIZATION = ("SP", "SP2", "SP3", "SP3D", "SP3D2")
BOND_TYPE = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")
BOND_STEREO = ("STEREONONE", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS", "STEREOANY")
LOWEST_CHARGE = -5
Encoding = Literal["ogb", "zinc"]


@dataclass(frozen=True)
class Molecules:
    """G molecules end to end, both directions of every bond; ``rows`` are their numbers among what was given."""

    counts: Tensor
    bonds: Tensor
    edge_index: Tensor
    x: Tensor
    edge_attr: Tensor
    scaffolds: list[str]
    rows: list[int]
    skipped: int


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
    try:
        from rdkit import Chem, rdBase
        from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles
    except ImportError:
        fail("SMILES", "the package rdkit (pip install 'gssc[molecules]')", "no such package")
    atoms: list[list[int]] = []
    bonds: list[list[int]] = []
    ends: list[tuple[int, int]] = []
    counts, bond_counts, rows, all_scaffolds = [], [], [], []
    with rdBase.BlockLogs():
        for number, text in enumerate(smiles):
            molecule = Chem.MolFromSmiles(text)
            if molecule is None or molecule.GetNumAtoms() == 0:
                if skip_invalid:
                    continue
                fail(where[number], "a SMILES that RDKit can read (--skip-invalid leaves such rows out)", repr(text))
            scaffold = MurckoScaffoldSmiles(mol=molecule, includeChirality=False) if scaffolds else ""
            try:
                its_atoms, its_bonds = (zinc_columns if encoding == "zinc" else _ogb_columns)(molecule, where[number])
            except ValueError:
                if skip_invalid:
                    continue
                raise
            rows.append(number)
            counts.append(molecule.GetNumAtoms())
            bond_counts.append(2 * molecule.GetNumBonds())
            atoms += its_atoms
            for bond, columns in zip(molecule.GetBonds(), its_bonds, strict=True):
                i, j = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
                ends += [(i, j), (j, i)]
                bonds += [columns, columns]
            if scaffolds:
                all_scaffolds.append(scaffold)
    if not rows:
        fail("SMILES", "one or more molecules", f"none among {len(smiles)} rows")
    return Molecules(
        torch.tensor(counts),
        torch.tensor(bond_counts),
        torch.from_numpy(np.array(ends, dtype=np.int64).reshape(-1, 2).T.copy()),
        torch.tensor(atoms),
        torch.from_numpy(np.array(bonds, dtype=np.int64).reshape(-1, 1 if encoding == "zinc" else len(OGB_BOND))),
        all_scaffolds,
        rows,
        len(smiles) - len(rows),
    )


def _ogb_columns(molecule: Any, _: str) -> tuple[list[list[int]], list[list[int]]]:
    """Columns of the atoms and of the bonds; there is a number for everything."""
    return [_atom(atom) for atom in molecule.GetAtoms()], [_bond(bond) for bond in molecule.GetBonds()]


def _atom(atom: Any) -> list[int]:
    values = (
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
    return [value if 0 <= value < size else size - 1 for value, size in zip(values, OGB_ATOM, strict=True)]


def _bond(bond: Any) -> list[int]:
    values = (
        _number(BOND_TYPE, bond.GetBondType()),
        _number(BOND_STEREO, bond.GetStereo()),
        int(bond.GetIsConjugated()),
    )
    return [value if 0 <= value < size else size - 1 for value, size in zip(values, OGB_BOND, strict=True)]


def _number(names: Sequence[str], value: Any) -> int:
    """Place of a value in a vocabulary, -1 where it has none."""
    name = str(value)
    return names.index(name) if name in names else -1
