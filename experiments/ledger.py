"""The ledger of claims: what the five papers say, whether it holds here, and how that was found out.

Claims are written by hand in docs/results/claims.toml, runs in experiments/evidence.toml; effects, intervals and seeds
are read from the runs' JSON, and a verdict that does not follow from them is an error.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.effects import Effect, Part

CLAIMS, LEDGER, RUNS = "docs/results/claims.toml", "docs/results/claims.md", "experiments/evidence.toml"
CONFIRMED, REFUTED, UNKNOWN = "confirmed", "refuted", "can't tell"
VERDICTS = (CONFIRMED, REFUTED, UNKNOWN)
NOT_RUN = "not run"
PAPERS = {
    "FedED": "Sui et al., EMNLP 2020",
    "FedLCC": "Xiao et al., 2024",
    "FedDS": "Sui et al., 2020 (Lazy MIL)",
    "FedNER": "Ge et al., 2020",
    "Federated BERT": "Liu and Miller, 2020",
}
RULE = """A claim is **confirmed** if the 95% interval of its effect lies wholly on the side that it claims, **refuted**
if it lies wholly on the other side, and otherwise we **can't tell**. A claim of several parts (a lead over several
rivals) is confirmed if every part is, and refuted if one part is; with several parts a chance refutation is that much
likelier, up to 2.5% a part. Where the best round of an arm was its last in more than half of its runs, it may not
have been trained out: then we can't tell, unless the row says why it had. Effects are the first arm's score less the
second's, on the test set, in the round that validation data chose; F1 and AUC are shares of one. Intervals resample
seeds and test documents together ([significance.py](../../src/grandrounds/metrics/significance.py)); those marked *t*
are Student's over seeds alone. The corpora stand in for the papers' own wherever those can't be had, so a verdict is
about the claim *on these data*, as the protocol says, and not about the papers' tables."""


@dataclass(frozen=True)
class Run:
    """A run of the queue that claims take their numbers from."""

    name: str
    step: int
    """Of the issue's list, 1 to 6."""
    command: str
    writes: str
    """What of its folder becomes docs/results/NAME.json."""
    feeds: Sequence[str]
    minutes: float | None = None


@dataclass(frozen=True)
class Claim:
    id: str
    paper: str
    where: str
    says: str
    protocol: str
    verdict: str
    why: str = ""
    parts: Sequence[Part] = ()
    trained_out: str = ""
    """Why a best round that was the last one does not matter."""
    line: int = 0

    @property
    def runs(self) -> list[str]:
        return list(dict.fromkeys(name for part in self.parts for name in part.runs))


