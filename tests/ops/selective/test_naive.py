import torch
from batches import selective_inputs

from gssc import ops


def test_one_node_one_frequency_by_hand(float64):
    """z = pφ, z̃ = (pφ)² d_q d_k / φ² · pφx w_v, with pair gain D = φ²d_q d_k: z̃ = p²D · pφxw_v."""
    p, phi, d, x, w = 2.0, 3.0, 5.0, 7.0, 11.0
    tensor = lambda v: torch.tensor([[v]])  # noqa: E731
    weights = {"dv": tensor(w), "q": tensor(1.0), "k": tensor(1.0), "sq": tensor(1.0), "sk": tensor(1.0)}
    out = ops.selective_gssc_conv(
        tensor(x),
        tensor(1.0),
        tensor(1.0),
        tensor(p),
        tensor(phi)[None],
        tensor(d)[None],
        weights,
        torch.tensor([0, 1]),
        normalize=False,
        backend="naive",
    )
    z_tilde = p * p * d * (p * phi * x * w)
    torch.testing.assert_close(out, tensor(2 * z_tilde**2), rtol=1e-12, atol=0)


def test_normalised_positions_stay_small(float64):
    inputs = selective_inputs([9, 4], 4, 3)
    weights = {name: 100 * inputs.pop(name) for name in ("dv", "q", "k", "sq", "sk")}
    weights |= {name: torch.eye(3) for name in ("q", "k", "sq", "sk")}
    # Σ_u ‖z̃_u,c‖² = ‖T_c‖² / (1 + ‖T_c‖² / k) <= k: read off from the self term with x_s = 1.
    inputs["x_o"], inputs["x_s"] = None, torch.ones(13, 3)
    squared = ops.selective_gssc_conv(**inputs, weights=weights, backend="naive")
    assert squared[:9].sum(0).max() <= 4.0 + 1e-9
    assert squared[:9].sum(0).min() > 3.9
