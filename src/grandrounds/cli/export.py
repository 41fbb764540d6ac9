"""`grandrounds export`: a model in another library's form."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grandrounds.cli.console import out, waiting
from grandrounds.cli.options import ModelPath
from grandrounds.errors import ConfigError, unknown

FORMS = ("hf",)


def export(
    model: ModelPath,
    to: Annotated[str, typer.Option("--to", help="Whose form: hf, Hugging Face's token classification.")] = "hf",
    out_folder: Annotated[Path, typer.Option("--out", help="The folder to write.")] = Path("exported"),
) -> None:
    """Write a tagger for Hugging Face: AutoModelForTokenClassification and pipeline("ner") read the folder.

    This fits a ner model on a transformer with task.crf = false. Others are refused: their folders are for
    grandrounds.load alone.

    Example: `grandrounds export runs/tagger/model --to hf --out tagger`
    """
    if to not in FORMS:
        raise ConfigError(unknown("form", to, FORMS))
    from grandrounds.pipeline.export import export_to_hub

    with waiting("writing"):
        export_to_hub(model, out_folder)
    out.print(str(out_folder), soft_wrap=True)
    out.print('Try it: pipeline("ner", model="...", aggregation_strategy="first")', soft_wrap=True, highlight=False)
