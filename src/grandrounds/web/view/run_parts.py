"""The page of a run: its sites, the round that is under way, scores, what travels, what went wrong, its log."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from grandrounds.reports.audit_page import moment
from grandrounds.reports.markup import Html, join, table, tag
from grandrounds.reports.wording import ABSENT, byte_size, count, duration, listed, plural, score
from grandrounds.runs.results import SiteState
from grandrounds.web.view.following import FollowedRun
from grandrounds.web.view.parts import (
    MOST_ROWS,
    Figure,
    Parts,
    audit,
    figures,
    heading,
    log,
    more,
    parted,
    section,
    state,
    stopped,
    when,
)
from grandrounds.web.view.pictures import Part, bar
from grandrounds.web.view.run_scores import scores
from grandrounds.web.view.run_state import done, going, known, planned, reason, under_way
from grandrounds.web.view.run_timeline import MOST_BARS, timeline, travel

LATEST = 10
"""Rounds by whose pace the rest is estimated."""


def run_parts(view: FollowedRun) -> Parts:
    return {
        "head": _heading(view),
        "figures": _figures(view),
        "sites": _sites(view),
        "timeline": timeline(view),
        "scores": scores(view),
        "travel": travel(view),
        "privacy": _privacy(view),
        "stopped": stopped(view.tally, own=False),
        "audit": audit(view.tally, view.followed.checked, _resume(view)),
        "log": log(view.tally, own=False),
    }


def moving_parts(view: FollowedRun) -> Parts:
    """What changes by itself, since time goes on."""
    return {"timeline": timeline(view)}


def title_of(view: FollowedRun) -> str:
    return f"{view.run.algorithm} on {view.run.task}" if view.run else view.place.name


def _heading(view: FollowedRun) -> Html:
    run, of = view.run, count(planned(view))
    sub = f"Run {view.place.name}" + (f" · seed {run.seed}" if run else "")
    if view.running:
        now = going(view) and f"round {count(view.tally.round)} of {of}"
        waiting = "waiting for the sites" if view.presence else "reading and tokenising"
        said = now or (f"{done(view)} of {of} rounds are done" if view.tally.round else waiting)
        return heading(title_of(view), sub, state("running", "good"), f"– {said}", view.problem)
    if view.finished:
        ended = f"– {moment(view.tally.last)}" if view.tally.last else ""
        return heading(title_of(view), sub, state("finished", "done"), ended, view.problem)
    if run is None:
        said = "This page follows it as soon as it does."
        return heading(title_of(view), sub, state("not begun", "off"), said, view.problem)
    said = f"after {plural(done(view), 'round')}; the same command with --resume goes on"
    return heading(title_of(view), sub, state("stopped", "bad"), said, view.problem)


def _figures(view: FollowedRun) -> Html:
    if view.run is None and view.presence is None:
        return Html("")
    down = f"to sites {byte_size(view.tally.total('down'))}"
    sent = ("sent by sites", *parted(byte_size(view.tally.total("up"))), down)
    seconds = view.run.seconds if view.run and view.run.rounds else None
    return figures(
        [
            _rounds(view),
            _objective(view),
            _presence(view),
            sent,
            ("time in rounds", *parted(duration(seconds)), _left(view)),
        ]
    )


def _rounds(view: FollowedRun) -> Figure:
    abandoned = sum(line.abandoned for line in view.run.rounds) if view.run else 0
    of = f"of {count(planned(view))}" if planned(view) else ""
    return "rounds done", count(done(view)), of, f"{count(abandoned)} abandoned" if abandoned else ""


def _objective(view: FollowedRun) -> Figure:
    run = view.run
    if run is None or run.test is None:
        return "score on the test set", ABSENT, "", ""
    bar = f"trivial baseline {score(run.baseline[1])}" if run.baseline else ""
    return f"{run.objective.name} on the test set", score(run.test.value(run.objective)), "", bar


def _presence(view: FollowedRun) -> Figure:
    sites = count(len(known(view)))
    if view.presence is None or not view.running:
        return "sites", sites, "", ""
    return "sites online", count(sum(site.online for site in view.presence.sites.values())), f"of {sites}", ""


def _sites(view: FollowedRun) -> Html:
    names = known(view)
    if not names:
        return Html("")
    held = {site.name: site for site in view.participants.sites} if view.participants else {}
    shares: Mapping[str, float] = view.participants.shares if view.participants else {}
    seen = view.presence.sites if view.presence else {}
    rows = []
    for name in names[:MOST_ROWS]:
        whereabouts = seen.get(name)
        heard = max(view.tally.heard.get(name, 0.0), whereabouts.seen if whereabouts else 0.0)
        rows.append(
            [
                name,
                _state(view, name, whereabouts),
                when(heard) if heard else "never",
                count(held[name].examples) if name in held else ABSENT,
                f"{shares[name]:.1%}" if name in shares else ABSENT,
                byte_size(view.tally.total("up", name)),
                byte_size(view.tally.total("down", name)),
            ]
        )
    head = ["site", "state", "last heard of", "examples", "share", "sent by it", "sent to it"]
    told = " ".join(sentence for sentence in _about_sites(view) if sentence)
    return section("Sites", table(head, rows, 3), more(len(names), MOST_ROWS), tag("p", told, class_="soft"))


def _about_sites(view: FollowedRun) -> list[str]:
    left_out = view.participants.left_out if view.participants else ()
    return [
        "Share: how much a site counts in a mean over all of them." if view.participants else "",
        "" if view.presence else "The sites are simulated on this machine.",
        f"Without part in this run: {listed(left_out)}." if left_out else "",
    ]


def _state(view: FollowedRun, name: str, seen: SiteState | None) -> Html:
    if seen is not None and seen.refused:
        return join([state("refused", "bad"), tag("span", f" {seen.refused}", class_="soft")])
    if not view.running:
        if view.tally.payloads("up", name):
            word = state("took part", "done")
        else:
            word = state("sent nothing", "bad") if name in view.tally.heard else state("took no part", "off")
        return join([word, tag("span", _lost_last(view, name), class_="soft")])
    if seen is not None:
        if seen.online:
            here = state(f"working ({seen.doing})" if seen.doing else "online", "good")
            return join([here, tag("span", _lost_last(view, name), class_="soft")])
        return state("away", "bad") if seen.seen else state("not yet here", "off")
    spans = under_way(view).spans.get(name, [])
    if not spans:
        return state("not asked in this round", "off")
    if spans[-1].ended is None:
        return state("asked", "good")
    return state(reason(spans[-1].why), "bad") if spans[-1].why else state("answered", "done")


def _lost_last(view: FollowedRun, name: str) -> str:
    last = view.run.rounds[-1] if view.run and view.run.rounds else None
    return f", {reason(last.lost[name])} in round {count(last.round)}" if last and name in last.lost else ""


def _privacy(view: FollowedRun) -> Html:
    settings = view.run.config.get("privacy", {}) if view.run else {}
    if not isinstance(settings, dict) or settings.get("unit", "none") == "none":
        return Html("")
    limit, delta = settings.get("epsilon"), settings.get("delta")
    assert view.run
    told = f"By {settings['unit']}: a site may spend epsilon {limit} at delta {delta} in this run."
    spent: dict[str, float] = {}
    for line in view.run.rounds:
        spent |= line.epsilon
    if not spent:
        who = "Only a site knows what it has spent: its own page shows it."
        return section("Privacy", tag("p", f"{told} {who if view.presence else 'Nothing has been spent yet.'}"))
    return section("Privacy", tag("p", told), _spent(spent, float(limit) if isinstance(limit, int | float) else 0.0))


def _spent(spent: Mapping[str, float], limit: float) -> Html:
    names = sorted(spent)
    rows = []
    for name in names[:MOST_BARS]:
        used, left = spent[name], max(0.0, limit - spent[name])
        parts = [Part(0, min(1, used / limit) if limit else 1, "s0")]
        rows.append([name, bar(parts, f"{name}: epsilon {used:.3g} of {limit:g}"), f"{used:.3g}", f"{left:.3g}"])
    return join([tag("div", table(["site", "", "spent", "left"], rows, 2), class_="bars"), more(len(names), MOST_BARS)])


def _resume(view: FollowedRun) -> str:
    if view.resume is None:
        return "There is no checkpoint yet: a run that is stopped now starts anew."
    if view.finished and not view.running:
        return f"The last checkpoint is that of round {view.resume.round}: with more rounds, the run can go on."
    place = f"after round {view.resume.round}" if view.resume.round else "before round 1"
    return f"If the run is stopped now, --resume goes on {place}, where its last checkpoint is."


def _left(view: FollowedRun) -> str:
    if not view.running or view.run is None or not view.run.rounds:
        return ""
    each = fmean(line.seconds for line in view.run.rounds[-LATEST:])
    rounds = planned(view) - done(view)
    return f"about {duration(each * rounds)} to go" if rounds > 0 else ""
