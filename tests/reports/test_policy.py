"""Every page says that nothing is fetched or sent, and that no script runs but its own."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256

import pytest

from grandrounds.reports.markup import Html, page


@pytest.mark.parametrize("template", ["page.html", "extraction.html"])
def test_every_page_has_a_content_security_policy(template: str) -> None:
    made = page(template, "a title", Html("<p>a body</p>"), "page.css")
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', made)
    assert policy.startswith("default-src 'none'; ")
    assert made.index("Content-Security-Policy") < made.index("<style>")
    scripts = re.findall(r"<script>(.*?)</script>", made, re.DOTALL)
    hashes = [f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts]
    assert re.findall(r"'sha256-[^']*'", policy) == hashes
    assert len(scripts) == (template == "extraction.html")
    assert "unsafe-inline" not in policy.partition("style-src")[0]