@dataclass(frozen=True)
class Ledger:
    claims: Sequence[Claim]
    queue: Mapping[str, Run]
    results: Path

    @classmethod
    def read(cls, root: Path) -> Ledger:
        text = (root / CLAIMS).read_text(encoding="utf-8")
        lines = [i for i, line in enumerate(text.splitlines(), 1) if line.strip() == "[[claim]]"]
        claims = [_claim(own, line) for own, line in zip(tomllib.loads(text)["claim"], lines, strict=True)]
        queue = tomllib.loads((root / RUNS).read_text(encoding="utf-8"))["run"]
        return cls(claims, {run["name"]: Run(**run) for run in queue}, root / "docs/results")

    def effects(self, claim: Claim) -> list[Effect | None]:
        """Of its parts; None where a run's JSON is not there."""
        return [part.effect(self._load) if self._there(part) else None for part in claim.parts]

    def follows(self, claim: Claim) -> str:
        """The verdict that the rule gives."""
        effects = self.effects(claim)
        if any(effect and effect.last for effect in effects) and not claim.trained_out:
            return UNKNOWN
        held = [part.holds(effect) if effect else None for part, effect in zip(claim.parts, effects, strict=True)]
        if False in held:
            return REFUTED
        return CONFIRMED if held and all(held) else UNKNOWN

    def problems(self) -> Iterator[tuple[int, str]]:
        """What of the TOML can't stand, with its line there."""
        for name, times in Counter(claim.id for claim in self.claims).items():
            if times > 1:
                yield 1, f"{times} claims are called '{name}'; give each an id of its own"
        for claim in self.claims:
            yield from ((claim.line, f"{claim.id}: {what}") for what in self._problems(claim))

    def _problems(self, claim: Claim) -> Iterator[str]:
        if claim.paper not in PAPERS:
            yield f"'{claim.paper}' is none of the papers {', '.join(PAPERS)}"
        for name in claim.runs:
            if name not in self.queue:
                yield f"run '{name}' is not in {RUNS}; add it there, with its command"
            elif claim.id not in self.queue[name].feeds:
                yield f"run '{name}' of {RUNS} does not say that it feeds this claim; add it to `feeds`"
        try:
            verdict = self.follows(claim)
        except (ValueError, KeyError) as problem:
            yield f"its effect can't be read: {problem}"
            return
        if claim.verdict != verdict:
            yield f"its verdict is '{claim.verdict}', but by the rule it is '{verdict}'; correct it and its reason"
        if verdict == UNKNOWN and not claim.why:
            yield "it has no reason why nobody can tell; add `why`"
        if claim.why.startswith(NOT_RUN) and claim.parts and all(self._there(part) for part in claim.parts):
            yield f"it says '{NOT_RUN}', but all of its runs are there; say what they show"

    def _there(self, part: Part) -> bool:
        return all((self.results / f"{name}.json").exists() for name in part.runs)

    def _load(self, file: str) -> Any:
        return json.loads((self.results / file).read_text(encoding="utf-8"))

    def to_markdown(self) -> str:
        parts = ["# Do the five papers' claims hold?", self._answer(), RULE]
        for paper, cited in PAPERS.items():
            own = [claim for claim in self.claims if claim.paper == paper]
            parts += [f"## {paper}", f"{cited}. {_counted(own)}", self._table(own), self._details(own)]
        return "\n\n".join(parts) + "\n"

    def _answer(self) -> str:
        tried = sum(any(self.effects(claim)) for claim in self.claims)
        return (
            f"**Of {len(self.claims)} claims: {_counted(self.claims)}** {tried} have been measured; the others "
            "wait for the runs of [evidence.toml](../../experiments/evidence.toml), or can't be run on public data, as "
            "each says. Written by `make tables` from [claims.toml](claims.toml)."
        )

    def _table(self, claims: Sequence[Claim]) -> str:
        rows = [["claim", "effect (95% interval)", "seeds", "verdict"], ["---"] * 4]
        for claim in claims:
            effects = self.effects(claim)
            reported = "<br>".join(
                _reported(part, effect) for part, effect in zip(claim.parts, effects, strict=True) if effect
            )
            seeds = "<br>".join(str(effect.seeds) for effect in effects if effect)
            why = f": {claim.why}" if claim.why else ""
            rows.append([f"**[{claim.id}](#{claim.id})** {claim.says}", reported, seeds, f"**{claim.verdict}**{why}"])
        return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)

    def _details(self, claims: Sequence[Claim]) -> str:
        """How each is tested: the protocol, commands and JSON."""
        return "\n".join(line for claim in claims for line in self._detail(claim))

    def _detail(self, claim: Claim) -> Iterator[str]:
        yield f'- <a id="{claim.id}"></a>**{claim.id}** ({claim.where}). {claim.protocol}'
        if claim.trained_out:
            yield f"  - Trained out, though the best round was the last: {claim.trained_out}"
        for name in claim.runs:
            there = (self.results / f"{name}.json").exists()
            reported = f"[{name}.json]({name}.json)" if there else f"{name}.json, not there yet"
            yield f"  - {reported}: `{self.queue[name].command}`"


def _claim(own: Mapping[str, Any], line: int) -> Claim:
    return Claim(**{**own, "parts": [Part.of_dict(part) for part in own.get("parts", ())], "line": line})


def _counted(claims: Sequence[Claim]) -> str:
    found = Counter(claim.verdict for claim in claims)
    return f"{found[CONFIRMED]} confirmed, {found[REFUTED]} refuted, {found[UNKNOWN]} can't be told yet."


def _reported(part: Part, effect: Effect) -> str:
    """In the unit that the part is in: percent and counts as they are, scores as shares of one."""
    rounds, unit = part.target is not None, "%" if part.relative else ""
    form = "+.3g" if part.row else "+.1f" if rounds else "+.2f" if part.relative else "+.3f"
    numbers = [f"{value:{form}}{unit}" for value in (effect.value, effect.low, effect.high)]
    bar = f", claimed {part.side} {part.bar:g}{unit}" if part.bar or part.side == "below" else ""
    how = ", *t*" if part.of or part.row or rounds else ""
    between = "counted" if part.count else f"{numbers[1]} to {numbers[2]}{how}"
    return f"{part.label or _pair(part)}: {numbers[0]} ({between}{bar})"


def _pair(part: Part) -> str:
    arm = part.arm if isinstance(part.arm, str) else "best by validation"
    return f"{arm} − {part.over}"
