"""What goes with differential privacy; the table of all is in tests/federation/test_combinations.py."""

from __future__ import annotations

import pytest

pytest.importorskip("dp_accounting", reason="needs grandrounds[privacy]")

from typing import Any

from grandrounds.config.schema import make_config
from grandrounds.errors import ConfigError
from grandrounds.federation.privacy.settings import Unit
from grandrounds.registry import ALGORITHMS
from tests.conftest import TinyConfig, task_for
from tests.federation.toy import Toy

UNITS: tuple[Unit, ...] = ("example", "patient", "site")
BUILT_IN = [
    *("fedavg", "fedprox", "fedopt", "fedatt", "fedlcc", "moon", "scaffold", "feded", "feddf"),
    *("fedner", "fedper", "ditto", "flora"),
    *("lazy_mil", "centralized", "local_only", "validation_only"),
]
VOTES = {"algorithm.upload": "labels", "algorithm.average": "probabilities"}
ALLOWED = {
    "example": {
        *("fedavg", "fedprox", "fedopt", "fedatt", "moon", "fedlcc", "scaffold", "feded", "feddf"),
        *("fedner", "fedper", "flora", "centralized", "local_only"),
    },
    "site": {"fedavg", "fedprox", "fedopt", "moon", "fedlcc", "feded", "fedper", "ditto"},
}
ALLOWED["patient"] = ALLOWED["example"]


def settings(algorithm: str, unit: str) -> dict[str, Any]:
    own: dict[str, Any] = {"privacy.unit": unit, "algorithm.name": algorithm, "privacy.exact_scores": True}
    own |= {"task": {"name": "ner", "tagger": "bert"}} if algorithm in ("fedner", "fedper") else task_for(algorithm)
    own |= {"federation.rounds": 1, **VOTES} if algorithm == "feded" and unit == "site" else {}
    return own


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("algorithm", BUILT_IN)
def test_every_algorithm_is_allowed_or_refused_with_its_reason(
    unit: str, algorithm: str, tiny_config: TinyConfig
) -> None:
    content = tiny_config(**settings(algorithm, unit))
    if algorithm in ALLOWED[unit]:
        assert make_config(content).privacy_plan is not None
    else:
        with pytest.raises(ConfigError, match=f"privacy.unit = '{unit}': '{algorithm}' is refused, because .+"):
            make_config(content)


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"privacy.unit": "site", "federation.aggregate": "median"}, "is none: one site may change it by more"),
        ({"privacy.unit": "site", "federation.compression": "fp16"}, "rounds an update after it was clipped"),
        ({"privacy.unit": "site", "privacy.noisy_registration": True}, "would have to hide them all"),
        ({"privacy.unit": "site", "algorithm.name": "feded", **VOTES}, "voted on again is paid for again"),
        ({"privacy.unit": "site", "algorithm.name": "feded"}, "noise is for votes"),
        ({"privacy.unit": "site", "algorithm.name": "feded", "algorithm.vote": "counts"}, "how many examples have"),
        ({"privacy.unit": "patient", "algorithm.name": "local_only"}, "privacy.exact_scores = true"),
        ({"privacy.unit": "example", "task": {"name": "distant_re"}}, "sentences of several notes"),
        (
            {"privacy.unit": "example", "task": {"name": "masked_lm", "next_sentence": True, "length": 32}},
            "text of two notes into one row",
        ),
        ({"privacy.unit": "example", "model.encoder": "new", "model.vocabulary": "sites"}, "counts words"),
        ({"privacy.unit": "patients"}, "privacy.unit"),
        ({"privacy.unit": "patient", "privacy.epsilon": 0}, "privacy.epsilon"),
    ],
)
def test_what_does_not_go_together_is_refused(own: dict[str, Any], why: str, tiny_config: TinyConfig) -> None:
    with pytest.raises(ConfigError) as refused:
        make_config(tiny_config(**own))
    assert why in str(refused.value)


@pytest.mark.parametrize("unit", UNITS)
def test_secure_sums_go_with_every_unit(unit: str, tiny_config: TinyConfig) -> None:
    """In gradients noise is there before the masks; for whole sites each site adds a part."""
    settings = make_config(tiny_config(**{"privacy.unit": unit, "federation.secure": True})).secure_settings
    assert settings is not None
    assert (settings.noise is not None) == (unit == "site")


def test_an_algorithm_of_ones_own_is_refused_until_it_says_what_its_uploads_tell(
    tiny_config: TinyConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ALGORITHMS, "toy", Toy)  # other tests take it out when they end
    content = tiny_config(**{"algorithm.name": "toy", "privacy.unit": "example"})
    with pytest.raises(ConfigError, match="nobody has said what its uploads tell"):
        make_config(content)


def test_embeddings_stay_at_a_site_by_default_where_privacy_is_asked_for(tiny_config: TinyConfig) -> None:
    table = "encoder.embeddings.word_embeddings.weight"
    own = settings("fedner", "patient")
    assert not make_config(tiny_config(**own)).make_algorithm().shared(table)
    assert make_config(tiny_config(**own, **{"algorithm.private_embeddings": False})).make_algorithm().shared(table)
    assert make_config(tiny_config(**{**own, "privacy.unit": "none"})).make_algorithm().shared(table)
