"""What an honest but curious coordinator could find out about a site, in words and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grandrounds.metrics.leakage import FALSE_POSITIVES, Membership
from grandrounds.reports.markup import join, page, table, tag
from grandrounds.reports.wording import ABSENT, count, listed, plural

if TYPE_CHECKING:
    from grandrounds.simulation.curious import Leak

MEANINGS = (
    ("Words", "Of as many words as the site has, the share that it does have, ranked by how much its uploads changed "
     "their embeddings."),
    ("Training examples", "The share of the site's examples that are recognised by how much the loss on them fell, if "
     "1% of examples that nobody trained on may be taken for them; and the area under the curve of both shares."),
    ("Canaries", "Test examples that were planted in the site's training data, several times each, ranked among others "
     "that were not. Each bit halves the guesses that are needed to find one."),
)  # fmt: skip
CAVEAT = (
    "These are three attacks that anyone can make with what is sent. Others may find out more: a low figure here is no "
    "promise, a high one is a warning."
)


def figures(leaks: Mapping[str, Leak]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table: a column for each setting, and one for guessing."""
    some = list(leaks.values())
    first = some[0]
    chance = next((_percent(leak.words.chance) for leak in some if leak.words), ABSENT)
    rows = [
        ["Words", *(_percent(leak.words.right) if leak.words else "none travel" for leak in some), chance],
        ["Training examples", *(_found(leak.membership) for leak in some), _percent(FALSE_POSITIVES)],
        ["    area under the curve", *(f"{leak.membership.auc:.3f}" for leak in some), "0.500"],
        [
            f"Canaries, bits of {first.canaries.most:.1f}",
            *(f"{leak.canaries.bits:.2f}" for leak in some),
            f"{first.canaries.chance:.2f}",
        ],
        [
            f"The model's {first.objective} on test data",
            *(ABSENT if leak.score is None else f"{leak.score:.3f}" for leak in some),
            ABSENT,
        ],
    ]
    return ["what is found out", *leaks, "by guessing"], rows


def basis(leaks: Mapping[str, Leak]) -> list[str]:
    """What the figures are of."""
    first = next(iter(leaks.values()))
    sent = [
        f"{name}: {listed([f'{count(n)} x {kind}' for kind, n in sorted(leak.uploads.items())])}"
        for name, leak in leaks.items()
    ]
    return [
        f"Uploads of '{first.site}' that the coordinator looked at, {'; '.join(sent)}.",
        f"{plural(first.membership.members, 'training example')} against {count(first.membership.others)} others; "
        f"{plural(first.canaries.planted, 'canary', 'canaries')}, planted {plural(first.repeated, 'time')} each.",
        CAVEAT,
    ]


def write_page(leaks: Mapping[str, Leak], settings: Sequence[str], out: Path) -> Path:
    site = next(iter(leaks.values())).site
    title = f"What a curious coordinator finds out about {site}"
    head, rows = figures(leaks)
    body = join(
        [
            tag("h1", title),
            tag("p", f"With the settings: {', '.join(settings)}" if settings else "As configured", class_="sub"),
            table(head, rows),
            *(tag("p", tag("strong", f"{name}. "), meaning) for name, meaning in MEANINGS),
            *(tag("p", sentence) for sentence in basis(leaks)),
        ]
    )
    out.write_text(page("page.html", title, body, "page.css"), "utf-8")
    return out


def _found(membership: Membership) -> str:
    return f"{_percent(membership.found)} ({_percent(membership.low)} to {_percent(membership.high)})"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"
