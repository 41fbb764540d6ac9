"""How the relations of i2b2-2010 are put into words: a core that every hospital uses, and six dialects.

A row "t TrAP p" holds predicates: what is said of a treatment about a problem, "{}", when the treatment is the
subject. "p TrAP t" says the same of the problem. Rows named None speak of both and relate them in no way that
counts: negation, speculation, coincidence. Many share their words with a row that does count, so that only the order
of the words, or a small one among them, tells the rows apart.
"""

from __future__ import annotations

from collections.abc import Mapping

Phrases = Mapping[tuple[str, str, str], tuple[str, ...]]
NO_RELATION = "None"


def _parse(table: str) -> Phrases:
    rows: dict[tuple[str, str, str], tuple[str, ...]] = {}
    for line in filter(None, map(str.strip, table.split("\n"))):
        key, _, phrases = line.partition(":")
        subject, label, object = key.split()
        rows[subject, label, object] = tuple(phrase.strip() for phrase in phrases.split("|"))
    return rows


CORE = _parse("""
    t TrAP p: was started for {} | was given for {}
    t TrIP p: was effective for {} | was followed by relief of {}
    t TrWP p: was of no benefit for {} | was followed by worsening of {}
    t TrCP p: was complicated by {} | was followed by {}
    t TrNAP p: was held for {} | was not given because of {}
    t None p: was never needed for {} | was not complicated by {}
    p TrAP t: was treated with {} | was managed by {}
    p TrIP t: improved with {} | was relieved by {}
    p TrWP t: worsened with {} | was not relieved by {}
    p TrCP t: began with {} | was caused by {}
    p TrNAP t: did not allow treatment with {} | was a reason to hold {}
    p None t: was not treated with {} | was not caused by {}
    e TeRP p: was positive for {} | showed {}
    e TeCP p: was ordered for {} | was done to rule out {}
    e None p: was negative for {} | could not rule out {} | showed no evidence of {}
    p TeRP e: was seen on {} | was confirmed by {}
    p TeCP e: was to be followed on {} | was to be ruled out by {}
    p None e: was not seen on {} | was ruled out by {}
    p PIP p: was secondary to {} | was due to {}
    p None p: was unrelated to {} | was not due to {}
""")

