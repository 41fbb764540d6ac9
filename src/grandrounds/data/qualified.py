"""Relation types with an attribute's value in them: BioRED's Association of novelty 'Novel' as Association/Novel.

So a task that knows only types learns the attribute too. A relation without the attribute keeps its type alone.
"""

from __future__ import annotations

from dataclasses import replace

from grandrounds.data.documents import Document, Relation
from grandrounds.errors import DataError

_BETWEEN = "/"


def qualified(document: Document, attribute: str | None) -> Document:
    """The document with such types; as it is without an attribute."""
    if attribute is None:
        return document
    return replace(document, relations=tuple(_qualified(relation, attribute) for relation in document.relations))


def unqualified(type: str) -> tuple[str, str]:
    """The type and the value, '' where there is none."""
    name, _, value = type.partition(_BETWEEN)
    return name, value


def _qualified(relation: Relation, attribute: str) -> Relation:
    if _BETWEEN in relation.type:
        raise DataError(
            f"relation type '{relation.type}' holds '{_BETWEEN}', which parts a type from its {attribute} "
            "(task.attribute); rename it with data.map_labels"
        )
    value = relation.attributes.get(attribute)
    return replace(relation, type=f"{relation.type}{_BETWEEN}{value}") if value else relation
