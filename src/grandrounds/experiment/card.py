"""The model card that goes with a trained model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grandrounds.experiment.config import Config


def model_card(config: Config, result: Mapping[str, Any]) -> str:
    test = result["test"]
    classes = "\n".join(
        f"| {label} | {score['precision']:.3f} | {score['recall']:.3f} | {score['f1']:.3f} | {score['support']} |"
        for label, score in test["per_class"].items()
    )
    return f"""# A `{result["task"]}` model trained by `{result["algorithm"]}`

Trained with Grand Rounds {result["grandrounds"]} across {len(result["sites"])} sites in {result["rounds"]} rounds
(encoder `{result["encoder"]}`, seed {result["seed"]}, selected by {result["selected_by"]}).

Test F1 **{test["f1"]:.3f}** (precision {test["precision"]:.3f}, recall {test["recall"]:.3f}) on {test["n"]} examples;
the trivial answer, {test["baseline"]}, has F1 {test["baseline_f1"]:.3f}.

| class | precision | recall | F1 | examples |
|---|---|---|---|---|
{classes}

## Use

```python
import grandrounds

model = grandrounds.load("this folder")
found = model.extract(document)     # a grandrounds.data.documents.Document with mentions
```

It reads text like that of its training sites, and no other. It is a research tool, not a medical device.
"""
