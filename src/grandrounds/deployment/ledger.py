"""What a site has answered so far, by its own log: a coordinator gets each answer once.

The same ask again, as after a lost reply, has the same answer, so it does no harm: a run that is resumed with the same
sites asks the same. Where another site was lost or found in between, its asks differ from the last checkpoint on. So
another ask for the same round and exchange is answered once, after a break (the coordinator greeted us anew, as after a
crash), if by the terms that round has no checkpoint behind it yet, and for a few breaks in all. What is refused costs
an honest coordinator a round, which is abandoned; the run goes on with the next.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from grandrounds.errors import GrandRoundsError
from grandrounds.federation.contract import Algorithm, declared_kinds, site_method
from grandrounds.federation.exchange import Ask
from grandrounds.federation.payloads import Done, Gradients, Packed, Payload, Scores
from grandrounds.federation.policy import RefusalError
from grandrounds.federation.secure.settings import MASKED

GREETED, ASKED = "registered", "asked"
AT_THE_END = 2
"""Models that are judged under the number of a round: its own, and after the last round the best one."""
MOST_COURSES = 5
"""Breaks after which the run took another course than before: more of them are no accident."""


class SiteLedger:
    def __init__(
        self,
        log: Path,
        rounds: int,
        algorithm: Algorithm,
        checkpoint_every: int = 1,
        all_in_every_round: bool = True,
    ) -> None:
        """`log` is the site's audit log, from which it goes on; all else is the terms'."""
        self._all_in_every_round = all_in_every_round
        self._rounds, self._algorithm, self._exchanges = rounds, algorithm, algorithm.exchanges()
        self._checkpoint_every, self._latest, self._breaks = checkpoint_every, 0, 0
        self._courses: set[int] = set()
        """Breaks after which an ask was another one than before."""
        self._sizes: dict[str, int] = {}
        """Sizes of mini-batches whose gradients left, each with the number of breaks before it."""
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
        if ask.phase not in ("", MASKED):  # no method runs, and SecureSite knows what it has said
            return {**ask.where, "event": "secure sum", "phase": ask.phase}
        judged, sizes = self._judged(ask), self._sizes_in(ask)
        if sizes not in self._sizes:
            self._check_sizes(sizes)
        place, ask_digest = _place(ask, judged), _digest(ask)
        before, most = self._answered.get(place, {}), AT_THE_END if judged else 1
        anew = ask_digest not in before and len(before) >= most
        if anew:
            self._check_course(ask.round, before, most)
        line = {**ask.where, "event": ASKED, "method": ask.method, "place": place, "ask": ask_digest}
        line |= ({"anew": True} if anew else {}) | ({"sizes": sizes} if sizes else {})
        self._remember(line)
        return line

    def _check_course(self, round: int, before: Mapping[str, int], most: int) -> None:
        """RefusalError unless a resumed run may well ask here what it did not ask before."""
        if max(before.values()) == self._breaks:
            raise RefusalError("this round and exchange were answered already, to an ask with other content")
        if round <= (checkpoint := (self._latest - 1) // self._checkpoint_every * self._checkpoint_every):
            raise RefusalError(f"round {round} is over: by the terms a resumed run goes back to round {checkpoint}")
        if len(before) > most:
            raise RefusalError(f"this round and exchange were answered {len(before)} times, to asks that differ")
        if self._breaks not in self._courses and len(self._courses) >= MOST_COURSES:
            raise RefusalError(f"the run changed its course after {MOST_COURSES} breaks already; enrol anew")

    def _check_sizes(self, sizes: str) -> None:
        """RefusalError where mini-batches have another size than before: of two that differ by one sentence, the
        difference of their gradients is that sentence's. Where every site is in every round, sizes stay as they are
        but for a site that left the federation between two starts."""
        if not self._sizes or not sizes or not self._all_in_every_round:
            return
        if max(self._sizes.values()) == self._breaks or len(self._sizes) > MOST_COURSES:
            known = ", ".join(self._sizes)
            raise RefusalError(f"the size of mini-batches was {known} and is {sizes}: by the terms it stays the same")

    def _sizes_in(self, ask: Ask) -> str:
        """The numbers in an ask for gradients; empty where others are asked for."""
        numbers = [str(part) for part in ask.message if isinstance(part, int) and Gradients in self._kinds(ask)]
        return " ".join(numbers)

    def _judged(self, ask: Ask) -> bool:
        """Whether a model is judged: read-only, and nothing but scores, or the word that it is done, leaves."""
        return ask.commit is None and {Scores, Done}.issuperset(self._kinds(ask))

    def _kinds(self, ask: Ask) -> Collection[type[Payload]]:
        kinds = declared_kinds(site_method(self._algorithm, ask.method))
        return kinds if isinstance(kinds, tuple) else (kinds,)

    def _remember(self, line: Mapping[str, Any]) -> None:
        if line.get("event") == GREETED:
            self.greeted()
        elif line.get("event") == ASKED:
            self._answered.setdefault(str(line["place"]), {}).setdefault(str(line["ask"]), self._breaks)
            self._latest = max(self._latest, int(line["round"]))
            if sizes := line.get("sizes"):
                self._sizes.setdefault(str(sizes), self._breaks)
            if line.get("anew"):
                self._courses.add(self._breaks)


def _place(ask: Ask, judged: bool) -> str:
    """An evaluation asks for one split after the other under its round's numbers; no other word makes a new place."""
    words = [part for part in ask.message if isinstance(part, str)] if judged else []
    return json.dumps([ask.round, ask.exchange, ask.method if judged else "", words])


def _digest(ask: Ask) -> str:
    """In a secure sum, of what the method is asked: the peers' shares before it are others in each attempt."""
    message = ask.message[1:] if ask.phase else ask.message
    parts = [part.digest if isinstance(part, Packed) else part for part in message]
    said = [ask.method, parts, ask.start, ask.commit, ask.public]
    return sha256(json.dumps(said).encode()).hexdigest()[:32]
