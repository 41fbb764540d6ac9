"""The coordinator's side of a secure sum: five exchanges, of which it learns the weighted mean of those who stayed.

A site may drop out at any time: before its keys are shared it is not missed; after that, but before its masked numbers
arrived, its masking key is put together of shares, and its masks are taken out of the others' sum; later, the secret of
its own mask is. With fewer sites than the threshold nothing can be opened, and the attempt is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Protocol, TypeVar

from grandrounds.federation.contract import Kinds, Registration
from grandrounds.federation.exchange import Plain
from grandrounds.federation.payloads import Expected, Packed, Payload, PayloadError
from grandrounds.federation.secure import masks, shamir
from grandrounds.federation.secure.masks import Place
from grandrounds.federation.secure.settings import MASKED, SecureSettings
from grandrounds.federation.secure.total import GivenUpError, Total
from grandrounds.federation.secure_payloads import (
    Agreement,
    KeyShares,
    MaskKeys,
    OpenedShares,
    SiteKeys,
    Stayed,
    the_only,
)

T = TypeVar("T")
Message = tuple[Packed | Plain, ...]
Parts = tuple[Packed, ...]
KEYS, SHARES, AGREE, UNMASK = "keys", "shares", "agree", "unmask"
MOST_TRIES = 200
"""Sets of shares that are tried where a site sent a wrong one."""


class Sites(Protocol):
    """Who is asked."""

    def ask(self, phase: str, messages: Mapping[str, Message]) -> Iterator[tuple[str, Parts]]:
        """What came of each site that answered."""
        ...

    def reject(self, site: str, why: str) -> None: ...


@dataclass(frozen=True)
class SecureSum:
    """What was learnt."""

    payloads: tuple[Payload, ...]
    """The weighted mean, part by part."""
    stayed: tuple[str, ...]
    weight: int
    clipped: int
    """Values beyond the range of fixed point, of all sites together."""
    rounding: float
    """How far the mean can be from that of the numbers before they were rounded, at most."""
    noise: float = 0.0
    """The deviation of the noise that these sites added, as a multiple of what was agreed on."""


def secure_sum(
    sites: Sites,
    registered: Sequence[Registration],
    messages: Mapping[str, Message],
    kinds: Kinds,
    expected: Expected,
    settings: SecureSettings,
    place: Place,
) -> SecureSum:
    """The mean of what these sites answer to these messages; GivenUpError where too few stay."""
    by_name = {site.site: site for site in registered}
    total = Total(kinds if isinstance(kinds, tuple) else (kinds,), expected)

    def gather(phase: str, asked: Mapping[str, Message], read: Callable[[str, Parts], T], least: int) -> dict[str, T]:
        found = {}
        for site, parts in sites.ask(phase, asked):
            try:
                found[site] = read(site, parts)
            except PayloadError as problem:
                sites.reject(site, f"rejected: {problem}")
            except Exception as bug:  # whatever one site's reply leads to, the others' sum goes on
                sites.reject(site, f"failed: its reply can't be used ({type(bug).__name__})")
        if len(found) < least:
            raise GivenUpError(f"{len(found)} sites answered in the phase '{phase}', and {least} are needed")
        return found

    def advertised(site: str, parts: Parts) -> SiteKeys:
        return _keys(by_name[site], parts, settings)

    keys = gather(KEYS, dict.fromkeys(messages, ()), advertised, settings.threshold(1))
    needed = settings.threshold(len(keys))
    roster: Message = (MaskKeys(keys).pack("fp32"),)
    boxes = gather(SHARES, dict.fromkeys(keys, roster), lambda site, parts: _boxes(site, parts, keys.keys()), needed)
    inboxes = {site: KeyShares({peer: boxes[peer][site] for peer in boxes if peer != site}) for site in boxes}
    asked = {site: (inboxes[site].pack("fp32"), *messages[site]) for site in boxes}
    stayed = gather(MASKED, asked, total.add, needed).keys()
    who: Message = (Stayed(frozenset(stayed)).pack("fp32"),)
    signed = gather(AGREE, dict.fromkeys(stayed, who), _signature, needed)
    agreed: Message = (Agreement(signed).pack("fp32"),)
    gone = boxes.keys() - stayed
    opened = gather(UNMASK, dict.fromkeys(signed, agreed), lambda _, parts: _shares(parts, stayed, gone), needed)

    _Secrets(keys, place, needed).take_out(total, stayed, gone, opened)
    all_weights = settings.weights({site: one.weight for site, one in keys.items()})
    weights, numbers = [all_weights[site] for site in sorted(stayed)], settings.numbers(len(keys))
    payloads, clipped = total.means(numbers, weights)
    noise = 0.0 if settings.noise is None else settings.noise.excess(numbers.bits, needed, len(stayed))
    return SecureSum(payloads, tuple(sorted(stayed)), sum(weights), clipped, numbers.rounding(weights), noise)


class _Secrets:
    """Put together of shares: for each site one secret, never both."""

    def __init__(self, keys: Mapping[str, SiteKeys], place: Place, threshold: int) -> None:
        self._keys, self._place, self._threshold = keys, place, threshold
        self._number = {site: number for number, site in enumerate(sorted(keys), start=1)}

    def take_out(self, total: Total, stayed: Set[str], gone: Set[str], opened: Mapping[str, OpenedShares]) -> None:
        """The own masks of who stayed, and those that they share with who dropped out."""
        for site in sorted(stayed):
            shares = {peer: some.own[site] for peer, some in opened.items()}
            secret = self._whole(shares, masks.commitment, self._keys[site].commitment)
            total.take_out(masks.self_seed(secret, self._place, site))
        for lost in sorted(gone):
            shares = {peer: some.pair[lost] for peer, some in opened.items()}
            private = self._whole(shares, masks.public_of, self._keys[lost].masking)
            for site in sorted(stayed):
                seed = masks.pair_seed(private, self._keys[site].masking, self._place, lost, site)
                total.take_out(seed, subtract=site < lost)  # as the site added it

    def _whole(self, shares: Mapping[str, int], shown: Callable[[bytes], bytes], advertised: bytes) -> bytes:
        """Of any shares that fit what the site advertised: a wrong share is passed over."""
        for chosen in islice(combinations(sorted(shares), self._threshold), MOST_TRIES):
            whole = shamir.combine({self._number[peer]: shares[peer] for peer in chosen})
            secret = whole.to_bytes(32, "big")
            if shown(secret) == advertised:
                return secret
        raise GivenUpError("the shares of a site's secret do not fit together: a site sent wrong ones")


def _keys(site: Registration, parts: Parts, settings: SecureSettings) -> SiteKeys:
    found = the_only(parts, MaskKeys).sites
    if found.keys() != {site.site}:
        raise PayloadError("a site advertises its own keys")
    registered = 1 if settings.weight_by == "uniform" else site.counts.get(settings.weight_by)
    if found[site.site].weight != registered:
        raise PayloadError("a site's weight is what it registered before round 1")
    if not all(map(masks.usable, found[site.site][:2])):
        raise PayloadError("a site's key is none that a secret can be agreed on with")
    return found[site.site]


def _boxes(site: str, parts: Parts, roster: Set[str]) -> Mapping[str, bytes]:
    boxes = the_only(parts, KeyShares).boxes
    if boxes.keys() != roster - {site}:
        raise PayloadError("shares are sealed to each of the other sites")
    return boxes


def _signature(site: str, parts: Parts) -> bytes:
    signatures = the_only(parts, Agreement).signatures
    if signatures.keys() != {site}:
        raise PayloadError("a site signs for itself")
    return signatures[site]


def _shares(parts: Parts, stayed: Set[str], gone: Set[str]) -> OpenedShares:
    found = the_only(parts, OpenedShares)
    if found.own.keys() != stayed or found.pair.keys() != gone:
        raise PayloadError("shares are opened of the own masks of who stayed, and of the keys of who did not")
    return found
