"""Which tasks have which abilities, and the sentence for an algorithm whose task lacks one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import pytest
from torch import nn

from grandrounds.config.schema import make_config
from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.models.encoder import Encoder
from grandrounds.registry import TASKS
from grandrounds.tasks.abilities import (
    Bagged,
    Calibrated,
    Distillable,
    KnowsFacts,
    Localized,
    OwnLabels,
    PartlyAnnotated,
    PrivateParts,
    Redrawn,
    SingleLabel,
    require,
)
from grandrounds.tasks.masked_lm import MaskedLM, MaskedLMOptions
from grandrounds.tasks.saved import Extractor
from grandrounds.tasks.sentence_re import SentenceRE
from grandrounds.tasks.task import ExtractionTask, Task
from tests.conftest import DOCUMENT_RE, TinyConfig, corpus


@pytest.mark.parametrize(
    ("ability", "having"),
    [
        (ExtractionTask, {"sentence_re", "document_re", "distant_re", "ner", "joint"}),
        (Distillable, {"sentence_re", "joint"}),
        (SingleLabel, {"sentence_re"}),
        (Bagged, {"distant_re"}),
        (Localized, {"document_re"}),
        (Calibrated, {"document_re"}),
        (KnowsFacts, {"document_re"}),
        (OwnLabels, {"ner", "joint"}),
        (PartlyAnnotated, {"joint"}),
        (Redrawn, {"masked_lm"}),
        (PrivateParts, {"sentence_re", "distant_re", "ner", "masked_lm", "joint"}),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_a_task_has_an_ability_by_its_methods(ability: type, having: set[str]) -> None:
    assert {name for name, task in TASKS.items() if issubclass(task, ability)} == having


def test_a_task_of_one_s_own_need_not_know_the_protocol() -> None:
    class Plain(Task):
        name = "plain"

    class Own(Plain):
        def label_parts(self) -> Sequence[str]:
            return ()

    require("'fedner'", OwnLabels, Own)
    with pytest.raises(ConfigError, match=r"^'fedner' needs .*, and 'plain' is not one: set task\.name = .*ner"):
        require("'fedner'", OwnLabels, Plain)


def test_an_ability_of_one_s_own_is_asked_for_in_the_same_way() -> None:
    @runtime_checkable
    class Timed(Protocol):
        """A task with times. More follows."""

        def times(self) -> None: ...

    with pytest.raises(ConfigError, match=r"^'mine' needs a task with times, and 'sentence_re' is not one$"):
        require("'mine'", Timed, SentenceRE)


def test_without_a_default_split_fedner_wants_private_parts_named(tiny_config: TinyConfig) -> None:
    with pytest.raises(ConfigError, match="this task has no default; list the parts of its model"):
        make_config(tiny_config(task=DOCUMENT_RE, algorithm={"name": "fedner"}))
    made = make_config(tiny_config(task=DOCUMENT_RE, algorithm={"name": "fedner", "private": ["bilinear"]}))
    assert not made.make_algorithm().shared("bilinear.weight")


def test_a_language_model_extracts_nothing(encoder: Encoder) -> None:
    task = MaskedLM(MaskedLMOptions(length=32))
    with pytest.raises(GrandRoundsError, match="'masked_lm' model finds nothing in a document: give its folder"):
        Extractor(task, encoder, nn.Identity()).extract(corpus(1)[0])
