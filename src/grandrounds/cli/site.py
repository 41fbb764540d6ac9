"""`grandrounds site`: the hospital's side of a federation between hosts."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer
from rich.table import Table

from grandrounds.cli.console import err, out, show_json, show_warnings, waiting
from grandrounds.cli.federation import INSECURE, require_flower
from grandrounds.cli.options import JsonOption
from grandrounds.errors import ConfigError, GrandRoundsError

if TYPE_CHECKING:
    from grandrounds.deployment.dry_run import Upload
    from grandrounds.deployment.enrolment import Enrolment
    from grandrounds.deployment.handler import MessageHandler
    from grandrounds.deployment.keys import PrivateKey
    from grandrounds.deployment.site import Holding

app = typer.Typer(help="Take part in a federation between hosts (the hospital).", no_args_is_help=True)
EnrolmentArgument = Annotated[Path, typer.Argument(help="The folder that the coordinator sent.", metavar="ENROLMENT")]


@app.callback()
def root() -> None:
    """Take part in a federation between hosts (the hospital)."""


@app.command()
def init(enrolment: EnrolmentArgument) -> None:
    """Create this site's key pair. The private key stays here; send the public key to the coordinator.

    Example: `grandrounds site init enrolment/`
    """
    require_flower()
    from grandrounds.deployment.enrolment import read_enrolment
    from grandrounds.deployment.keys import fingerprint, make_key
    from grandrounds.deployment.signed import check_enrolment, check_received

    ours = read_enrolment(enrolment)
    if ours.key.exists():
        raise GrandRoundsError(
            f"'{ours.key}' exists already; its public half is '{ours.public_key}'. To replace it, move '{ours.state}' "
            "away first and send the coordinator the new one"
        )
    check_received(ours.folder, ours.state, ours.site.model_fields_set)
    for what, mark in check_enrolment(ours.folder, ours.site.name, ours.state, ours.site.insecure).items():
        out.print(f"the {what} has the fingerprint {mark}: compare it with the coordinator's", soft_wrap=True)
    ours.key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    public = make_key(ours.key, ours.public_key)
    out.print(f"send '{ours.public_key}' to the coordinator; its fingerprint is {fingerprint(public)}", soft_wrap=True)


@app.command()
def join(
    enrolment: EnrolmentArgument,
    data: Annotated[Path, typer.Option(help="The site's own documents: a file or a folder.")],
    format: Annotated[
        str, typer.Option("--format", help="Their format; grandrounds data check --help lists them.")
    ] = "json",
    test: Annotated[
        Optional[Path], typer.Option(help="Documents to evaluate on, for algorithms that evaluate at sites.")
    ] = None,
    validation: Annotated[
        Optional[Path],
        typer.Option(help="Documents to choose the best round by, for algorithms that evaluate at sites."),
    ] = None,
    policy: Annotated[Optional[Path], typer.Option(help="A TOML file that says which payload kinds may leave.")] = None,
    accept: Annotated[
        bool, typer.Option("--accept", help="Without a policy: let leave what the algorithm needs, and don't ask.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would leave, kind by kind, without joining.")
    ] = False,
    insecure: Annotated[bool, typer.Option("--insecure", help=f"Accept a federation without TLS: {INSECURE}.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check the site's data, then serve the coordinator until the run is over, reconnecting when needed.

    With --dry-run it shows what would leave and joins nothing. Afterwards each round is a line: what was sent, how many
    bytes, and how long it took here.

    Example: `grandrounds site join enrolment/ --data notes/ --format brat --dry-run`
    """
    require_flower()
    from grandrounds.deployment.enrolment import read_enrolment
    from grandrounds.deployment.keys import read_private
    from grandrounds.deployment.signed import check_enrolment
    from grandrounds.deployment.site import alone, open_handler, read_holding, with_policy
    from grandrounds.federation.policy import Policy
    from grandrounds.setup.server import find_device

    ours = read_enrolment(enrolment)
    check_enrolment(ours.folder, ours.site.name, ours.state, ours.site.insecure)
    find_device(ours.site.device)  # before the documents are read
    with waiting("reading and tokenising"):
        holding = read_holding(ours, [data], format, [test] if test else [], [validation] if validation else [])
    if policy is None and ours.site.policy is None:
        policy = _accepted(ours, accept, dry_run)
    if policy is not None:
        holding = with_policy(holding, Policy.load(policy))
    counts = ", ".join(f"{count} {what}" for what, count in holding.site_data.registration.counts.items())
    labels = ", ".join(f"{label} {count}" for label, count in sorted(holding.labels.items()))
    err.print(f"  site '{ours.site.name}' holds {counts} ({labels})", soft_wrap=True)
    show_warnings(holding.warnings)
    if dry_run:
        _show_uploads(ours, holding, as_json)
        return
    if ours.site.insecure and not insecure:
        raise ConfigError(f"this federation is without TLS ({INSECURE}); if you mean it, add --insecure")
    if ours.site.insecure:
        err.print(f"  {INSECURE}", soft_wrap=True)
    key = read_private(ours.key)
    with alone(ours):
        _serve(ours, open_handler(ours, holding, _say), key)


