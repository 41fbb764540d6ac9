"""Papers' tables and figures, run anew: a file a paper, and their printed numbers in `numbers/`."""

from __future__ import annotations

from grandrounds.papers import fedbert, fedds, feded, fedlcc, fedner
from grandrounds.papers.protocol import Paper

PAPERS: dict[str, Paper] = {
    paper.name: paper for paper in (feded.PAPER, fedlcc.PAPER, fedds.PAPER, fedner.PAPER, fedbert.PAPER)
}