DIALECTS = tuple(
    map(
        _parse,
        (
            """
    t TrAP p: was begun against {}
    t TrIP p: worked well against {}
    t TrWP p: did nothing against {}
    t TrCP p: brought on {}
    t TrNAP p: was decided against in {}
    t None p: was not to blame for {}
    p TrAP t: called for {}
    p TrIP t: yielded to {}
    p TrWP t: did not yield to {}
    p TrCP t: was brought on by {}
    p TrNAP t: spoke against {}
    p None t: was not brought on by {}
    e TeRP p: spoke for {}
    e TeCP p: was called for by {}
    e None p: spoke against {}
    p TeRP e: was brought to light by {}
    p TeCP e: was to be settled by {}
    p None e: was not borne out by {}
    p PIP p: was brought on by {}
    p None p: was not brought on by {}
    """,
            """
    t TrAP p: initiated, indication {}
    t TrIP p: with good effect on {}
    t TrWP p: without effect on {}
    t TrCP p: with adverse event {}
    t TrNAP p: contraindicated in {}
    t None p: not indicated in {}
    p TrAP t: covered with {}
    p TrIP t: subsided on {}
    p TrWP t: refractory to {}
    p TrCP t: induced by {}
    p TrNAP t: contraindication to {}
    p None t: no contraindication to {}
    e TeRP p: notable for {}
    e TeCP p: requested, query {}
    e None p: unremarkable for {}
    p TeRP e: demonstrated on {}
    p TeCP e: queried, pending {}
    p None e: not demonstrated on {}
    p PIP p: in the setting of {}
    p None p: not in the setting of {}
    """,
            """
    t TrAP p: was prescribed upon onset of {}
    t TrIP p: achieved remission of {}
    t TrWP p: did not achieve remission of {}
    t TrCP p: provoked {}
    t TrNAP p: was withheld upon onset of {}
    t None p: was prescribed before onset of {}
    p TrAP t: was an indication for {}
    p TrIP t: abated upon {}
    p TrWP t: did not abate upon {}
    p TrCP t: was provoked by {}
    p TrNAP t: was the setup for withholding {}
    p None t: was no indication for {}
    e TeRP p: disclosed {}
    e TeCP p: was requested on suspicion of {}
    e None p: did not disclose {}
    p TeRP e: was disclosed by {}
    p TeCP e: was the suspicion behind {}
    p None e: was not disclosed by {}
    p PIP p: was attributed to {}
    p None p: was not attributed to {}
    """,
            """
    t TrAP p: was added for {}
    t TrIP p: turned around {}
    t TrWP p: did not touch {}
    t TrCP p: set off {}
    t TrNAP p: was pulled for {}
    t None p: did not set off {}
    p TrAP t: got {}
    p TrIP t: cleared on {}
    p TrWP t: got worse on {}
    p TrCP t: was set off by {}
    p TrNAP t: made us pull {}
    p None t: cleared without {}
    e TeRP p: came back with {}
    e TeCP p: was sent off for {}
    e None p: came back without {}
    p TeRP e: was picked up by {}
    p TeCP e: got worked up with {}
    p None e: was not picked up by {}
    p PIP p: was set off by {}
    p None p: was not set off by {}
    """,
            """
    t TrAP p: was instituted on account of {}
    t TrIP p: afforded control of {}
    t TrWP p: afforded no control of {}
    t TrCP p: gave rise to {}
    t TrNAP p: was omitted on account of {}
    t None p: gave no rise to {}
    p TrAP t: necessitated {}
    p TrIP t: was alleviated by {}
    p TrWP t: was intensified by {}
    p TrCP t: arose from {}
    p TrNAP t: necessitated suspending {}
    p None t: did not arise from {}
    e TeRP p: bore evidence of {}
    e TeCP p: was arranged on account of {}
    e None p: bore no evidence of {}
    p TeRP e: was evident on {}
    p TeCP e: was looked into by {}
    p None e: was not evident on {}
    p PIP p: arose from {}
    p None p: did not arise from {}
    """,
            """
    t TrAP p: ordered per protocol for {}
    t TrIP p: reduced {}
    t TrWP p: increased {}
    t TrCP p: triggered {}
    t TrNAP p: cancelled per protocol for {}
    t None p: reviewed, no change for {}
    p TrAP t: answered with {}
    p TrIP t: reduced by {}
    p TrWP t: increased by {}
    p TrCP t: triggered by {}
    p TrNAP t: not cleared for {}
    p None t: cleared for {}
    e TeRP p: flagged {}
    e TeCP p: scheduled, question of {}
    e None p: did not flag {}
    p TeRP e: flagged by {}
    p TeCP e: in question, awaiting {}
    p None e: not flagged by {}
    p PIP p: triggered by {}
    p None p: not triggered by {}
    """,
        ),
    )
)

# Whole clauses that put the second entity first.
FRAMES = _parse("""
    t TrAP p: for {p}, {t} was started | with {p} developing, {t} was given
    t TrIP p: after {t} was given, {p} resolved | on {t}, {p} improved
    t TrWP p: despite {t}, {p} worsened | even on {t}, {p} progressed
    t TrCP p: after {t} was given, {p} developed | from {t}, {p} developed
    t TrNAP p: because of {p}, {t} was held | with {p} present, {t} was stopped
    t None p: despite {p}, {t} was continued | before {t} was given, {p} resolved
    e TeRP p: on {e}, {p} was seen | by {e}, {p} was confirmed
    e TeCP p: for {p}, {e} was ordered | to rule out {p}, {e} was done
    e None p: on {e}, {p} was not seen | before {e} was done, {p} resolved
""")