def _accepted(ours: Enrolment, accept: bool, dry_run: bool) -> Path | None:
    """The policy that somebody accepts, now or before."""
    from grandrounds.deployment.acceptance import needed_kinds, write_accepted

    if ours.accepted.exists():
        return ours.accepted
    algorithm = ours.terms.config.make_algorithm()
    err.print(f"  there is no policy; '{algorithm.name}' needs these to leave, and nothing else may:", soft_wrap=True)
    secure = ours.terms.config.federation.secure
    for kind, what in needed_kinds(algorithm, secure).items():
        err.print(f"    {kind}: {what}", soft_wrap=True)
    if dry_run:
        return None
    if not accept and not (sys.stdin.isatty() and typer.confirm("  let them leave?", err=True)):
        raise GrandRoundsError("nothing was accepted, so nothing leaves: say yes, add --accept, or give a --policy")
    write_accepted(ours.accepted, algorithm, ours.terms.digest[:16], secure)
    err.print(f"  written to '{ours.accepted}'", soft_wrap=True)
    return ours.accepted


def _serve(ours: Enrolment, handler: MessageHandler, key: PrivateKey) -> None:
    from grandrounds.deployment.flower.node import Door, app_of, serve

    door = Door(ours.site.coordinator, ours.ca, key, ours.state / "node")
    try:
        serve(door, app_of(handler), lambda: handler.ended is not None, _say)
    except KeyboardInterrupt:
        handler.rounds.end()
        _say("left the federation; the same command joins again")
        sys.stderr.flush()
        os._exit(130)  # whatever still computes is not waited for
    if handler.ended:
        raise GrandRoundsError(f"the coordinator refused this site: {handler.ended}")
    models = ours.state / "models"
    where = f"; this site's own model is in '{models}'" if models.exists() else ""
    if handler.received is not None:
        where = f"; its model is in '{handler.received}', for: grandrounds extract"
    out.print(f"the federation has finished{where}", soft_wrap=True)


def _say(sentence: str) -> None:
    err.print(f"  {time.strftime('%H:%M:%S')} {sentence}", soft_wrap=True)


def _show_uploads(ours: Enrolment, holding: Holding, as_json: bool) -> None:
    from grandrounds.deployment.dry_run import dry_run, tables_of_words
    from grandrounds.deployment.site import told_labels
    from grandrounds.deployment.spending import outlook, played

    with played(ours.terms.config.privacy_plan) as privacy, waiting("playing a round at home"):
        uploads = dry_run(ours, holding, privacy)
        spending = [] if privacy is None else outlook(ours, privacy, holding.site_data.policy)
    if as_json:
        show_json([vars(upload) for upload in uploads])
        return
    us = holding.site_data.registration
    counted = told_labels(ours, holding)
    told = f" and how often they occur {counted}" if counted else ""
    noisy = " with noise" if ours.terms.config.privacy.noisy_registration else ""
    out.print(
        f"Once, before round 1: counts {dict(us.counts)}{noisy}, labels {list(us.labels)}{told}, names and shapes of "
        "what is shared, versions of grandrounds and torch, digests of the terms, the tokenizer and the public sets "
        "held.",
        soft_wrap=True,
    )
    table = Table(title="What would leave")
    for name in ("when", "method", "kind", "what", "bytes", "the site's policy"):
        table.add_column(name, justify="right" if name == "bytes" else "left")
    for upload in uploads:
        table.add_row(
            upload.when,
            upload.method,
            upload.kind,
            _content(upload),
            f"{upload.bytes:,}",
            upload.refused or "may leave",
        )
    out.print(table)
    for sentence in spending:
        out.print(sentence, soft_wrap=True)
    for name in tables_of_words(ours, uploads):
        out.print(
            f"{name} has a row for each word piece: whoever gets it sees which of them this site's text has, by the "
            'rows that changed. The federation can keep it at home: model.freeze = ["embeddings"], or adapters '
            "(model.parameter_efficient = 'lora')",
            soft_wrap=True,
        )
    for upload in uploads:
        if len(upload.tensors) > 3:
            out.print(f"{upload.kind} of {upload.method}:")
            for name, shape in upload.tensors.items():
                out.print(f"  {name}  {' x '.join(map(str, shape)) or 'a number'}", soft_wrap=True)


def _content(upload: Upload) -> str:
    if len(upload.tensors) > 3:
        return f"{len(upload.tensors)} tensors, listed below"
    parts = [f"{name} {' x '.join(map(str, shape))}" for name, shape in upload.tensors.items()]
    return ", ".join([*parts, *upload.fields]) or "nothing but the word"
