"""`grandrounds federation`: found a federation between hosts."""

from __future__ import annotations

import socket
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Optional

import typer

from grandrounds.cli.console import err, out, show_json, waiting
from grandrounds.cli.options import JsonOption
from grandrounds.errors import ConfigError, GrandRoundsError

app = typer.Typer(help="Create a federation between hosts (the coordinator).", no_args_is_help=True)

TEMPLATE = """# A federation between hosts. Edit this, then run the same command again.
seed = 1

[task]
name = "sentence_re"
# labels = ["TrIP", "TeRP"]            # else those of the public set

[data]                                  # the coordinator's own; each site brings its own with `site join`
format = "json"                         # grandrounds data check --help lists the formats
public = "public.jsonl"                 # what FedED distils on, and encoder "tiny" learns its word pieces from
test = "test.jsonl"
# validation = "validation.jsonl"       # to choose the best round by

[model]
encoder = "tiny"                        # or a folder, or a hub name

[training]                              # at each site, between two exchanges
epochs = 1
batch_size = 8
learning_rate = 5e-5

[federation]
rounds = 10
min_replies = 2
deadline = 3600                         # seconds that a site has for an answer
absence = 180                           # seconds that it may be out of sight

[algorithm]
name = "fedavg"                         # fedatt, fedprox, feded, local_only
"""
INSECURE = (
    "plaintext: anyone on the network path can read and change all that is sent, and impersonate a site; only for "
    "tests on one machine"
)


def require_flower() -> None:
    """Between hosts Flower carries the messages: an extra, since who simulates needs none of it."""
    if find_spec("flwr") is None:
        raise GrandRoundsError("this command needs Flower; install it with: pip install 'grandrounds[flower]'")


@app.callback()
def root() -> None:
    """Create a federation between hosts (the coordinator)."""


@app.command()
def create(
    folder: Annotated[Path, typer.Argument(help="A new folder for the federation.", metavar="DIR")],
    sites: Annotated[str, typer.Option(help="The sites' names, separated by commas: charity,mercy,general.")],
    config: Annotated[
        Optional[Path],
        typer.Option(
            help="A run's TOML file; by default DIR/config.toml, which is written as a template if there is none."
        ),
    ] = None,
    overrides: Annotated[Optional[list[str]], typer.Argument(help="key=value, such as federation.rounds=5.")] = None,
    data: Annotated[
        Optional[Path], typer.Option(help="The folder of data.public and data.test; by default the config's own.")
    ] = None,
    host: Annotated[
        Optional[list[str]],
        typer.Option(help="A name or address by which sites reach this machine; may be repeated."),
    ] = None,
    port: Annotated[int, typer.Option(help="The one port that sites connect to.", min=1, max=65535)] = 8000,
    bind: Annotated[str, typer.Option(help="The address to listen on.")] = "0.0.0.0",
    insecure: Annotated[bool, typer.Option("--insecure", help=f"No TLS: {INSECURE}.")] = False,
) -> None:
    """Create certificates, the terms, and a folder to send to each site. These folders contain no secret.

    Example: `grandrounds federation create consortium --sites charity,mercy --config federation.toml --host HOST`
    """
    require_flower()
    from grandrounds.config.schema import load_config
    from grandrounds.deployment.consortium import Founded
    from grandrounds.deployment.consortium import create as found
    from grandrounds.deployment.signed import fingerprints

    path = folder / "config.toml" if config is None else config
    if config is None and not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(TEMPLATE, encoding="utf-8")
        out.print(f"wrote a template to '{path}': edit it, then run the same command again", soft_wrap=True)
        return
    names = [name.strip() for name in sites.split(",") if name.strip()]
    if not names:
        raise ConfigError("--sites names no site; write them with commas, such as --sites charity,mercy")
    made = load_config(path, overrides or [])
    hosts = host or [socket.gethostname()]
    base = (data or path.parent).resolve()
    if insecure:
        err.print(f"  {INSECURE}", soft_wrap=True)
    with waiting("making certificates and terms"):
        name, where = folder.resolve().name, {"hosts": hosts, "port": port, "bind": bind}
        found(folder, Founded(name=name, sites=names, data=str(base), insecure=insecure, **where), made)
    for what, mark in fingerprints(folder).items():
        out.print(f"the {what} has the fingerprint {mark}", soft_wrap=True)
    out.print(f"the federation is in '{folder}'. Sites compare these fingerprints with you. Now:", soft_wrap=True)
    for name in names:
        out.print(f"  send '{folder / 'enrolment' / name}' to {name}", soft_wrap=True)
    out.print(f"  put the .pub file that each sends back into '{folder / 'keys'}'", soft_wrap=True)
    out.print(f"  grandrounds coordinator {folder}", soft_wrap=True)


@app.command()
def renew(
    folder: Annotated[Path, typer.Argument(help="The federation's folder.", metavar="DIR")],
    days: Annotated[int, typer.Option(help="How many days the new certificate is valid.", min=1)] = 365,
) -> None:
    """Issue a new server certificate from the same authority. Sites need nothing new.

    Example: `grandrounds federation renew consortium --days 365`
    """
    require_flower()
    from grandrounds.deployment.consortium import Consortium
    from grandrounds.deployment.keys import issue_certificate

    consortium = Consortium(folder)
    if consortium.tls is None:
        raise GrandRoundsError(f"'{folder}' is insecure and has no certificate")
    until = issue_certificate(folder, consortium.founded.names, days)
    out.print(f"the new certificate holds until {until:%Y-%m-%d}", soft_wrap=True)


@app.command()
def keys(
    folder: Annotated[Path, typer.Argument(help="The federation's folder.", metavar="DIR")], as_json: JsonOption = False
) -> None:
    """Show which sites' public keys have arrived, with fingerprints to compare over the telephone.

    Example: `grandrounds federation keys consortium`
    """
    require_flower()
    from grandrounds.deployment.consortium import Consortium
    from grandrounds.deployment.keys import fingerprint

    consortium = Consortium(folder)
    held = {site: fingerprint(key) for site, key in consortium.keys().items()}
    if as_json:
        show_json({site: held.get(site) for site in consortium.founded.sites})
        return
    for site in consortium.founded.sites:
        out.print(f"{site}  {held.get(site, 'has not sent its key yet')}", soft_wrap=True)
