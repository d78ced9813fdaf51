"""Molecules from SMILES in tables: graphs with the nine atom and three bond columns of OGB, and their scaffolds.

Every column is a number in a vocabulary; its last number stands for whatever the vocabulary does not name. For models
trained on ZINC there is its own encoding, of one column each. RDKit is imported where it is used.
"""

import csv
import os
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO

import torch
from torch_geometric.utils import cumsum

from gssc.checks import check_choice, check_installed, fail
from gssc.datasets.flat import FlatGraphs
from gssc.datasets.specs import OGB_ATOM, OGB_BOND
from gssc.datasets.zinc_atoms import zinc_columns

CHIRALITY = ("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW", "CHI_OTHER")
HYBRIDIZATION = ("SP", "SP2", "SP3", "SP3D", "SP3D2")
BOND_TYPE = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")
BOND_STEREO = ("STEREONONE", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS", "STEREOANY")
LOWEST_CHARGE = -5
MOST_HEADINGS, MOST_MISSING = 10_000, 10_000_000  # of a table; cells that rows may lack
LONGEST_SMILES = 20_000
Encoding = Literal["ogb", "zinc"]


class Table(NamedTuple):
    """SMILES, what errors call each, e.g. "molecules.csv line 3", labels of predictions by heading, and targets.

    ``read`` is the part of the file that ends here, of 1.
    """

    smiles: list[str]
    where: list[str]
    labels: dict[str, list[str]]
    cells: list[list[str]]
    read: float = 1.0


def read_tables(
    path: Path, smiles_column: str, target_columns: Sequence[str] = (), rows: int | None = None
) -> Iterator[Table]:
    """A CSV file in pieces of so many rows, or in one: SMILES and targets by these headings, all columns as labels."""
    empty = True
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            headings = next(reader, [])
            if not headings:
                fail("csv", "headings in the first line", f"no columns in {path}")
            if len(headings) > MOST_HEADINGS:
                fail("csv", f"at most {MOST_HEADINGS:,} columns", f"{len(headings):,} in {path}")
            for heading in (smiles_column, *target_columns):
                check_choice(f"column of {path.name}", heading, headings)
                if headings.count(heading) > 1:
                    fail(f"column of {path.name}", f"one {heading!r}", f"{headings.count(heading)}")
            smiles_at, *targets_at = (headings.index(heading) for heading in (smiles_column, *target_columns))
            lines = ((row, f"{path.name} line {reader.line_num}") for row in reader if row)
            while piece := list(islice(lines, rows)):
                for row, place in piece:
                    if not max([smiles_at, *targets_at]) < len(row) <= len(headings):
                        fail(place, f"{len(headings)} cells", f"{len(row)}")
                if len(piece) * len(headings) - sum(len(row) for row, _ in piece) > MOST_MISSING:
                    fail(piece[0][1], "rows with most of their cells", f"more than {MOST_MISSING:,} cells missing")
                cells = [[cell.strip() for cell in row] for row, _ in piece]
                columns = zip_longest(headings, *cells, fillvalue="")
                labels = {heading: list(column) for heading, *column in columns}
                targets = [[row[column] for column in targets_at] for row in cells]
                yield Table(labels[smiles_column], [place for _, place in piece], labels, targets, _read(file))
                empty = False
    except FileNotFoundError:
        fail("csv", "an existing file", str(path))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        fail("csv", "a CSV file in UTF-8", f"{path} ({error})")
    if empty:
        fail("csv", "one or more rows below the headings", f"no rows in {path}")


def read_lines(path: Path, rows: int | None = None) -> Iterator[Table]:
    """SMILES, one at the beginning of every line, and names after them, in pieces of so many lines, or in one."""
    empty = True
    try:
        with path.open(encoding="utf-8-sig") as file:
            lines = ((line.split(maxsplit=1), number) for number, line in enumerate(file, 1) if line.strip())
            while piece := list(islice(lines, rows)):
                labels = {
                    "smiles": [words[0] for words, _ in piece],
                    "name": ["".join(words[1:]).strip() for words, _ in piece],
                }
                where = [f"{path.name} line {number}" for _, number in piece]
                yield Table(labels["smiles"], where, labels, [], _read(file))
                empty = False
    except (OSError, UnicodeDecodeError) as error:
        fail("input", "a file of SMILES", f"{path} ({error})")
    if empty:
        fail("input", "one or more SMILES", f"none in {path}")


def _read(file: TextIO) -> float:
    """How much of a file has been read, of 1."""
    return file.buffer.tell() / max(os.fstat(file.fileno()).st_size, 1)


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
    """Graphs of SMILES, which errors call ``where`` (e.g. "row 3"), and their Bemis-Murcko ``scaffolds`` if asked for.

    ``skip_invalid`` leaves out what RDKit cannot read, or the encoding has no number for, instead of an error: all of
    them, perhaps. The encoding ``"zinc"`` has the types of atoms and bonds of ZINC (`gssc.datasets.zinc_atoms`).
    """
    check_installed("SMILES", "rdkit")
    from rdkit import Chem, rdBase
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    encode, *widths = (zinc_columns, 1, 1) if encoding == "zinc" else (_ogb_columns, len(OGB_ATOM), len(OGB_BOND))
    atoms: list[list[int]] = []
    bonds: list[list[int]] = []
    pairs: list[tuple[int, int]] = []
    atom_counts, bond_counts, rows, all_scaffolds = [], [], [], []
    with rdBase.BlockLogs():
        for number, text in enumerate(smiles):
            try:
                if len(text) > LONGEST_SMILES:
                    fail(where[number], f"a SMILES of at most {LONGEST_SMILES:,} characters", f"{len(text):,}")
                molecule = Chem.MolFromSmiles(text)
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
    ptr, edge_ptr = (cumsum(torch.tensor(counts)) for counts in (atom_counts, bond_counts))
    ends = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)
    edge_index = torch.stack([ends, ends.flip(1)], dim=1).reshape(-1, 2).T.contiguous()
    edge_attr = torch.tensor(bonds, dtype=torch.long).reshape(-1, widths[1]).repeat_interleave(2, dim=0)
    x = torch.tensor(atoms, dtype=torch.long).reshape(-1, widths[0])
    graphs = FlatGraphs(ptr, edge_ptr, edge_index, x, edge_attr, y=torch.empty(0))
    return Molecules(graphs, all_scaffolds, rows)


def check_some(molecules: int, rows: int) -> None:
    """Fail where all were left out."""
    if not molecules:
        fail("SMILES", "one or more molecules", f"none among {rows} rows")


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
