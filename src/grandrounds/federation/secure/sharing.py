"""A site's two secrets, of its own mask and its masking key, in shares; a box for each peer holds one of each.

The coordinator carries the boxes and can't open them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from grandrounds.federation.policy import RefusalError
from grandrounds.federation.secure import masks, shamir
from grandrounds.federation.secure.masks import Place
from grandrounds.federation.secure.randomness import Randomness, below_the_prime
from grandrounds.federation.secure.store import Attempt
from grandrounds.federation.secure_payloads import SIZE, SiteKeys

Pair = tuple[str, str]
"""Our shares of a site's own secret and of its masking key, in hex."""


def split(
    attempt: Attempt, place: Place, names: list[str], site: str, threshold: int, draw: Randomness
) -> dict[str, Pair]:
    """By site, its shares of our secrets; ours among them."""

    def coefficient(what: str) -> Callable[[int], int]:
        return lambda i: int.from_bytes(below_the_prime(draw, place, site, f"{what} share {i}"), "big")

    numbers = range(1, len(names) + 1)
    own = shamir.split(int(attempt.secret, 16), threshold, numbers, coefficient("own"))
    masking = shamir.split(int(attempt.masking, 16), threshold, numbers, coefficient("masking"))
    return {
        name: (own[i].to_bytes(SIZE, "big").hex(), masking[i].to_bytes(SIZE, "big").hex())
        for i, name in zip(numbers, names, strict=True)
    }


def seal(
    attempt: Attempt,
    place: Place,
    shares: Mapping[str, Pair],
    site: str,
    roster: Mapping[str, SiteKeys],
    draw: Randomness,
) -> dict[str, bytes]:
    """A box for each peer."""
    boxes = {}
    for peer in sorted(roster.keys() - {site}):
        nonce = draw(place, site, f"nonce {peer}")[: masks.NONCE]
        content, info = bytes.fromhex("".join(shares[peer])), place.info("shares", site, peer)
        boxes[peer] = masks.seal(content, bytes.fromhex(attempt.sharing), roster[peer].sharing, nonce, info)
    return boxes


def unseal(
    attempt: Attempt, place: Place, boxes: Mapping[str, bytes], site: str, roster: Mapping[str, SiteKeys]
) -> dict[str, Pair]:
    """By sender, our shares of its secrets."""
    shares = {}
    for sender, box in boxes.items():
        info = place.info("shares", sender, site)
        try:
            content = masks.unseal(box, bytes.fromhex(attempt.sharing), roster[sender].sharing, info)
        except ValueError as error:
            raise RefusalError("a peer's shares can't be opened: they were altered on their way") from error
        shares[sender] = content[:SIZE].hex(), content[SIZE:].hex()
    return shares
