"""The page of a run: its sites, the round that is under way, scores, what travels, what went wrong, its log."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from statistics import fmean

from grandrounds.metrics.score import Score
from grandrounds.reports import kinds
from grandrounds.reports.markup import Html, join, table, tag
from grandrounds.reports.runs import Run
from grandrounds.reports.wording import ABSENT, byte_size, count, duration, listed, megabytes, plural, score, signed
from grandrounds.runs.results import Participants, SiteState
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
    named_kinds,
    parted,
    section,
    since,
    state,
    stopped,
    styles_of,
    when,
)
from grandrounds.web.view.pictures import THIN, Curve, Level, Part, bar, by_round, key
from grandrounds.web.view.tally import RoundTally, Span

MOST_BARS, MOST_CURVES, MOST_ROUNDS = 60, 20, 30
LATEST = 10
"""Rounds by whose pace the rest is estimated."""
POOLED = "centralized"
"""The algorithm that brings all data to one place: nothing travels."""


def run_parts(view: FollowedRun) -> Parts:
    return {
        "head": _heading(view),
        "figures": _figures(view),
        "sites": _sites(view),
        "timeline": _timeline(view),
        "scores": _scores(view),
        "travel": _travel(view),
        "privacy": _privacy(view),
        "stopped": stopped(view.tally, own=False),
        "audit": audit(view.tally, view.followed.checked, _resume(view)),
        "log": log(view.tally, own=False),
    }


def moving_parts(view: FollowedRun) -> Parts:
    """What changes by itself, since time goes on."""
    return {"timeline": _timeline(view)}


def title_of(view: FollowedRun) -> str:
    return f"{view.run.algorithm} on {view.run.task}" if view.run else view.place.name


def _heading(view: FollowedRun) -> Html:
    run, planned = view.run, _planned(view)
    sub = f"Run {view.place.name}" + (f" · seed {run.seed}" if run else "")
    if view.running:
        under_way = _going(view) and f"round {count(view.tally.round)} of {count(planned)}"
        waiting = "waiting for the sites" if view.presence else "reading and tokenising"
        said = under_way or (f"{_done(view)} of {count(planned)} rounds are done" if view.tally.round else waiting)
        return heading(title_of(view), sub, state("running", "good"), f"– {said}", view.problem)
    if view.finished:
        return heading(title_of(view), sub, state("finished", "done"), "", view.problem)
    if run is None:
        said = "This page follows it as soon as it does."
        return heading(title_of(view), sub, state("not begun", "off"), said, view.problem)
    said = f"after {plural(_done(view), 'round')}; the same command with --resume goes on"
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
    planned = f"of {count(_planned(view))}" if _planned(view) else ""
    return "rounds done", count(_done(view)), planned, f"{count(abandoned)} abandoned" if abandoned else ""


def _objective(view: FollowedRun) -> Figure:
    run = view.run
    if run is None or run.test is None:
        return "score on the test set", ABSENT, "", ""
    bar = f"trivial baseline {score(run.baseline[1])}" if run.baseline else ""
    return f"{run.objective.name} on the test set", score(run.test.value(run.objective)), "", bar


def _presence(view: FollowedRun) -> Figure:
    known = count(len(_known(view)))
    if view.presence is None or not view.running:
        return "sites", known, "", ""
    return "sites online", count(sum(site.online for site in view.presence.sites.values())), f"of {known}", ""


def _sites(view: FollowedRun) -> Html:
    names = _known(view)
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
    head = ["site", "state", "last heard of", "examples", "share", "sent", "received"]
    told = " ".join(sentence for sentence in _about_sites(view) if sentence)
    return section("Sites", table(head, rows, 3), more(len(names), MOST_ROWS), tag("p", told, class_="soft"))


def _about_sites(view: FollowedRun) -> list[str]:
    left_out = view.participants.left_out if view.participants else ()
    return [
        "The share is that of a mean over all sites." if view.participants else "",
        "" if view.presence else "The sites are simulated on this machine.",
        f"Without part in this run: {listed(left_out)}." if left_out else "",
    ]


def _state(view: FollowedRun, name: str, seen: SiteState | None) -> Html:
    if seen is not None and seen.refused:
        return join([state("refused", "bad"), tag("span", f" {seen.refused}", class_="soft")])
    if not view.running:
        took_part = name in view.tally.heard
        word = state("took part" if took_part else "took no part", "done" if took_part else "off")
        return join([word, tag("span", _lost_last(view, name), class_="soft")])
    if seen is not None:
        if seen.online:
            here = state(f"working ({seen.doing})" if seen.doing else "online", "good")
            return join([here, tag("span", _lost_last(view, name), class_="soft")])
        return state("away", "bad") if seen.seen else state("not yet here", "off")
    spans = _under_way(view).spans.get(name, [])
    if not spans:
        return state("not asked in this round", "off")
    if spans[-1].ended is None:
        return state("asked", "good")
    return state(_why(spans[-1].why), "bad") if spans[-1].why else state("answered", "done")


def _lost_last(view: FollowedRun, name: str) -> str:
    last = view.run.rounds[-1] if view.run and view.run.rounds else None
    return f", {_why(last.lost[name])} in round {count(last.round)}" if last and name in last.lost else ""


def _timeline(view: FollowedRun) -> Html:
    """The round that is under way, and the one before; once a run has ended, its last one."""
    last = view.tally.round
    shown = [number for number in (last, last - 1 if _going(view) else 0) if number in view.tally.rounds and number]
    if not shown:
        return Html("")
    styles = [("ok", "asked until it answered"), ("open", "not answered yet"), ("stopped", "no answer that counts")]
    turns = "Simulated sites take turns, so a bar begins where the one before ends." if not view.presence else ""
    parts = [_bars(view, number, going=_going(view) and number == last) for number in shown]
    return join([*parts, key(styles), tag("p", turns, class_="soft") if turns else ""])


def _going(view: FollowedRun) -> bool:
    return view.running and view.tally.round > _done(view)


def _bars(view: FollowedRun, number: int, going: bool) -> Html:
    tally = view.tally.rounds[number]
    end = tally.began + since(tally.began) if going else max(tally.ended, tally.began)
    whole = max(end - tally.began, 0.001)
    names, rows = sorted(tally.spans), []
    for name in names[:MOST_BARS]:
        spans = [_closed(span, name, view) for span in tally.spans[name]]
        said = _took(view, name, spans[-1], going)
        rows.append([name, bar([_part(span, tally.began, whole, end) for span in spans], f"{name}: {said}"), said])
    told = f"Round {count(number)}" + (" is under way" if going else "")
    why = join(["Since " if going else "From ", when(tally.began), f": {duration(whole)}."])
    bars = tag("div", table(["site", "", ""], rows, 3), class_="bars")
    return section(told, tag("p", why), bars, more(len(names), MOST_BARS))


def _closed(span: Span, name: str, view: FollowedRun) -> Span:
    """One that has answered may wait for its turn; the coordinator knows when it came."""
    seen = view.presence.sites.get(name) if view.presence else None
    if span.ended is None and seen is not None and seen.answered >= span.asked:
        return Span(span.asked, seen.answered)
    return span


def _part(span: Span, began: float, whole: float, end: float) -> Part:
    style = "open" if span.ended is None else "stopped" if span.why else "ok"
    begin, last = (span.asked - began) / whole, ((span.ended or end) - began) / whole
    return Part(min(max(begin, 0), 1), min(max(last, 0), 1), style, span.why)


def _took(view: FollowedRun, name: str, span: Span, going: bool) -> str:
    if span.ended is not None:
        return _why(span.why) if span.why else duration(span.ended - span.asked)
    seen = view.presence.sites.get(name) if view.presence else None
    away = seen is not None and not seen.online
    return f"{'away' if away else 'working'}, {duration(since(span.asked))}" if going else "no answer"


def _why(event: str) -> str:
    return event.partition(":")[0]


def _scores(view: FollowedRun) -> Html:
    run = view.run
    if run is None:
        return Html("")
    key_name, word = run.objective.key, run.objective.name
    best = _best(view, run)
    curves = [
        Curve(f"{split} set", [p for p in run.points(split, key_name) if isfinite(p[1])], style, best)
        for split, style in (("validation", "s1"), ("test", "s0"))
    ]
    curves = [*_by_learner(run), *(curve for curve in curves if curve.points)]
    if not curves:
        return Html("")
    levels = [Level(f"trivial: {run.baseline[0]}", run.baseline[1])] if run.baseline else []
    alone = view.alone.test if view.alone else None
    if alone is not None and (value := alone.value(run.objective)) is not None:
        levels.append(Level("each site alone (mean)", value, "s4"))
    picture = by_round(f"{word} after each round", curves, levels, _planned(view) or 1)
    told = f"{word} after each round."
    if any(THIN in curve.style for curve in curves):
        told += " Thin lines are the sites' own models."
    told += f" A ring marks round {best}, the best one so far on the validation set." if best else ""
    numbers = tag("details", tag("summary", "Round by round in numbers"), _numbers(run))
    return section("Scores", tag("p", told), tag("figure", picture), _by_site(view, run), numbers)


def _best(view: FollowedRun, run: Run) -> int | None:
    return run.result.best_round if run.result else view.resume.best_round if view.resume else None


def _by_learner(run: Run) -> list[Curve]:
    """Where each site has a model of its own."""
    found: dict[str, list[tuple[int, float]]] = {}
    for line in run.rounds:
        for name, one in (line.test.learners if line.test else {}).items():
            if (value := one.value(run.objective)) is not None and isfinite(value):
                found.setdefault(name, []).append((line.round, value))
    return [Curve(name, points, f"s5 {THIN}") for name, points in list(found.items())[:MOST_CURVES]]


def _by_site(view: FollowedRun, run: Run) -> Html:
    """Each site's score in the federation, beside what it reaches alone."""
    together, alone = run.test or Score(), (view.alone.test if view.alone else None) or Score()
    ours = {name: one.value(run.objective) for name, one in together.learners.items()}
    theirs = {name: one.value(run.objective) for name, one in alone.learners.items()}
    names = sorted(ours.keys() | theirs.keys())
    if not names:
        return Html("")
    rows = []
    for name in names[:MOST_ROWS]:
        one, other = ours.get(name), theirs.get(name)
        gain = None if one is None or other is None else one - other
        rows.append([name, score(one), *([score(other), signed(gain)] if theirs else [])])
    head = ["site", f"{run.objective.name} in the federation", *(["alone", "difference"] if theirs else [])]
    shared = "" if ours else "The federation's model is one for all, and is scored on the coordinator's test set alone."
    return join([table(head, rows), more(len(names), MOST_ROWS), tag("p", shared, class_="soft") if shared else ""])


