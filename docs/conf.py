"""How Sphinx builds the documentation: `make docs`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import generate  # noqa: E402
import rooms  # noqa: E402

import grandrounds  # noqa: E402

project, author, copyright = "Grand Rounds", "the Grand Rounds contributors", "the Grand Rounds contributors"
version = release = grandrounds.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "results/*.json"]
html_theme = "furo"
html_title = "Grand Rounds"
html_theme_options = {"source_edit_link": "", "source_view_link": ""}
smartquotes = False  # "--data" is two hyphens
default_role = "code"
suppress_warnings = ["ref.python"]  # the builtin `type` in an annotation is not one of the fields of that name
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_class_signature = "separated"
autodoc_default_options = {
    "members": True,
    "undoc-members": True,  # fields whose name says all
    "exclude-members": "__new__, __init__, pack, unpack, model_config, kind, to_dict, key, rank, better",
}


def setup(app: Any) -> None:
    """Generate pages and a picture before anything is read, and make the ledger's HTML anchors Sphinx's own."""
    app.connect("builder-inited", lambda app: generate.write(HERE / "reference"))
    app.connect("builder-inited", lambda app: rooms.write(HERE / "explanation" / "imports.svg"))
    app.connect("source-read", lambda app, name, text: text.__setitem__(0, anchored(text[0])))


def anchored(text: str) -> str:
    return re.sub(r'<a id="([^"]+)"></a>', r"[]{#\1}", text)
