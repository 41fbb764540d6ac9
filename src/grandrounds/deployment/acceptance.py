"""What a site lets leave where nobody has written a policy: what the algorithm needs, once a person has said yes."""

from __future__ import annotations

import inspect
import time
from pathlib import Path

import tomli_w

from grandrounds.federation.contract import Algorithm, sent_kinds
from grandrounds.federation.files import write_whole
from grandrounds.federation.payloads import Gradients
from grandrounds.federation.secure.settings import AVERAGED
from grandrounds.federation.secure_payloads import Agreement, KeyShares, Masked, MaskKeys, OpenedShares

LEAST_BATCH = 4
"""Sentences that gradients are of."""


def needed_kinds(algorithm: Algorithm, secure: bool = False) -> dict[str, str]:
    """The kinds that its site methods give, each with a sentence on what it is; in a secure sum, those of the masks in
    place of what is averaged."""
    found = sent_kinds(algorithm)
    if secure and found & {*AVERAGED}:
        found = found - {*AVERAGED} | {MaskKeys, KeyShares, Masked, Agreement, OpenedShares}
    return {kind.kind: inspect.cleandoc(kind.__doc__ or "").replace("\n", " ") for kind in sorted(found, key=str)}


def write_accepted(path: Path, algorithm: Algorithm, terms: str, secure: bool = False) -> None:
    """A policy like any other; edit it or delete it."""
    kinds = needed_kinds(algorithm, secure)
    least = {"least_batch": LEAST_BATCH} if Gradients.kind in needed_kinds(algorithm) else {}
    head = f"# Accepted at {time.strftime('%Y-%m-%d %H:%M')} for '{algorithm.name}' on the terms {terms}\n"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(path, (head + tomli_w.dumps({"allow": sorted(kinds), **least})).encode())
