"""What share of a mean each site has: by what it registered, and no more than the federation allows one site.

Nobody can check how many examples a site has. Without a limit, one that registers 10^12 owns the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grandrounds.errors import ConfigError
from grandrounds.federation.contract import Registration

FEW = 3
"""Sites from which on shares are limited: of two, one may well have most."""
SHOWN = 5


def weight(site: Registration, weight_by: str) -> float:
    """A site's say in a mean; it comes from its registration, so no reply can forge it."""
    if weight_by == "uniform":
        return 1.0
    if weight_by not in site.counts:
        known = ", ".join(["uniform", *sorted(site.counts)])
        raise ConfigError(
            f"federation.weight_by = '{weight_by}', but site '{site.site}' registered no such count; known: {known}"
        )
    return float(site.counts[weight_by])


def weights(sites: Sequence[Registration], weight_by: str, largest: float) -> dict[str, float]:
    """By site; what is over the largest share of all of them together is clipped, the others keep their bits."""
    found = {site.site: weight(site, weight_by) for site in sites}
    return found if len(found) < FEW else clipped(found, largest)


def clipped(found: Mapping[str, float], largest: float) -> dict[str, float]:
    """Those over the limit get c = largest (c k + rest), k of them with c each; where no c can be, all get the same."""
    over: set[str] = set()
    limit = float("inf")
    while True:
        rest = sum(value for name, value in found.items() if name not in over)
        total = rest + sum(min(found[name], limit) for name in over)
        further = {name for name, value in found.items() if name not in over and value > largest * total}
        if not further:
            return {name: limit if name in over else value for name, value in found.items()}
        over |= further
        rest = sum(value for name, value in found.items() if name not in over)
        if len(over) * largest >= 1 or not rest:
            return dict.fromkeys(found, 1.0)
        limit = largest * rest / (1 - len(over) * largest)


def sentences(sites: Sequence[Registration], weight_by: str, largest: float) -> list[str]:
    """What people hear of it before round 1."""
    if weight_by == "uniform" or len(sites) < 2:
        return []
    registered = {site.site: weight(site, weight_by) for site in sites}
    counted = weights(sites, weight_by, largest)
    shares, total = of_all(counted), of_all(registered)
    shown = sorted(shares, key=lambda name: (-shares[name], name))[:SHOWN]
    said = ", ".join(f"{name} {shares[name]:.1%}" for name in shown)
    further = "" if len(shares) <= SHOWN else f", and {len(shares) - SHOWN} smaller"
    cut = [name for name in sorted(counted) if counted[name] < registered[name]]
    return [
        f"weights by {weight_by}: {said}{further}",
        *(
            f"site '{name}' registered {registered[name]:,.0f} {weight_by}, {total[name]:.1%} of all: it counts for "
            f"{shares[name]:.1%} (federation.largest_share)"
            for name in cut
        ),
    ]


def of_all(found: Mapping[str, float]) -> dict[str, float]:
    """Shares that add up to 1."""
    total = sum(found.values())
    return {name: value / total for name, value in found.items()}