def _numbers(run: Run) -> Html:
    word = run.objective.name
    rows = [
        [
            f"{count(line.round)} (abandoned)" if line.abandoned else count(line.round),
            f"{count(line.replies)} of {count(line.replies + len(line.lost))}",
            score(line.validation.value(run.objective) if line.validation else None),
            score(line.test.value(run.objective) if line.test else None),
            duration(line.seconds),
            f"{megabytes(line.bytes_up)} MB",
            f"{megabytes(line.bytes_down)} MB",
        ]
        for line in run.rounds[: -MOST_ROUNDS - 1 : -1]
    ]
    head = ["round", "good replies", f"validation {word}", f"test {word}", "took", "sent by sites", "to sites"]
    return join([table(head, rows), more(len(run.rounds), MOST_ROUNDS)])


def _travel(view: FollowedRun) -> Html:
    if view.run and view.run.algorithm == POOLED:
        return section("What travels", tag("p", "Nothing: the sites' data were brought together before round 1."))
    up = view.tally.by_kind("up")
    if not up and not view.tally.by_kind("down"):
        return Html("")
    chosen = styles_of(up)
    names = [name for name in _known(view) if view.tally.total("up", name) or view.tally.total("down", name)]
    most = max((view.tally.total("up", name) for name in names), default=0) or 1
    rows = [
        [
            name,
            bar(_stack(view, name, chosen, most), f"{name} sent {byte_size(view.tally.total('up', name))}"),
            byte_size(view.tally.total("up", name)),
            byte_size(view.tally.total("down", name)),
        ]
        for name in names[:MOST_BARS]
    ]
    down = [f"{kinds.kind(kind)} ({byte_size(size)})" for kind, size in view.tally.by_kind("down").most_common()]
    return section(
        "What travels",
        tag("p", "What each site has sent, by kind, since the run began."),
        key(named_kinds(up, chosen)),
        tag("div", table(["site", "", "sent", "received"], rows, 2), class_="bars"),
        more(len(names), MOST_BARS),
        tag("p", f"Sent to sites: {listed(down)}.", class_="soft") if down else "",
    )


