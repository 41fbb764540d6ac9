"""The settings of a protocol: what the paper says of each, what the configs that ran say, and whether the two differ.

Nothing here is written by hand for a run: a paper declares its own settings once, configs are compared with them, and
what a config sets that no paper speaks of is reported too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from math import isclose
from typing import Any

from grandrounds.config.schema import Config
from grandrounds.papers.paper import Setting
from grandrounds.runs.provenance import placeless

NOT_SAID = "not said"
Tell = Callable[[Config], object]
UNREPORTED = {
    *(f"data.{key}" for key in ("format", "train", "test", "options")),  # the corpus, which has a line of its own
    *("task.name", "task.labels", "task.pairs", "algorithm.name"),
    *(f"federation.{key}" for key in ("evaluate_on", "evaluate_every", "checkpoint_every", "keep_models", "policy")),
    *(f"federation.{key}" for key in ("deadline", "absence", "stop_at_f1")),
}
MANY = 3
"""Arms that have a value of their own are named, up to so many."""


@dataclass(frozen=True)
class At:
    """What a config has at a key, or says about it as a whole; None where it has no such key."""

    key: str
    shown: Callable[[Any], object] = lambda value: value
    whole: Tell | None = None

    def __call__(self, config: Config) -> object:
        if self.whole is not None:
            return self.whole(config)
        found = flat(config)
        return self.shown(found[self.key]) if self.key in found else None


@dataclass(frozen=True)
class Said:
    """What a paper says, where several values agree with it."""

    text: str
    values: tuple[object, ...]

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Ran:
    """An arm that ran, and what the paper says of its corpus."""

    arm: str
    corpus: str
    config: Config
    own: Collection[str]
    """The keys that the arm is there to change: they are reported with it, not with the protocol."""
    stated: Mapping[str, object]


def agrees(paper: object, here: object) -> bool:
    if isinstance(paper, Said):
        return any(agrees(value, here) for value in paper.values)
    numbers = isinstance(paper, int | float) and isinstance(here, int | float)
    return isclose(paper, here) if numbers else str(paper) == str(here)  # type: ignore[arg-type]


def settings(reported: Mapping[str, Tell], ran: Sequence[Ran]) -> list[Setting]:
    """A line a setting: those that are reported, then whatever else a config sets."""
    lines = [_line(name, tell, ran) for name, tell in reported.items()]
    covered = {tell.key for tell in reported.values() if isinstance(tell, At)}
    lines += [_line(key, At(key, placeless), ran) for key in _others(ran, covered)]
    return [line for line in lines if line is not None]


def flat(config: Config) -> dict[str, Any]:
    """By dotted key, with every option of the task and the algorithm."""
    sections = config.complete()
    return {f"{s}.{key}": v for s in sections if isinstance(sections[s], dict) for key, v in sections[s].items()}


def _line(name: str, tell: Tell, ran: Sequence[Ran]) -> Setting | None:
    key = tell.key if isinstance(tell, At) else None
    judged = [one for one in ran if key not in one.own]
    found = [(one, here) for one in judged or ran if (here := tell(one.config)) is not None]
    if not found:
        return None
    papers = [one.stated.get(name, NOT_SAID) for one, _ in found]
    differs = any(
        str(paper) != NOT_SAID and not agrees(paper, here) for paper, (_, here) in zip(papers, found, strict=True)
    )
    by_corpus = (_by_arm([(one.arm, str(here)) for one, here in found if one.corpus == c]) for c in _corpora(found))
    return Setting(name, joined(papers), joined(by_corpus), differs and bool(judged))


def _corpora(found: Sequence[tuple[Ran, object]]) -> Iterable[str]:
    return dict.fromkeys(one.corpus for one, _ in found)


def _by_arm(found: Sequence[tuple[str, str]]) -> str:
    """The value of most arms alone, others with the arms that have them."""
    arms: dict[str, list[str]] = {}
    for arm, value in found:
        arms.setdefault(value, []).append(arm)
    usual, *others = sorted(arms, key=lambda value: -len(arms[value]))
    named = [f"{v} ({', '.join(arms[v])})" if len(arms[v]) <= MANY else v for v in others]
    return "; ".join([usual, *named])


def _others(ran: Sequence[Ran], covered: Collection[str]) -> Iterator[str]:
    """Keys that nobody tells of, where a config has another value than by default; of training, any that is on."""
    there: dict[str, None] = {}
    for one in ran:
        for key, value in flat(one.config).items():
            section = key.partition(".")[0]
            if (
                key not in covered
                and key not in UNREPORTED
                and key not in one.own
                and section not in ("sites", "compare")
            ):
                plain = value in (None, 0, False, "off") if section == "training" else value == _default(one, key)
                if not plain:
                    there[key] = None
    yield from there


def _default(one: Ran, key: str) -> object:
    section, _, name = key.partition(".")
    if section == "algorithm":
        algorithm: Any = one.config.make_algorithm()
        option = next(option for option in fields(algorithm) if option.name == name)
        return option.default_factory() if option.default_factory is not MISSING else option.default
    model = type(one.config.task_options() if section == "task" else getattr(one.config, section))
    return model.model_fields[name].get_default(call_default_factory=True)


def joined(values: Iterable[object]) -> str:
    return " / ".join(dict.fromkeys(str(value) for value in values))


TRAINING: Mapping[str, Tell] = {
    "optimizer": At("training.optimizer"),
    "moments from round to round": At("training.optimizer_state"),
    "learning rate": At("training.learning_rate"),
    "head's learning rate": At("training.head_learning_rate"),
    "rate's decay a round": At("training.decay"),
    "schedule of the rate": At("training.schedule"),
    "warm-up of the rate": At("training.warmup", lambda share: f"{share:.0%} of the run" if share else "none"),
    "weight decay": At("training.weight_decay"),
    "gradients clipped to a norm of": At("training.clip_norm", lambda norm: norm or "no norm"),
    "round that counts": At("data.validation", lambda share: "the best on validation" if share else "the last"),
}
"""Of every paper, whether it says so or not."""
