"""`grandrounds init`: a config for the corpus in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from grandrounds.cli.console import err, out, show_json, waiting
from grandrounds.cli.options import FORMAT_HELP, ImportOption, JsonOption
from grandrounds.errors import ConfigError


def init(
    folder: Annotated[Path, typer.Argument(help="A folder with a corpus.", metavar="FOLDER")],
    out_path: Annotated[Path, typer.Option("--out", help="The config to write.")] = Path("experiment.toml"),
    format: Annotated[Optional[str], typer.Option("--format", help=f"{FORMAT_HELP} By default it is found.")] = None,
    task: Annotated[Optional[str], typer.Option("--task", help="By default what the corpus is mostly for.")] = None,
    encoder: Annotated[
        Optional[str], typer.Option("--encoder", help="A hub name or a folder; by default one from scratch.")
    ] = None,
    imports: ImportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look at a folder and write a config that runs: format, task, labels, parts, sites and encoder.

    Example: `grandrounds init corpora/maccrobat --task ner --out maccrobat.toml`
    """
    import tomli_w

    from grandrounds.config.propose import propose
    from grandrounds.registry import load_modules

    load_modules(imports or [])
    if out_path.exists():
        raise ConfigError(f"'{out_path}' is there already; name another with --out")
    with waiting("reading"):
        made = propose(folder, out_path, format=format, task=task, encoder=encoder)
    content = {**({"imports": imports} if imports else {}), **made.content}
    out_path.parent.mkdir(parents=True, exist_ok=True)
    out_path.write_text(f"# grandrounds run {out_path.name}\n{tomli_w.dumps(content)}", encoding="utf-8")
    parts = {part: len(paths) for part, paths in made.found.parts.items()}
    if as_json:
        passed_over = [path.name for path in made.found.passed_over]
        about = {"documents": made.documents, "files": parts, "tasks": made.tasks, "passed_over": passed_over}
        show_json({"config": str(out_path), **about, **made.content})
        return
    err.print(f"  {made.documents} documents in the format {made.found.format}; {made.content['task']['name']}", end="")
    others = made.tasks[1:]
    err.print(f" (--task may also be {', '.join(others)})" if others else "")
    if made.found.passed_over:
        err.print(f"  passed over: {', '.join(path.name for path in made.found.passed_over)}")
    out.print(str(out_path), soft_wrap=True)
