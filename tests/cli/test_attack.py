"""`grandrounds privacy attack`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.commands import run

CONFIG = """
seed = 1
[task]
name = "sentence_re"
[data]
format = "synthetic"
public = 0.1
options = {hospitals = 2, notes = 4, test = 16}
[partition]
scheme = "by"
by = "hospital"
[model]
encoder = "tiny"
[training]
epochs = 1
learning_rate = 1e-3
[federation]
rounds = 1
[algorithm]
name = "fedavg"
"""


def test_it_shows_both_settings_as_table_page_and_json(tmp_path: Path) -> None:
    config, out = tmp_path / "config.toml", tmp_path / "attack"
    config.write_text(CONFIG)
    protect = ("--protect", 'model.freeze=["embeddings"]')
    shown = run("privacy", "attack", config, "--out", out, *protect, "--canaries", 4).good().stdout
    for piece in ("Words", "none travel", "Canaries", "by guessing", str(out / "attack.html")):
        assert piece in shown.replace("\n", "") or piece in shown
    written = json.loads((out / "attack.json").read_text())
    plain, protected = written["attacks"]["as configured"], written["attacks"]["protected"]
    assert plain["words"]["right"] > 0.98
    assert protected["words"] is None
    assert written["settings"] == ['model.freeze=["embeddings"]']
    assert written["commit"]
    page = (out / "attack.html").read_text()
    assert f"{100 * plain['words']['right']:.1f}%" in page
    assert "none travel" in page

    again = run("privacy", "attack", config, "--out", out)
    assert (again.code, again.stderr.count("is not empty")) == (1, 1)
