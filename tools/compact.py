"""A published model in fewer bytes: weights to fewer bits, compressed.

    python -m tools.compact pretrained/zinc-12k --bits 26

A float32 has 1 bit of sign, 8 of exponent and 23 of mantissa. Matrices are rounded to the nearest number whose last
``32 - bits`` bits are zero, a relative error of at most 2^(8 - bits), and the file is compressed. Mantissas are noise
to a compressor, so every bit left out counts. Vectors (biases, norms and their statistics) stay as they are.
Afterwards ``gssc evaluate FOLDER`` must give the recorded score.
"""

import lzma
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

from gssc.checks import check_choice, fail
from gssc.files import WEIGHTS, load_tensors, replace_folder, tensor_bytes
from gssc.pretrained.manifest import NAME, check_folder, make_manifest, read_manifest
from tools.errors import in_one_line

# Numbers are four bytes, whose statistics differ.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 0, "lp": 2, "pb": 2}]
PLACE = "\n\n## Training\n"  # of the card, before which the note goes
NOTE = "Weights are stored to {bits} bits; the scores are those of the weights as trained."


def rounded(weight: Tensor, bits: int) -> Tensor:
    """The nearest float32 whose last ``32 - bits`` bits are zero."""
    dropped = 32 - bits
    if not dropped or weight.dtype != torch.float32 or weight.ndim < 2:
        return weight
    pattern = weight.contiguous().view(torch.int32)
    return (((pattern + (1 << (dropped - 1))) >> dropped) << dropped).view(torch.float32)


def compact(folder: Path, bits: int) -> int:
    """Store the weights of a published model to some bits, compressed; returns the bytes of the new file."""
    check_choice("bits", bits, range(16, 33))
    check_folder(folder)
    files = {file: (folder / file).read_bytes() for file in read_manifest((folder / NAME).read_bytes(), str(folder))}
    plain, compressed = WEIGHTS
    if plain not in files:
        fail("model", f"one with its {plain}", str(folder))
    tensors, about = load_tensors(folder / plain)
    short = tensor_bytes({name: rounded(tensor, bits) for name, tensor in tensors.items()}, about)
    files[compressed] = lzma.compress(short, filters=FILTERS)
    del files[plain]
    if bits < 32:
        files["README.md"] = files["README.md"].decode().replace(PLACE, f" {NOTE.format(bits=bits)}{PLACE}", 1).encode()
    replace_folder(folder, files | {NAME: make_manifest(folder.resolve().name, files)})
    return len(files[compressed])


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    folders: Annotated[list[Path], typer.Argument(help="Published models.")],
    bits: Annotated[int, typer.Option(help="Of each weight: 32 changes nothing.")] = 26,
) -> None:
    """Store the weights of published models in fewer bytes."""
    for folder in folders:
        print(f"{folder}: {compact(folder, bits):,} bytes")


if __name__ == "__main__":
    in_one_line(app)
