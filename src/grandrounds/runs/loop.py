"""The round loop: choose a cohort, run the algorithm's round, evaluate, checkpoint; then select, test and save.

Killed at any moment and resumed, it ends with the same bits: every random draw is named by round and site, and a
checkpoint holds all that lives on from round to round.
"""

from __future__ import annotations

import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from pydantic import ValidationError

from grandrounds import __version__
from grandrounds.config.schema import Config
from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.federation.audit import Audit
from grandrounds.federation.contract import Cohort, Registration, changing
from grandrounds.federation.coordinator import (
    AbandonedError,
    Federation,
    Ledger,
    RoundCohort,
    check_registrations,
)
from grandrounds.federation.differences import Downlink
from grandrounds.federation.exchange import Transport
from grandrounds.federation.learner import VALIDATION, Server, save_outcomes
from grandrounds.federation.payloads import Packed, Parameters
from grandrounds.federation.privacy.site import from_the_seed, from_the_system, noise_of
from grandrounds.federation.privacy.updates import SiteNoise
from grandrounds.federation.secure.combinations import Combination, refusal
from grandrounds.federation.secure.fixed_point import RANGE
from grandrounds.federation.secure.settings import fresh_attempt, repeatable_attempt
from grandrounds.federation.seeds import generator
from grandrounds.federation.shares import of_all, sentences, weights
from grandrounds.metrics.score import Score
from grandrounds.runs.card import model_card
from grandrounds.runs.checkpoints import Checkpoints, Progress
from grandrounds.runs.folder import RunFolder
from grandrounds.runs.provenance import provenance
from grandrounds.runs.results import Participants, Result, Round
from grandrounds.setup.server import ServerSetup
from grandrounds.tasks.saved import save_model
from grandrounds.tasks.task import Counts, Task

MOST_COUNTED = 1 << 53
"""Of anything: what JSON's numbers can say."""

COUNTED = ("steps", "examples", "server_steps", "server_examples", "bytes_up", "bytes_down")
"""What rounds add up to: the work of sites and server together, the server's part of it, and what travelled."""


class Watcher(Protocol):
    """Follows the progress of a run: a progress bar, a test."""

    def say(self, sentence: str) -> None: ...
    def started(self, setup: ServerSetup, rounds: int, done: int) -> None: ...
    def asking(self, round: int, sites: int) -> None: ...
    def answered(self, site: str) -> None: ...
    def finished_round(self, round: Round) -> None: ...


class Silent:
    """Nobody watches."""

    def say(self, sentence: str) -> None: ...
    def started(self, setup: ServerSetup, rounds: int, done: int) -> None: ...
    def asking(self, round: int, sites: int) -> None: ...
    def answered(self, site: str) -> None: ...
    def finished_round(self, round: Round) -> None: ...


