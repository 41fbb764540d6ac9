"""What a site has spent on privacy, by its own ledger, beside what it may spend."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.util import find_spec
from math import inf
from pathlib import Path

from grandrounds.deployment.enrolment import read_enrolment
from grandrounds.reports.audit_log import AuditLog

LEDGER, SPENT = "privacy.jsonl", "spent"
MOST_NOISE = 1e6


@dataclass(frozen=True)
class Spent:
    epsilon: float | None
    """None where the package that counts it is not installed."""
    limit: float
    delta: float
    whose: str
    """Who set the limit."""
    unit: str
    draws: int
    """How often noise was drawn."""


class Spending:
    """A ledger that is read again and again; it is another chain of lines, as the audit log is."""

    def __init__(self, enrolment: Path) -> None:
        own = read_enrolment(enrolment).site.privacy_ledger
        self._ledger = AuditLog(enrolment / (own or Path("private") / LEDGER))
        self._terms = _privacy(enrolment / "terms" / "federation.toml")
        self._steps: dict[tuple[float, float], int] = {}
        self._draws, self._counted = 0, (-1, 0.0)
        self._epsilon: float | None = None

    def look(self, limit: float | None, delta: float | None) -> Spent | None:
        """None where the terms ask for no privacy. The site's policy may have a limit and a delta of its own."""
        if self._terms.get("unit", "none") == "none":
            return None
        for line in self._ledger.rest():
            if line.event == SPENT:
                noise, rate, steps = (line.more.get(name) for name in ("noise", "rate", "steps"))
                if _plain(noise, MOST_NOISE) and _plain(rate, 1.0) and type(steps) is int and steps > 0:
                    self._draws += 1
                    key = float(str(noise)), float(str(rate))
                    self._steps[key] = self._steps.get(key, 0) + steps
        by = _number(self._terms.get("delta"), 1e-5) if delta is None else delta
        if self._counted != (self._draws, by):
            self._counted, self._epsilon = (self._draws, by), self._count(by)
        return Spent(
            self._epsilon,
            _number(self._terms.get("epsilon"), inf) if limit is None else limit,
            by,
            "the federation" if limit is None else "this site's policy",
            str(self._terms["unit"]),
            self._draws,
        )

    def _count(self, delta: float) -> float | None:
        from grandrounds.federation.privacy.accounting import Draw, epsilon

        if find_spec("dp_accounting") is None:
            return None
        return epsilon([Draw(noise, rate, steps) for (noise, rate), steps in self._steps.items()], delta)


def _privacy(terms: Path) -> dict[str, object]:
    try:
        found = tomllib.loads(terms.read_text(encoding="utf-8")).get("privacy", {})
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _plain(value: object, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= most


def _number(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) else otherwise
