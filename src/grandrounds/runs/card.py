"""The model card that goes with a trained model."""

from __future__ import annotations

from grandrounds.metrics.score import DECIDED_ANSWERS, LOSS, Score
from grandrounds.runs.results import Result


def model_card(result: Result) -> str:
    return f"""# A `{result.task}` model trained by `{result.algorithm}`

Trained with Grand Rounds {result.grandrounds} across {len(result.sites)} sites in {result.rounds} rounds
(encoder `{result.encoder}`, seed {result.seed}, selected by {result.selected_by}).

{_scored(result.test) if result.test else "No score on test data was given."}

## Use

```python
import grandrounds

model = grandrounds.load("this folder")
found = model.extract(document)     # a grandrounds.data.documents.Document with mentions
```

It reads text like that of its training sites, and no other. It is a research tool, not a medical device.
"""


def _scored(test: Score) -> str:
    if test.loss is not None:
        return _by_loss(test)
    return _by_class(test) if test.auc is None else _by_rank(test)


def _by_loss(test: Score) -> str:
    return (
        f"Test loss **{test.loss:.3f}** {LOSS.unit} (perplexity {test.perplexity:.1f}, "
        f"{test.accuracy:.1%} right) on {test.n} of them.\n\n"
        "The folder is one of Hugging Face's: `AutoModelForMaskedLM.from_pretrained` loads it, and any task of Grand "
        "Rounds takes it as `model.encoder`."
    )


def _by_class(test: Score) -> str:
    classes = "\n".join(
        f"| {label} | {score.precision:.3f} | {score.recall:.3f} | {score.f1:.3f} | {score.support} |"
        for label, score in test.per_class.items()
    )
    return f"""\
Test F1 **{test.f1:.3f}** (precision {test.precision:.3f}, recall {test.recall:.3f}) on {test.n} examples;
the trivial answer, {test.baseline}, has F1 {test.baseline_f1:.3f}.

| class | precision | recall | F1 | examples |
|---|---|---|---|---|
{classes}"""


def _by_rank(test: Score) -> str:
    ranked = "\n".join(f"| {name} | {value:.3f} |" for name, value in (test.areas() | test.precisions()).items())
    return f"""\
Test AUC **{test.auc:.3f}** on {test.n} pairs with {test.facts} facts; in any order, answers have AUC
{test.baseline_auc:.3f}. Of {DECIDED_ANSWERS}, F1 is {test.f1:.3f} (precision {test.precision:.3f}, recall
{test.recall:.3f}); the trivial answer, {test.baseline}, has F1 {test.baseline_f1:.3f}.

| ranked from the most confident answer on | |
|---|---|
{ranked}"""
