"""What a browser makes of a page: its elements, its words, and what it would fetch."""

from __future__ import annotations

import re
from html.parser import HTMLParser


class Balance(HTMLParser):
    """Every element closes, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def elements(page: str) -> list[str]:
    parser = Balance()
    parser.feed(page)
    parser.close()
    assert not parser.open
    return parser.seen


def outside_links(page: str) -> list[str]:
    return re.findall(r"https?://[^\s\"'<]+", re.sub(r'xmlns(:\w+)?="[^"]*"', "", page))


def words(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)).split())