def _stack(view: FollowedRun, name: str, chosen: Mapping[str, str], most: int) -> list[Part]:
    parts, begin = list[Part](), 0.0
    for kind, style in chosen.items():
        moved = view.tally.moved.get((name, "up", kind))
        if moved is not None and moved.bytes:
            said = f"{kinds.kind(kind)}: {byte_size(moved.bytes)}"
            parts.append(Part(begin, begin + moved.bytes / most, style, said))
            begin += moved.bytes / most
    return parts


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


def _known(view: FollowedRun) -> list[str]:
    participants = view.participants or Participants(sites=(), shares={}, left_out=())
    seen = view.presence.sites.keys() if view.presence else set()
    return sorted({site.name for site in participants.sites} | seen | view.tally.heard.keys())


def _under_way(view: FollowedRun) -> RoundTally:
    return view.tally.rounds.get(view.tally.round, RoundTally(0.0, 0.0))


def _planned(view: FollowedRun) -> int:
    return (view.run.planned if view.run else None) or 0


def _done(view: FollowedRun) -> int:
    return view.run.rounds[-1].round if view.run and view.run.rounds else 0


def _left(view: FollowedRun) -> str:
    if not view.running or view.run is None or not view.run.rounds:
        return ""
    each = fmean(line.seconds for line in view.run.rounds[-LATEST:])
    rounds = _planned(view) - _done(view)
    return f"about {duration(each * rounds)} to go" if rounds > 0 else ""
