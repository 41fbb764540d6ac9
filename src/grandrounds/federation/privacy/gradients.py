"""DP-SGD (Abadi et al., CCS 2016, Algorithm 1): each unit's gradient is clipped, the sum gets Gaussian noise.

The gradients are exact whatever the model and its loss are: each comes from a backward pass of its own. What has to be
true of a task is only that a unit's loss can be computed from the unit's own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor, nn


def noisy_gradient(
    model: nn.Module,
    losses: Iterable[Callable[[], Tensor]],
    clip: float,
    noise: float,
    expected: float,
    rng: np.random.Generator,
) -> None:
    """Leave in the model (sum_u g_u min(1, clip / |g_u|) + N(0, (noise clip)^2)) / expected. `losses` has one for each
    unit of the sample; `expected` is their expected number, for the true one is the unit's to hide."""
    total = clipped_sum(model, losses, clip)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            drawn = gaussian(parameter, noise * clip, rng)
            parameter.grad = total[name].add_(drawn).div_(expected)


def clipped_sum(model: nn.Module, losses: Iterable[Callable[[], Tensor]], clip: float) -> dict[str, Tensor]:
    """sum_u g_u min(1, clip / |g_u|) by parameter. A gradient that is not finite counts as zero: it would have no
    bound."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    total = {name: torch.zeros_like(p) for name, p in trained.items()}
    for loss in losses:
        model.zero_grad(set_to_none=True)
        loss().backward()
        found = {name: _dense(p.grad) for name, p in trained.items() if p.grad is not None}
        norm = nn.utils.get_total_norm(list(found.values())).item() if found else 0.0
        if norm == 0 or not np.isfinite(norm):
            continue
        torch._foreach_add_([total[name] for name in found], list(found.values()), alpha=min(1.0, clip / norm))
    model.zero_grad(set_to_none=True)
    return total


def gaussian(like: Tensor, deviation: float, rng: np.random.Generator) -> Tensor:
    """Noise of this shape, drawn on the CPU, so that every device gets the same."""
    kind = np.float64 if like.dtype == torch.float64 else np.float32
    drawn = rng.standard_normal(size=tuple(like.shape), dtype=kind)
    return torch.from_numpy(np.asarray(drawn)).mul_(deviation).to(like.device, like.dtype)


def _dense(gradient: Tensor) -> Tensor:
    return gradient.to_dense() if gradient.is_sparse else gradient
