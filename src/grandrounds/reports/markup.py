"""HTML from values: whatever is not `Html` is escaped, so a page can't be broken by a name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from string import Template


class Html(str):
    """Markup that is safe as it is."""


def text(value: str) -> Html:
    """Escaped; a carriage return as a reference, since a browser would drop it."""
    return value if isinstance(value, Html) else Html(escape(value).replace("\r", "&#13;"))


def tag(name: str, *children: str, **attributes: str | None) -> Html:
    """An element; `class_` and `data_h` become class and data-h, None is left away."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{given}>{''.join(map(text, children))}</{name}>")


def join(parts: Iterable[str]) -> Html:
    return Html("".join(map(text, parts)))


def table(head: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> Html:
    """The first `words` columns are text, the others numbers, set flush right."""

    def cells(kind: str, row: Sequence[str]) -> Html:
        return tag("tr", *(tag(kind, c, class_=None if i < words else "number") for i, c in enumerate(row)))

    body = tag("tbody", *(cells("td", row) for row in rows))
    return tag("div", tag("table", tag("thead", cells("th", head)), body), class_="wide")


def page(template: str, title: str, body: Html, *styles: str) -> str:
    """A template of this folder, filled; style sheets go inline so that the page needs nothing but itself."""
    folder = files("grandrounds.reports")
    style = "".join((folder / name).read_text("utf-8") for name in styles)
    return Template((folder / template).read_text("utf-8")).substitute(title=text(title), style=style, body=body)
