"""The commands, gathered."""

from __future__ import annotations

import typer

from grandrounds import __version__
from grandrounds.cli import (
    attention,
    audit,
    compare,
    coordinator,
    data,
    demo,
    distant,
    evaluate,
    export,
    extract,
    federation,
    init,
    link,
    map,
    privacy,
    report,
    reproduce,
    run,
    search,
    serve,
    site,
    view,
    vocabulary,
)

app = typer.Typer(
    help="Federated information extraction from medical text: the notes stay at each hospital, the model learns "
    "from all. Begin with: grandrounds demo",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command("demo")(demo.demo)
app.command("init")(init.init)
app.command("run")(run.run)
app.command("compare")(compare.compare)
app.command("search")(search.search)
app.command("reproduce")(reproduce.reproduce)
app.command("map")(map.map)
app.command("evaluate")(evaluate.evaluate)
app.command("extract")(extract.extract)
app.command("serve")(serve.serve)
app.command("view")(view.view)
app.command("export")(export.export)
app.command("attention")(attention.attention)
app.command("report")(report.report)
app.command("coordinator")(coordinator.coordinator)
app.add_typer(federation.app, name="federation")
app.add_typer(site.app, name="site")
data.app.command("distant")(distant.distant)
app.add_typer(data.app, name="data")
app.add_typer(vocabulary.app, name="vocabulary")
app.add_typer(link.app, name="link")
app.add_typer(audit.app, name="audit")
app.add_typer(privacy.app, name="privacy")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"grandrounds {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    """What holds for every command."""
