"""What several parts of a run's page ask of it."""

from __future__ import annotations

from grandrounds.runs.results import Participants
from grandrounds.web.view.following import FollowedRun
from grandrounds.web.view.tally import RoundTally


def known(view: FollowedRun) -> list[str]:
    participants = view.participants or Participants(sites=(), shares={}, left_out=())
    seen = view.presence.sites.keys() if view.presence else set()
    return sorted({site.name for site in participants.sites} | seen | view.tally.heard.keys())


def under_way(view: FollowedRun) -> RoundTally:
    return view.tally.rounds.get(view.tally.round, RoundTally(0.0, 0.0))


def planned(view: FollowedRun) -> int:
    return (view.run.planned if view.run else None) or 0


def done(view: FollowedRun) -> int:
    return view.run.rounds[-1].round if view.run and view.run.rounds else 0


def going(view: FollowedRun) -> bool:
    return view.running and view.tally.round > done(view)


def reason(event: str) -> str:
    return event.partition(":")[0]
