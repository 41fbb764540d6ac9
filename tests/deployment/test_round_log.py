"""A site tells its people of each round in one line."""

from __future__ import annotations

import torch

from grandrounds.deployment.round_log import RoundLog
from grandrounds.federation.payloads import Done, Packed, Parameters

WEIGHTS = Parameters({"w": torch.zeros(50_000)}).pack("fp32")
DONE: Packed = Done().pack("fp32")


def test_a_round_is_one_line_however_often_the_site_was_asked() -> None:
    said: list[str] = []
    log = RoundLog(said.append)
    log.exchange(0, [], [DONE], None, 0.25)
    log.exchange(1, [WEIGHTS], [WEIGHTS], None, 2.0)
    log.exchange(1, [WEIGHTS], [WEIGHTS, DONE], None, 1.5)
    assert said == [f"before round 1: sent done ({DONE.nbytes / 1e3:.1f} kB), received 0.0 kB, 0.2 s"]
    log.exchange(2, [WEIGHTS], [], "refused: the site's policy does not let 'parameters' leave", 0.5)
    assert said[1:] == ["round 1: sent done, 2 x parameters (0.40 MB), received 0.40 MB, 3.5 s"]
    log.end()
    assert said[2:] == [
        "round 2: sent nothing, received 0.20 MB, 0.5 s; refused: the site's policy does not let 'parameters' leave"
    ]
    log.end()
    assert len(said) == 3
