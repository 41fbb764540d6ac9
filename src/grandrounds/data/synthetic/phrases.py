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
    t TrAP p: was started for {} | was given for {} | was used to treat {} | was ordered after {} developed
    t TrIP p: improved {} | was followed by relief of {} | led to resolution of {} | was stopped once {} resolved
    t TrWP p: worsened {} | was given but {} progressed | was of no benefit for {} | failed to control {}
    t TrCP p: caused {} | led to {} | was complicated by {} | was followed by {}
    t TrNAP p: was held for {} | was not given because of {} | was stopped when {} developed | was avoided in view of {}
    t None p: did not cause {} | was continued despite {} | was never given for {} | was possibly related to {}
    p TrAP t: was treated with {} | required {} | was managed with {} | led to the use of {}
    p TrIP t: improved with {} | resolved after {} was given | was relieved by {} | was better on {}
    p TrWP t: worsened despite {} | progressed after {} was given | was no better on {} | was not controlled with {}
    p TrCP t: was caused by {} | developed after {} was given | was a complication of {} | was due to {}
    p TrNAP t: led us to hold {} | was a reason not to give {} | developed so {} was stopped | precluded {}
    p None t: was not caused by {} | was present before {} was given | was not a reason to hold {} | was not treated with {}
    e TeRP p: showed {} | revealed {} | was positive for {} | was consistent with {}
    e TeCP p: was ordered to evaluate {} | was obtained for {} | was done to rule out {} | was sent because of {}
    e None p: showed no evidence of {} | was negative for {} | could not rule out {} | was not ordered for {}
    p TeRP e: was seen on {} | was confirmed by {} | was found on {} | was revealed by {}
    p TeCP e: prompted {} | was evaluated with {} | was the reason for {} | was to be ruled out by {}
    p None e: was not seen on {} | was not confirmed by {} | was not the reason for {} | resolved before {} was done
    p PIP p: was secondary to {} | was due to {} | was concerning for {} | led to {}
    p None p: was unrelated to {} | was not due to {} | was present as well as {} | was less of a concern than {}
