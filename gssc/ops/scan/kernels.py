"""The Triton kernel of the recurrence. Imported only where it runs: see ``triton.py``, which explains the passes."""

import triton
import triton.language as tl


@triton.jit
def join(a, b, a_next, b_next):
    """Two steps as one: h -> a_next (a h + b) + b_next."""
    return a * a_next, b * a_next + b_next


@triton.jit(do_not_specialize=["rows", "chunks"])
def scan(
    a, b, before, decay, out, rows, chunks, F: tl.constexpr, T: tl.constexpr, BLOCK_F: tl.constexpr,
    BACKWARDS: tl.constexpr, SHIFT: tl.constexpr, ENDS: tl.constexpr,
):  # fmt: skip
    """A chunk of rows, some columns: all rows, or, with ENDS, the last in the order of the scan and its decay."""
    chunk, place = tl.program_id(0), tl.arange(0, T)
    row = (chunk * T + place).to(tl.int64)[:, None]
    f = (tl.program_id(1) * BLOCK_F + tl.arange(0, BLOCK_F))[None, :]
    mask = (row < rows) & (f < F)
    factor = tl.load(a + (row + SHIFT) * F + f, mask=(row + SHIFT < rows) & (f < F), other=1.0).to(tl.float32)
    value = tl.load(b + row * F + f, mask=mask, other=0.0).to(tl.float32)
    factor, value = tl.associative_scan((factor, value), 0, join, reverse=BACKWARDS)
    if ENDS:
        last = (place == (0 if BACKWARDS else T - 1))[:, None]
        at = chunk * F + f + tl.zeros([T, 1], tl.int64)
        tl.store(decay + at, factor, mask=last & (f < F))
        tl.store(out + at, value, mask=last & (f < F))
    else:
        if before is not None:
            other = chunk + 1 if BACKWARDS else chunk - 1
            known = (f < F) & (other >= 0) & (other < chunks)
            value += factor * tl.load(before + other * F + f, mask=known, other=0.0)
        tl.store(out + row * F + f, value.to(out.dtype.element_ty), mask=mask)
