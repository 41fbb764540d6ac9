"""`grandrounds privacy`: what a coordinator could find out, and what noise against it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from grandrounds.cli import attack
from grandrounds.cli.console import out, show_json, waiting
from grandrounds.cli.options import JsonOption
from grandrounds.errors import ConfigError

app = typer.Typer(
    help="What a coordinator could find out about a site, and what differential privacy costs.", no_args_is_help=True
)
app.command("attack")(attack.attack)
DeltaOption = Annotated[float, typer.Option(help="The chance that epsilon does not hold.", min=1e-30, max=0.1)]


@app.callback()
def root() -> None:
    """What a coordinator could find out about a site, and what differential privacy costs."""


@app.command()
def plan(
    units: Annotated[
        Optional[int], typer.Option(help="Examples or patients of a site; without it, noise is for whole sites.", min=1)
    ] = None,
    batch: Annotated[int, typer.Option(help="training.batch_size: units in a step, on average.", min=1)] = 16,
    epochs: Annotated[int, typer.Option(help="training.epochs, of a round.", min=1)] = 1,
    rounds: Annotated[int, typer.Option(help="federation.rounds.", min=1)] = 10,
    fraction: Annotated[float, typer.Option(help="federation.fraction: of sites in a round.", min=0.001, max=1)] = 1.0,
    noise: Annotated[Optional[float], typer.Option(help="privacy.noise: show the epsilon it has.", min=1e-3)] = None,
    epsilon: Annotated[
        Optional[float], typer.Option(help="privacy.epsilon: show the noise it needs.", min=1e-3)
    ] = None,
    delta: DeltaOption = 1e-5,
    as_json: JsonOption = False,
) -> None:
    """Epsilon for given noise, or noise for a given epsilon, of a whole run at one site.

    Example: `grandrounds privacy plan --units 1000 --batch 16 --rounds 20 --epsilon 8`
    """
    from math import ceil

    from grandrounds.federation.privacy import accounting
    from grandrounds.federation.privacy.settings import Plan, Privacy

    if (noise is None) == (epsilon is None):
        raise ConfigError("give --noise to see its epsilon, or --epsilon to see the noise it needs")
    accounting.check_installed()
    most = Plan.of(Privacy(), rounds, fraction).rounds
    rate, each = (1.0, 1) if units is None else (min(1.0, batch / units), epochs * ceil(units / batch))
    with waiting("accounting"):
        given = noise or accounting.noise_for(epsilon or 0.0, delta, rate, each * most)
        spent = accounting.epsilon([accounting.Draw(given, rate, each * most)], delta)
    found = {
        "noise": given,
        "epsilon": round(spent, 4),
        "delta": delta,
        "rate": rate,
        "steps": each * most,
        "rounds_asked": most,
    }
    if as_json:
        show_json(found)
        return
    out.print(
        f"noise {found['noise']:g}, {found['steps']} steps with {rate:.4g} of the units each: epsilon "
        f"{found['epsilon']:.4g} at delta {delta:g}",
        soft_wrap=True,
    )
    if most < rounds:
        out.print(f"a site is asked in {most} of {rounds} rounds at most, and refuses after that", soft_wrap=True)


@app.command()
def show(
    ledger: Annotated[Path, typer.Argument(help="A site's privacy.jsonl, or a run folder with privacy/ in it.")],
    delta: DeltaOption = 1e-5,
    as_json: JsonOption = False,
) -> None:
    """Check what sites noted down, and sum it up.

    Example: `grandrounds privacy show enrolment/private/privacy.jsonl`
    """
    from grandrounds.federation.privacy import accounting
    from grandrounds.federation.privacy.ledger import draws_of, spent_lines

    accounting.check_installed()
    paths = sorted((ledger / "privacy").glob("*.jsonl")) if ledger.is_dir() else [ledger]
    if not paths or not paths[0].exists():
        raise ConfigError(f"there is no privacy ledger at '{ledger}'; check the path")
    rows = []
    for path in paths:
        with waiting(f"accounting {path.name}"):
            lines = spent_lines(path)
            spent = accounting.epsilon(draws_of(lines), delta)
        units = sorted({str(line["unit"]) for line in lines})
        rows.append({"ledger": path.name, "unit": ", ".join(units), "lines": len(lines), "epsilon": round(spent, 4)})
    if as_json:
        show_json(rows)
        return
    for row in rows:
        out.print(
            f"{row['ledger']}: epsilon {row['epsilon']:g} at delta {delta:g} by {row['unit'] or 'nothing yet'}, "
            f"{row['lines']} lines, the chain is whole",
            soft_wrap=True,
        )