""")

DIALECTS = tuple(
    map(
        _parse,
        (
            """
    t TrAP p: was begun with {} in mind | was our choice against {}
    t TrIP p: took good care of {} | brought {} to an end
    t TrWP p: only aggravated {} | did nothing against {}
    t TrCP p: brought on {} | was to blame for {}
    t TrNAP p: had to be forgone with {} in mind | was ruled out by {}
    t None p: was not to blame for {} | was kept on in spite of {}
    p TrAP t: called for {} | was met with {}
    p TrIP t: yielded to {} | came to an end under {}
    p TrWP t: was only aggravated by {} | advanced in spite of {}
    p TrCP t: was brought on by {} | was blamed on {}
    p TrNAP t: ruled out {} | spoke against {}
    p None t: was not blamed on {} | had come to an end before {}
    e TeRP p: brought to light {} | spoke for {}
    e TeCP p: was meant to settle the matter of {} | was called for by {}
    e None p: spoke against {} | left open the matter of {}
    p TeRP e: was brought to light by {} | was borne out by {}
    p TeCP e: was to be settled by {} | called for {}
    p None e: was not borne out by {} | was left open by {}
    p PIP p: was brought on by {} | spoke for {}
    p None p: spoke against {} | was not brought on by {}
    """,
            """
    t TrAP p: initiated, indication {} | on board for {}
    t TrIP p: with good effect on {} | tolerated, {} subsided
    t TrWP p: without effect on {} | tolerated, {} escalated
    t TrCP p: adverse event {} | induced {}
    t TrNAP p: contraindicated, {} | deferred, {}
    t None p: without adverse event, {} at baseline | not indicated, {} at baseline
    p TrAP t: covered with {} | addressed by {}
    p TrIP t: subsided on {} | with good effect from {}
    p TrWP t: refractory to {} | escalated on {}
    p TrCP t: induced by {} | adverse event of {}
    p TrNAP t: contraindication to {} | deferring {}
    p None t: no contraindication to {} | at baseline, tolerated {}
    e TeRP p: notable for {} | demonstrated {}
    e TeCP p: requested, query {} | pending, query {}
    e None p: unremarkable for {} | not notable for {}
    p TeRP e: demonstrated on {} | notable on {}
    p TeCP e: queried, pending {} | under evaluation by {}
    p None e: not demonstrated on {} | at baseline before {}
    p PIP p: in the setting of {} | induced by {}
    p None p: not in the setting of {} | at baseline next to {}
    """,
            """
    t TrAP p: was prescribed to address {} | was titrated against {}
    t TrIP p: ameliorated {} | achieved remission of {}
    t TrWP p: exacerbated {} | did not achieve remission of {}
    t TrCP p: precipitated {} | provoked {}
    t TrNAP p: was withheld owing to {} | was discontinued upon onset of {}
    t None p: did not provoke {} | was prescribed before the onset of {}
    p TrAP t: was an indication for {} | was addressed by prescribing {}
    p TrIP t: abated upon {} | achieved remission with {}
    p TrWP t: was exacerbated by {} | did not abate upon {}
    p TrCP t: was precipitated by {} | was provoked by {}
    p TrNAP t: was the ground for withholding {} | was a contraindication to prescribing {}
    p None t: was no indication for {} | did not follow from {}
    e TeRP p: disclosed {} | established the presence of {}
    e TeCP p: was undertaken to exclude {} | was requested on suspicion of {}
    e None p: excluded {} | did not disclose {}
    p TeRP e: was disclosed by {} | was established by {}
    p TeCP e: was the suspicion behind {} | was to be excluded by {}
    p None e: was excluded by {} | was not disclosed by {}
    p PIP p: was attributed to {} | raised suspicion of {}
    p None p: was not attributed to {} | raised no suspicion of {}
    """,
            """
    t TrAP p: was added to cover {} | was loaded for {}
    t TrIP p: knocked down {} | turned {} around
    t TrWP p: made {} worse | did not touch {}
    t TrCP p: set off {} | gave her {}
    t TrNAP p: was pulled for {} | was off the table given {}
    t None p: did not set off {} | was left alone with {}
    p TrAP t: got {} | was covered with {}
    p TrIP t: cleared on {} | was turned around by {}
    p TrWP t: got worse on {} | was not touched by {}
    p TrCP t: was set off by {} | was a side effect of {}
    p TrNAP t: took {} off the table | made us pull {}
    p None t: was not set off by {} | got better without {}
    e TeRP p: came back with {} | picked up {}
    e TeCP p: was sent off looking for {} | was repeated given {}
    e None p: came back without {} | did not pick up {}
    p TeRP e: was picked up by {} | came back on {}
    p TeCP e: got {} to look closer | was worked up with {}
    p None e: was not picked up by {} | was there before {}
    p PIP p: was set off by {} | looked like {}
    p None p: did not look like {} | was not set off by {}
    """,
            """
    t TrAP p: was instituted in response to {} | was employed for {}
    t TrIP p: afforded control of {} | alleviated {}
    t TrWP p: afforded no control of {} | intensified {}
    t TrCP p: gave rise to {} | resulted in {}
    t TrNAP p: was omitted on account of {} | was suspended on account of {}
    t None p: gave no rise to {} | was resumed regardless of {}
    p TrAP t: necessitated {} | was approached with {}
    p TrIP t: was alleviated by {} | came under control with {}
    p TrWP t: was intensified by {} | remained out of control with {}
    p TrCP t: arose from {} | resulted from {}
    p TrNAP t: dissuaded us from {} | necessitated suspending {}
    p None t: did not arise from {} | did not necessitate suspending {}
    e TeRP p: documented {} | bore evidence of {}
    e TeCP p: was arranged in response to {} | was arranged to look into {}
    e None p: bore no evidence of {} | was indeterminate for {}
    p TeRP e: was documented by {} | was evident on {}
    p TeCP e: necessitated {} | was looked into by {}
    p None e: was not evident on {} | was indeterminate on {}
    p PIP p: arose from {} | gave rise to {}
    p None p: did not arise from {} | gave no rise to {}
    """,
            """
    t TrAP p: ordered per protocol for {} | scheduled against {}
    t TrIP p: effective, {} now gone | reduced {}
    t TrWP p: ineffective, {} now up | increased {}
    t TrCP p: reaction noted, {} | triggered {}
    t TrNAP p: cancelled per protocol, {} | not cleared because of {}
    t None p: no reaction noted, {} unchanged | reviewed, {} unchanged
    p TrAP t: per protocol got {} | answered with {}
    p TrIP t: now gone with {} | reduced by {}
    p TrWP t: now up with {} | increased by {}
    p TrCP t: reaction to {} | triggered by {}
    p TrNAP t: per protocol cancelled {} | not cleared for {}
    p None t: not a reaction to {} | unchanged, cleared for {}
    e TeRP p: flagged {} | result {}
    e TeCP p: scheduled, question of {} | ordered per protocol, {}
    e None p: did not flag {} | question of {} not answered
    p TeRP e: flagged by {} | as per result of {}
    p TeCP e: in question, awaiting {} | per protocol scheduled {}
    p None e: not flagged by {} | unchanged since {}
    p PIP p: triggered by {} | points to {}
    p None p: not triggered by {} | does not point to {}
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

JOINTS = ("and ", "but ", "then ", "and later ", "but also ")
RELATIVE = ", which "
LINKS = ("; ", ", while ", ", and ", "; meanwhile ", ", whereas ", "; also ")
CONTRASTS = ("{}, rather than {},", "{}, unlike {},", "{} but not {}", "{} in place of {}")

BEFORE = {
    "problem": (
        "new",
        "mild",
        "severe",
        "known",
        "her",
        "his",
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
