"""A saved tagger in Hugging Face's own form: AutoModelForTokenClassification and pipeline("ner") read it.

That form has one class for each word piece, so only a `ner` model that tags each word for itself fits it: `crf = true`,
`tagger = "spans"` and relation models decode in ways that it can't hold.
"""

from __future__ import annotations

import copy
from pathlib import Path

from torch import Tensor
from transformers import AutoModelForTokenClassification

from grandrounds.errors import GrandRoundsError
from grandrounds.models.taggers import BertTagger
from grandrounds.tasks.ner import NER
from grandrounds.tasks.saved import Extractor, load


def export_to_hub(folder: str | Path, to: str | Path) -> None:
    """Write the model of a run as a folder for `AutoModelForTokenClassification.from_pretrained`.

    With `pipeline("ner", aggregation_strategy="first")` it finds the mentions that `grandrounds extract` finds, where
    words are split alike.
    """
    model, to = load(folder), Path(to)
    if to.exists() and any(to.iterdir()):
        raise GrandRoundsError(f"'{to}' is not empty; choose another folder")
    tagger = _tagger(model, Path(folder))
    task = model.task
    assert isinstance(task, NER)
    config = copy.deepcopy(model.encoder.config)
    config.num_labels = len(task.tags)
    config.id2label = dict(enumerate(task.tags))
    config.label2id = {tag: i for i, tag in enumerate(task.tags)}
    made = AutoModelForTokenClassification.from_config(config).eval()
    made.resize_token_embeddings(len(model.encoder.tokenizer), mean_resizing=False)
    wanted, given = made.state_dict(), _renamed(tagger, made.base_model_prefix)
    # A pooler is of no use to tags; some encoders have one, and Hugging Face's classifier leaves it out.
    unused = [name for name in given if name not in wanted and ".pooler." not in name]
    missing = [name for name in wanted if name not in given]
    if unused or missing:
        raise GrandRoundsError(
            f"a '{config.model_type}' tagger can't be written in Hugging Face's form: it lacks {len(missing)} weights "
            f"and has {len(unused)} others"
        )
    made.load_state_dict({name: given[name] for name in wanted})
    made.save_pretrained(to)
    model.encoder.tokenizer.save_pretrained(to)


def _tagger(model: Extractor, folder: Path) -> BertTagger:
    if not isinstance(model.task, NER) or not isinstance(model.model, BertTagger) or model.model.top != "output":
        kind = model.task.name
        if isinstance(model.task, NER):
            kind += " with a CRF" if isinstance(model.model, BertTagger) else f" with {type(model.model).__name__}"
        raise GrandRoundsError(
            f"'{folder}' is a model of {kind}, which Hugging Face has no form for; a ner model on a transformer with "
            "task.crf = false can be exported"
        )
    return model.model


def _renamed(tagger: BertTagger, prefix: str) -> dict[str, Tensor]:
    names = {"encoder.": f"{prefix}.", "output.emit.": "classifier."}
    renamed = {}
    for name, value in tagger.state_dict().items():
        old = next((old for old in names if name.startswith(old)), "")
        renamed[names[old] + name.removeprefix(old) if old else name] = value
    return renamed
