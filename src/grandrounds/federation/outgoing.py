"""What happens to a payload between an `@on_site` method and the wire: a list of steps, in order.

A step changes the payload (clip, noise, a simulated attacker), packs it, or looks at what is packed (a site's policy).
Steps compose with any algorithm, and no algorithm knows of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from grandrounds.federation.payloads import Compression, Packed, Payload
from grandrounds.federation.policy import Policy

Leaving = Payload | Packed
Step = Callable[[Leaving], Leaving]
Attack = Callable[[Sequence[object]], Step]
"""In a simulation: what an attacker does to what it sends, given what it received."""


def pack(compression: Compression) -> Step:
    def step(leaving: Leaving) -> Leaving:
        return leaving.pack(compression) if isinstance(leaving, Payload) else leaving

    return step


def allowed_by(policy: Policy) -> Step:
    """RefusalError where the site's policy does not let it leave."""

    def step(leaving: Leaving) -> Leaving:
        policy.check(cast("Packed", leaving))
        return leaving

    return step


def send(payload: Payload, steps: Sequence[Step]) -> Packed:
    """What leaves of it."""
    leaving: Leaving = payload
    for step in steps:
        leaving = step(leaving)
    return cast("Packed", leaving)
