"""HTML from values: whatever is not `Html` is escaped, so a page can't be broken by a name."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
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
    source = (folder / template).read_text("utf-8")
    return Template(source).substitute(title=text(title), style=style, body=body, policy=_policy(source))


def _policy(template: str) -> str:
    """Nothing is fetched or sent, and no script runs but the template's own: pages hold words of sites and corpora."""
    scripts = re.findall(r"<script>(.*?)</script>", template.replace("$$", "$"), re.DOTALL)
    hashes = " ".join(f"'sha256-{b64encode(sha256(one.encode()).digest()).decode()}'" for one in scripts)
    scripts_allowed = [f"script-src {hashes}"] if hashes else []
    rules = ["default-src 'none'", *scripts_allowed, "style-src 'unsafe-inline'"]
    return "; ".join([*rules, "img-src data:", "base-uri 'none'", "form-action 'none'"])
