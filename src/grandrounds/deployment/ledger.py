"""What a site has answered so far, by its own log: a coordinator gets each answer once.

The same ask again, as after a lost reply, has the same answer, so it does no harm. Another ask for the same round and
exchange is answered only after a break (the coordinator greeted us anew, as after a crash), and a few times at most.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from grandrounds.errors import GrandRoundsError
from grandrounds.federation.contract import Algorithm, declared_kinds, site_method
from grandrounds.federation.exchange import Ask
from grandrounds.federation.payloads import Done, Packed, Scores
from grandrounds.federation.policy import RefusalError

GREETED, ASKED = "registered", "asked"
AT_THE_END = 2
"""Models that are judged under the number of a round: its own, and after the last round the best one."""
MOST_ANEW = 5
"""Answers to different asks for one round and exchange: a run that was interrupted may take another course."""


class SiteLedger:
    def __init__(self, log: Path, rounds: int, algorithm: Algorithm) -> None:
        """`log` is the site's audit log, from which it goes on; rounds and algorithm are the terms'."""
        self._rounds, self._algorithm, self._exchanges = rounds, algorithm, algorithm.exchanges()
        self._breaks = 0
        self._answered: dict[str, dict[str, int]] = {}
        """By place, the asks that were answered there, each with the number of breaks before it."""
        for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
            try:
                self._remember(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise GrandRoundsError(f"'{log}' was edited or torn: grandrounds audit verify says where") from error

    def greeted(self) -> None:
        self._breaks += 1

    def record(self, ask: Ask) -> dict[str, Any]:
        """The line for the log; RefusalError where it may not be answered."""
        if not 0 <= ask.round <= self._rounds:
            raise RefusalError(f"the terms have {self._rounds} rounds, so none with the number {ask.round}")
        if not 1 <= ask.exchange <= self._exchanges:
            raise RefusalError(f"a round of this algorithm has {self._exchanges} exchanges at most")
        judged = self._judged(ask)
        place, ask_digest = _place(ask, judged), _digest(ask)
        before = self._answered.get(place, {})
        if before and ask_digest not in before and not (judged and len(before) < AT_THE_END):
            if max(before.values()) == self._breaks:
                raise RefusalError("this round and exchange were answered already, to an ask with other content")
            if len(before) >= MOST_ANEW:
                raise RefusalError(
                    f"this round and exchange were answered {len(before)} times; enrol anew for a new run"
                )
        line = {**ask.where, "event": ASKED, "method": ask.method, "place": place, "ask": ask_digest}
        self._remember(line)
        return line

    def _judged(self, ask: Ask) -> bool:
        """Whether a model is judged: read-only, and nothing but scores, or the word that it is done, leaves."""
        if ask.commit is not None:
            return False
        kinds = declared_kinds(site_method(self._algorithm, ask.method))
        return {Scores, Done}.issuperset(kinds if isinstance(kinds, tuple) else (kinds,))

    def _remember(self, line: Mapping[str, Any]) -> None:
        if line.get("event") == GREETED:
            self.greeted()
        elif line.get("event") == ASKED:
            self._answered.setdefault(str(line["place"]), {}).setdefault(str(line["ask"]), self._breaks)


def _place(ask: Ask, judged: bool) -> str:
    """An evaluation asks for one split after the other under its round's numbers; no other word makes a new place."""
    words = [part for part in ask.message if isinstance(part, str)] if judged else []
    return json.dumps([ask.round, ask.exchange, ask.method if judged else "", words])


def _digest(ask: Ask) -> str:
    parts = [part.digest if isinstance(part, Packed) else part for part in ask.message]
    said = [ask.method, parts, ask.start, ask.commit, ask.public]
    return sha256(json.dumps(said).encode()).hexdigest()[:32]