class RoundLoop:
    """The rounds of one run, from the first or from where it was left."""

    def __init__(
        self,
        config: Config,
        folder: RunFolder,
        setup: ServerSetup,
        sites: Sequence[Registration],
        transport: Transport,
        watcher: Watcher,
        terms: str | None = None,
        hand_out: Callable[[Packed, int, Audit], None] | None = None,
        spent: Callable[[str], float] | None = None,
    ) -> None:
        """`terms` is the digest of what all sites must agree on; by default the config's. `hand_out` gives sites the
        selected weights after the last round, and logs it; on one machine there is nobody to give them to. `spent` is
        the epsilon of a site whose ledger is here."""
        self.config, self.folder, self.setup, self.watcher = config, folder, setup, watcher
        self.algorithm = config.make_algorithm()
        self.sites = list(sites)
        self.server = Server(setup.spec, setup.splits, setup.model)
        self.checkpoints = Checkpoints(folder.checkpoints, watcher.say)
        self.audit = Audit(folder.path / "audit.jsonl")
        self.transport, self._hand_out, self._spent = transport, hand_out, spent
        self.ledger = Ledger()
        self.federation = Federation(
            algorithm=self.algorithm,
            transport=transport,
            ledger=self.ledger,
            expected=setup.expected,
            audit=self.audit,
            config=config.digest() if terms is None else terms,
            weight_by=config.federation.weight_by or self.algorithm.weight_by,
            min_replies=config.federation.min_replies,
            largest_share=config.federation.largest_share,
            rule=config.federation.rule(),
            registered=len(self.sites),
            site_noise=self._site_noise(simulated=terms is None),
            downlink=Downlink.of(
                self.algorithm,
                config.federation.compression,
                self.server.start,
                setup.expected.tables,
                config.seed,
            ),
            public=setup.public if self.algorithm.public_at_sites else None,
            watch=watcher.answered,
            secure=config.secure_settings,
            attempt=partial(repeatable_attempt, config.digest()) if terms is None else fresh_attempt,
        )
        self._simulated = terms is None
        self.objective = setup.spec.task.objective
        self.progress = Progress()
        self.provenance = provenance()

    def go(self) -> Result:
        rounds = self.config.federation
        self._begin()
        self.watcher.started(self.setup, rounds.rounds, self.progress.round)
        while self.progress.round < rounds.rounds and not self._patience_lost() and not self._target_reached():
            self._round(self.progress.round + 1)
        self._select()
        return self._conclude()

    def _site_noise(self, simulated: bool) -> Callable[[int, int], SiteNoise] | None:
        """Where whole sites are private; in a simulation the seed's, between hosts the system's. In secure sums it
        comes from the sites."""
        if (plan := self.config.privacy_plan) is None or plan.unit != "site" or self.config.federation.secure:
            return None
        randomness = from_the_seed(self.config.seed) if simulated else from_the_system
        noise, clip = noise_of(plan, 1.0, plan.rounds), plan.settings.clip
        return lambda round, exchange: SiteNoise(noise, clip, randomness("server", round, exchange))

    def _begin(self) -> None:
        """Start anew, or from the last good checkpoint."""
        labels = None if self.config.labels_may_differ else self.setup.spec.task.labels
        check_registrations(self.sites, labels, self.setup.expected.manifest)
        # ConfigError here, not after the first site has trained, where a site has not registered what weights go by
        for sentence in sentences(self.sites, self.federation.weight_by, self.federation.largest_share):
            self.watcher.say(sentence)
        self._write_participants()
        if (plan := self.config.privacy_plan) is not None:
            self.watcher.say(plan.sentence(self._simulated))
        if (secure := self.federation.secure) is not None:
            asked = self._wanted(len(self.sites))
            if why := refusal(Combination(self.algorithm.name, sites=asked)):
                raise ConfigError(why)
            secure.numbers(asked)  # ConfigError where noise needs more than 32 bits
            self.watcher.say(secure.sentence(asked, simulated=self._simulated))
        saved = self.checkpoints.last() if any(self.folder.checkpoints.glob("round-*")) else None
        self.ledger.pinned = self.checkpoints.pinned()  # a start that asks sites must not make them forget
        cohort = self._cohort(self.sites, 0)
        self.algorithm.start(self.server, cohort)
        cohort.finish()
        if saved is not None:
            self.progress, state = saved
            self.server.restore(state)
            self.ledger.versions = dict(self.progress.versions)
            self.ledger.holding = set(self.progress.holding)
            self.folder.rewind(self.progress.round)
            self.audit.write(event="resumed", round=self.progress.round)
        else:
            self.audit.write(event="started", algorithm=self.algorithm.name, config=self.config.digest())
            self._keep_model()
            self._checkpoint()

    def _write_participants(self) -> None:
        """From here on whoever looks at the folder knows who takes part."""
        shares = of_all(weights(self.sites, self.federation.weight_by, self.federation.largest_share))
        self.folder.write_participants(
            Participants(sites=tuple(self.setup.table), shares=shares, left_out=tuple(self.setup.left_out))
        )

    def _round(self, round: int) -> None:
        began = time.perf_counter()
        chosen = self._choose(round)
        self.watcher.asking(round, len(chosen))
        self.server.begin(round)
        before, versions = self.server.snapshot(), dict(self.ledger.versions)
        # Whatever is asked in this round, sites keep what they would need if it were abandoned.
        self.ledger.pinned = [*self.checkpoints.pinned(), versions]
        cohort = self._cohort(chosen, round)
        abandoned = None
        try:
            self.algorithm.round(self.server, cohort)
            cohort.finish()
        except AbandonedError as problem:
            abandoned = str(problem)
            self.server.restore(before)
            self.ledger.versions = versions
            self.watcher.say(abandoned)
        answered = [site for site in chosen if site.site not in cohort.traffic.lost]
        diagnostics = self._diagnose(answered, round) if abandoned is None else {}
        if self.federation.secure is not None and abandoned is None:
            diagnostics |= self._secure_diagnostics(cohort)
        self.progress = replace(self.progress, round=round)
        if abandoned is None:
            self._judge_outliers(cohort.traffic.outliers)
        last = round == self.config.federation.rounds
        scores, better = dict[str, Score](), False
        if last or round % self.config.federation.evaluate_every == 0:
            scores = self._evaluate(round)
            better = self._judge(round, scores)
        work = cohort.traffic.work + self.server.work
        finished = Round(
            round=round,
            sites=tuple(site.site for site in chosen),
            replies=cohort.traffic.replies,
            lost=cohort.traffic.lost,
            abandoned=abandoned is not None,
            bytes_up=0 if self.algorithm.pooled else cohort.traffic.bytes_up,  # in one place nothing travels
            bytes_down=0 if self.algorithm.pooled else cohort.traffic.bytes_down,
            steps=work.steps,
            examples=work.examples,
            server_steps=self.server.work.steps,
            server_examples=self.server.work.examples,
            objective=self.objective,
            **scores,
            **{
                name: some
                for name, some in {
                    "diagnostics": diagnostics,
                    "norms": cohort.traffic.norms,
                    "outliers": cohort.traffic.outliers,
                    "epsilon": {} if self._spent is None else {site.site: self._spent(site.site) for site in chosen},
                }.items()
                if some
            },
            seconds=round_to(time.perf_counter() - began, 4),
        )
        # First the metrics: a resumed run forgets those after its checkpoint, and could not make up for missing ones.
        self.folder.add_round(finished)
        self._keep_model()
        if last or better or round % self.config.federation.checkpoint_every == 0:
            self._checkpoint()
        self.watcher.finished_round(finished)

    def _choose(self, round: int) -> list[Registration]:
        """m = max(C K, 1) sites at random (FedED, Algorithm 1), the same for the same seed and round."""
        trusted = [site for site in self.sites if site.site not in self._left_out()]
        drawn = torch.randperm(len(trusted), generator=generator(self.config.seed, "server", round, "cohort"))
        return [trusted[i] for i in sorted(drawn[: self._wanted(len(trusted))].tolist())]

    def _wanted(self, sites: int) -> int:
        return max(int(self.config.federation.fraction * sites + 0.5), 1)

    def _left_out(self) -> set[str]:
        """Sites that were outliers too often, the most frequent first, and fewer than half of all."""
        limit, counted = self.config.federation.leave_out_after, self.progress.outliers
        often = sorted(
            (site for site in counted if 0 < limit <= counted[site]), key=lambda site: (-counted[site], site)
        )
        return set(often[: (len(self.sites) - 1) // 2])

    def _judge_outliers(self, outliers: Mapping[str, float]) -> None:
        """Count, log and say whose update was far larger than the median."""
        counted, before = Counter(self.progress.outliers), self._left_out()
        counted.update(outliers.keys())
        self.progress = replace(self.progress, outliers=dict(sorted(counted.items())))
        for site, times in sorted(outliers.items()):
            gone = site in self._left_out() - before
            event = "outlier, and asked no more" if gone else "outlier"
            self.audit.write(round=self.progress.round, site=site, event=event, times_median=round_to(times, 1))
            end = "; it is asked no more (federation.leave_out_after)" if gone else ""
            self.watcher.say(
                f"round {self.progress.round}: the update of site '{site}' is {times:,.0f} times as large as the "
                f"median{end}"
            )

    def _cohort(self, sites: list[Registration], round: int, read_only: bool = False) -> RoundCohort:
        return self.federation.cohort(sites, round, read_only)

    def _diagnose(self, answered: list[Registration], round: int) -> dict[str, float]:
        """What was trained is good whether or not sites tell how it went."""
        cohort = self._cohort(answered, round, read_only=True)
        try:
            return dict(self.algorithm.diagnose(self.server, cohort))
        except AbandonedError:
            self.watcher.say(f"no diagnostics of round {round}: too few sites gave them")
            return {}

    def _secure_diagnostics(self, cohort: RoundCohort) -> dict[str, float]:
        """What secure sums cost in precision: it is known without anybody's upload."""
        if clipped := cohort.traffic.clipped:
            self.watcher.say(f"{clipped:,} uploaded values were beyond +-{RANGE} and were clipped (federation.secure)")
        noise = {"secure_noise": cohort.traffic.noise} if cohort.traffic.noise else {}
        return {"secure_rounding": cohort.traffic.rounding, "secure_clipped": float(clipped), **noise}

    def _evaluate(self, round: int) -> dict[str, Score]:
        wanted = [split for split in self.config.federation.evaluate_on if split in self.setup.scored]
        return self._scores(wanted, round)

    def _scores(self, splits: Iterable[str], round: int) -> dict[str, Score]:
        """A score a split; one that sites refuse to give is said and left out, for what was trained is still good."""
        task, scores = self.setup.spec.task, dict[str, Score]()
        splits = sorted(splits, key=lambda split: split != VALIDATION)  # what is decided there holds for the others
        if VALIDATION not in splits and not self.algorithm.personal:
            self.server.calibrate()
        for split in splits:
            everyone: Cohort = self._cohort(self.sites, round, read_only=True)
            try:
                counted = self.algorithm.evaluate(self.server, everyone, split)
            except AbandonedError as problem:
                self.watcher.say(f"no score on {split}: {problem}")
                continue
            found = self._usable(counted, split, round)
            if found or not counted:
                scores[split] = _checked(task, summary(found))
        return scores

    def _usable(self, counted: Mapping[str, Counts], split: str, round: int) -> dict[str, dict[str, Any]]:
        """The scores of those whose counts make one; a site that sends others is named, and the rest goes on."""
        found, sites, problem = dict[str, dict[str, Any]](), {site.site for site in self.sites}, None
        for who, counts in counted.items():
            try:
                if who in sites and not all(0 <= count <= MOST_COUNTED for count in counts.values()):
                    raise ValueError("no counts")
                found[who] = self.setup.spec.task.score(counts)
            except Exception as error:
                problem, why = error, f"rejected: its counts make no score ({type(error).__name__})"
                self.audit.write(round=round, site=who, event=why)
                self.watcher.say(f"no score of '{who}' on {split}: {why}")
        if problem is not None and not found and (len(counted) > 1 or not sites.issuperset(counted)):
            raise problem  # a bug must not look like a lost site
        return found

    def _judge(self, round: int, scores: Mapping[str, Score]) -> bool:
        """Whether this is the best round so far by validation; the test set has no say."""
        if VALIDATION not in scores:
            return False
        value = scores[VALIDATION].value(self.objective)
        better = self.progress.best_round is None or self.objective.better(value, self.progress.best)
        self.progress = replace(
            self.progress,
            best_round=round if better else self.progress.best_round,
            best=value if better else self.progress.best,
            stale=0 if better else self.progress.stale + 1,
        )
        return better

    def _patience_lost(self) -> bool:
        patience = self.config.federation.early_stopping
        return 0 < patience <= self.progress.stale

    def _target_reached(self) -> bool:
        target = self.config.federation.stop_at_f1
        history = self.folder.rounds() if target else []
        test = history[-1].test if history else None
        return test is not None and (test.f1 or 0.0) >= target

    def _checkpoint(self) -> None:
        self.transport.flush()
        self.progress = replace(
            self.progress,
            versions=dict(self.ledger.versions),
            holding=sorted(self.ledger.holding),
            audit=self.audit.head,
        )
        self.checkpoints.save(self.progress, self.server.snapshot())
        self.ledger.pinned = self.checkpoints.pinned()

    def _select(self) -> None:
        """Go back to the round that was best on validation, private states of sites included."""
        if self.progress.best_round not in (None, self.progress.round):
            best, state = self.checkpoints.load(self.progress.best_round)
            self.server.restore(state)
            self.ledger.versions = dict(best.versions)

    def _conclude(self) -> Result:
        last, self.server.outcomes = self.progress.round, {}
        scores = self._scores((split for split in ("validation", "test") if split in self.setup.scored), last)
        result = self._result(scores)
        if self.algorithm.personal:
            everyone = self._cohort(self.sites, last, read_only=True)
            self.algorithm.finish(self.server, everyone)
            everyone.finish()
        else:
            self._save(self.folder.path / "model", model_card(result))
            save_outcomes(self.server, self.folder.path)
            if self._hand_out is not None:
                changed = changing(self.server.model, self.algorithm)
                self._hand_out(Parameters(changed).pack("fp32"), last, self.audit)
        result = result.model_copy(update={"audit_head": self.audit.head})  # saving models was logged too
        self.folder.finish(result)
        self.audit.close()
        return result

    def _keep_model(self) -> None:
        """Before the checkpoint: a run that is cut short makes a round up only as long as there is none of it."""
        if self.config.federation.keep_models and not self.algorithm.personal:
            self._save(self.folder.path / "models" / f"round-{self.progress.round:05d}")

    def _save(self, folder: Path, card: str = "") -> None:
        spec = self.setup.spec
        save_model(folder, spec.task, spec.encoder, self.server.model, card, spec.trained)

    def _result(self, scores: Mapping[str, Score]) -> Result:
        history, best = self.folder.rounds(), self.progress.best_round
        asked = sum(len(round.sites) for round in history)
        totals = {what: sum(getattr(round, what) for round in history) for what in COUNTED}
        return Result(
            grandrounds=__version__,
            task=self.setup.spec.task.name,
            algorithm=self.algorithm.name,
            encoder=Path(self.config.model.encoder).name,
            seed=self.config.seed,
            rounds=self.progress.round,
            rounds_planned=self.config.federation.rounds,
            best_round=best,
            selected_by="last round" if best is None else VALIDATION,
            objective=self.objective,
            test=scores.get("test"),
            validation=scores.get(VALIDATION),
            seconds=round_to(sum(round.seconds for round in history), 3),
            **totals,
            bytes_up_per_site_round=round_to(totals["bytes_up"] / asked, 1),
            bytes_down_per_site_round=round_to(totals["bytes_down"] / asked, 1),
            peak_memory_mb=peak_memory_mb(),
            sites=tuple(self.setup.table),
            left_out=tuple(self.setup.left_out),
            warnings=dict(self.setup.warnings),
            audit_head=self.audit.head,
            **self.provenance,
        )


def _checked(task: Task, figures: Mapping[str, Any]) -> Score:
    """The figures as a score; a task of one's own may have given others."""
    try:
        score = Score.model_validate(figures)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise GrandRoundsError(f"the score of the task '{task.name}': {place}: {first['msg']}") from error
    if score.value(task.objective) is None:
        raise GrandRoundsError(f"the score of the task '{task.name}' has no '{task.objective.key}', its objective")
    return score


def summary(scores: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """One learner's score, or the mean of several with their spread; curves have no mean."""
    if not scores:
        raise ConfigError("no site could be evaluated")
    if len(scores) == 1:
        return next(iter(scores.values()))
    first = next(iter(scores.values()))
    numbers = [name for name in first if isinstance(first[name], float)]
    out: dict[str, Any] = {name: float(np.mean([score[name] for score in scores.values()])) for name in numbers}
    for name in ("f1", "auc", "loss"):
        if name in numbers:
            out[f"{name}_std"] = float(np.std([score[name] for score in scores.values()]))
    out |= {name: value for name, value in first.items() if isinstance(value, int | str)}  # of the test set, not of who
    labels = list(dict.fromkeys(label for score in scores.values() for label in score["per_class"]))
    out["per_class"] = {
        label: _class_mean([score["per_class"].get(label) for score in scores.values()]) for label in labels
    }
    out["learners"] = {who: {name: score[name] for name in numbers} for who, score in scores.items()}
    return out


def _class_mean(scores: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Over the learners that know the class."""
    known = [score for score in scores if score is not None]
    return {name: type(value)(np.mean([score[name] for score in known])) for name, value in known[0].items()}


def peak_memory_mb() -> int:
    """The largest resident set size of this process, or of a worker."""
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return int(max(peaks) // unit)


def round_to(value: float, digits: int) -> float:
    return round(value, digits)