# Two sentences that carry a relation together.
ACROSS = _parse("""
    t TrAP p: {t} was started {when}. The indication was {p} | There was {p}. {t} was given {when} as treatment
    t TrIP p: {t} was given {when}. By the next day there was marked improvement of {p}
    t TrWP p: {t} was given {when}. There was no response and {p} progressed
    t TrCP p: {t} was given {when}. The result was {p}, felt to be an adverse reaction
    t TrNAP p: {t} was planned {when}. It was then called off because of {p}
    e TeRP p: {e} was done {when}. The finding was {p}
    e TeCP p: There was a question of {p}. {e} was sent {when} to look into it
    p PIP p: There was {p} {when}. The underlying cause was {p2}
""")

WHEN = (
    *(
        "overnight",
        "on admission",
        "on arrival",
        "this morning",
        "last week",
        "on day 2",
        "on day 3",
        "on day 5",
    ),
    *(
        "in the ED",
        "in the ICU",
        "on the floor",
        "at clinic",
        "at the outside hospital",
        "yesterday",
        "in March",
    ),
    *(
        "after transfer",
        "before discharge",
        "per the team",
        "on Monday",
        "on Friday",
        "in the evening",
        "as planned",
    ),
)

OPENERS = (
    *(
        "of note",
        "in addition",
        "per report",
        "at that time",
        "subsequently",
        "on review",
        "per family",
        "in brief",
    ),
    *("over the weekend", "on rounds", "as before", "by history", "later", "initially", "in the interim"),
)

# "{p}" is a problem that has no part in what follows.
BACKGROUNDS = (
    "in this patient with {p}",
    "with a history of {p}",
    "in the context of known {p}",
    "besides {p}",
)

JOINTS = ("and ", "but ", "and later ")
RELATIVE = ", which "
LINKS = ("; ", ", while ", "; also ")
CONTRASTS = ("{}, rather than {},", "{}, unlike {},", "{} but not {}", "{} in place of {}")

BEFORE = {
    "problem": (
        "new",
        "mild",
        "severe",
        "known",
        "ongoing",
        "active",
        "an episode of",
        "recurrent",
        "intermittent",
        "some",
    ),
    "drug": ("IV", "home", "high-dose", "a course of", "low-dose", "empiric", "a trial of", "repeat", "more"),
    "procedure": ("elective", "urgent", "repeat", "inpatient", "bedside", "early", "a second"),
    "test": ("repeat", "a", "bedside", "urgent", "outpatient", "follow-up", "initial", "another"),
}
AFTER = {
    "problem": ("of unclear duration", "since May", "for two days", "at night", "at rest", "with exertion"),
    "procedure": ("at another hospital", "under sedation", "x 2", "from Tuesday"),
    "drug": ("25 mg daily", "40 mg", "twice daily", "x 5 days", "500 mg", "for a week", "at full dose"),
    "test": ("at admission", "with contrast", "from Tuesday", "at the bedside", "x 2", "for comparison"),
}

INTRODUCTIONS = (
    "patient is a {age} year old {sex} with a history of {p} who presents with {p2}",
    "patient is a {age} year old {sex} with {p}",
    "{age} year old {sex} with {p} and {p2}",
    "{age} year old {sex} complains of {p}, status post {t}",
    "patient is a {age} year old {sex} seen for follow-up, status post {t}",
)

FILLERS = (
    *(
        "vital signs were stable",
        "patient was seen with family at the bedside",
        "plan was discussed with the team",
    ),
    *("diet was advanced as tolerated", "patient was ambulating without assistance", "{p} was stable"),
    *("{t} was continued", "{e} was reviewed with the patient", "patient will return to clinic in two weeks"),
    *(
        "no fever overnight",
        "{e} was pending at discharge",
        "patient denied {p}",
        "home medications include {t}",
    ),
)

ORDINALS = ("first", "second", "third")
PROBLEM_LIST = "active problems {when} are {p}, {p2} and {p3}"
PLANS = ("plan is {t} for the {nth} problem", "{t} was started for the {nth} of these")
