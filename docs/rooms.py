"""The import graph of the package's rooms as a picture, drawn from the code: `make docs` writes imports.svg."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import grimp

PROJECT = Path(__file__).parents[1]
DOORS = ("__main__", "registry", "subprocesses", "errors")
"""Single files, which any room may use: they would only hide the rest."""
LEFT, TOP, STEP, BOX = 20, 20, 40, 28
COLOURS = ("#3c6ea8", "#b0752b", "#b6465f", "#2f8f6b", "#7a5195")

Imports = Mapping[tuple[str, str], int]
"""(importing room, imported room) -> how many pairs of modules."""


def layers() -> list[str]:
    """The rooms from the top down, in the order that import-linter holds."""
    contracts = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    order: list[str] = contracts["contracts"][0]["layers"]
    return [room for room in order if room not in DOORS]


def imports(rooms: Sequence[str]) -> Imports:
    """Which room imports from which, counted in pairs of modules."""
    graph = grimp.build_graph("grandrounds", cache_dir=None)
    found: Counter[tuple[str, str]] = Counter()
    for module in graph.modules:
        for other in graph.find_modules_directly_imported_by(module):
            pair = (_room(module), _room(other))
            if pair[0] != pair[1] and set(pair) <= set(rooms):
                found[pair] += 1
    return found


def _room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def direct(found: Imports) -> set[tuple[str, str]]:
    """The imports that no longer way over other rooms stands for (the transitive reduction)."""
    below: dict[str, set[str]] = {}
    for upper, lower in found:
        below.setdefault(upper, set()).add(lower)

    def reach(room: str) -> set[str]:
        return {end for near in below.get(room, ()) for end in {near, *reach(near)}}

    return {(upper, lower) for upper, lower in found if not any(lower in reach(other) for other in below[upper])}


def draw(rooms: Sequence[str], found: Imports) -> str:
    """Rooms in a column, an arc for each import; those of `direct` are dark."""
    place = {room: TOP + index * STEP for index, room in enumerate(rooms)}
    strong = direct(found)
    height = TOP + STEP * len(rooms) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 620 {height}" role="img" '
        'aria-label="The import graph of the rooms" font-family="Helvetica, Arial, sans-serif">',
        f'<rect width="620" height="{height}" rx="10" fill="#fff"/>',
    ]
    ordered = sorted(found, key=lambda pair: (pair in strong, pair))  # dark over pale
    for upper, lower in ordered:
        start, end = place[upper] + BOX / 2, place[lower] + BOX / 2
        bulge = 170 + (end - start) * 0.85
        colour = COLOURS[rooms.index(upper) % len(COLOURS)] if (upper, lower) in strong else "#c3ccd6"
        parts.append(
            f'<path d="M170 {start:g} C{bulge:.0f} {start:g} {bulge:.0f} {end:g} 170 {end:g}" fill="none" '
            f'stroke="{colour}" stroke-width="{2.2 if (upper, lower) in strong else 1}">'
            f"<title>{upper} imports {lower}: {found[upper, lower]}</title></path>"
        )
    for room, y in place.items():
        parts.append(
            f'<rect x="{LEFT}" y="{y}" width="150" height="{BOX}" rx="6" fill="#eef4fb" stroke="#3c6ea8"/>'
            f'<text x="{LEFT + 75}" y="{y + 19}" font-size="14" font-weight="bold" fill="#1f2933" '
            f'text-anchor="middle">{room}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def write(path: Path) -> None:
    """The picture of the code as it is."""
    rooms = layers()
    path.write_text(draw(rooms, imports(rooms)), encoding="utf-8")
