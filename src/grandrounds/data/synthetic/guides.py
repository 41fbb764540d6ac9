"""Annotation guides: what a hospital marks in its notes, under which name, and where a mention ends.

By the common guide a mention is a name alone, and its type is problem, treatment or test. A guide of a hospital's own
differs for some kinds of mentions, drugs and procedures being two. They have names that no other hospital uses; in turn
hospitals take the words before a name ("severe"), or those behind it too ("for two days"), as part of the mention; and
the last kind to differ is not marked at all. The text is the same whatever the guide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from grandrounds.data.documents import Document, Mention, entities_by_concept
from grandrounds.data.synthetic.phrases import AFTER, BEFORE
from grandrounds.data.synthetic.vocabulary import CONCEPTS

KINDS = tuple(sorted(BEFORE))
"""Drugs, problems, procedures and tests."""


@dataclass(frozen=True)
class Guide:
    """What differs from the common guide."""

    names: Mapping[str, str | None]
    """Kind -> how the hospital calls it, or None where it marks none; kinds that are not here are as everywhere."""
    before: bool = False
    """Whether the words before a name are part of the mention, of the kinds that differ."""
    after: bool = False

    def annotate(self, note: Document) -> Document:
        """The note by this guide; its relations are those between what is marked."""
        if not self.names:
            return note
        kept = [(i, mention) for i, m in enumerate(note.mentions) if (mention := self._marked(note.text, m))]
        place = {i: new for new, (i, _) in enumerate(kept)}
        mentions = tuple(mention for _, mention in kept)
        entities = entities_by_concept(mentions)
        known = {entity.id for entity in entities}
        relations = tuple(
            replace(r, mentions=r.mentions and (place[r.mentions[0]], place[r.mentions[1]]))
            for r in note.relations
            if {r.head, r.tail} <= known and set(r.mentions or ()) <= place.keys()
        )
        return replace(note, mentions=mentions, entities=entities, relations=relations)

    def _marked(self, text: str, mention: Mention) -> Mention | None:
        assert mention.concept is not None
        kind = CONCEPTS[mention.concept].kind
        if kind not in self.names:
            return mention
        if (name := self.names[kind]) is None:
            return None
        before, after = f" {text[: mention.start]}".lower(), text[mention.end :]
        wider = (
            [len(words) + 1 for words in BEFORE[kind] if before.endswith(f" {words.lower()} ")] if self.before else []
        )
        longer = [len(words) + 1 for words in AFTER[kind] if re.match(rf" {words}\b", after)] if self.after else []
        start, end = mention.start - max(wider, default=0), mention.end + max(longer, default=0)
        return replace(mention, type=name, start=start, end=end)


def own_name(kind: str, hospital: str) -> str:
    return f"{kind}-{hospital}"


def guide(hospital: str, number: int, disagreement: float, seed: int) -> Guide:
    """The guide of the hospital of that number, of which this share is its own; what is its own stays so as the share
    grows."""
    order = sorted(KINDS)
    Random(f"guide/{seed}/{hospital}").shuffle(order)
    own = order[: round(disagreement * len(order))]
    names = {kind: None if kind == order[-1] else own_name(kind, hospital) for kind in own}
    return Guide(names, before=number % 3 != 1, after=number % 3 == 0)
