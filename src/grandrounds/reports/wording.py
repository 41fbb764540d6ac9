"""Figures as people read them."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan

from grandrounds.data.structural_entropy import Spread

ABSENT = "–"
H_COLUMN = "H: mean (range)"


def score(value: float | None) -> str:
    return ABSENT if value is None or isnan(value) else f"{value:.3f}"


def spread(h: Spread | None) -> str:
    return ABSENT if h is None else f"{h.mean:.3f} ({h.min:.3f}–{h.max:.3f})"


def count(number: int) -> str:
    """With thin spaces between thousands: 12 000."""
    return f"{number:,}".replace(",", "\u202f")


def brief(number: float | None) -> str:
    """In five signs or fewer: 9876, 98.8k, 9.88M."""
    if number is None:
        return ABSENT
    if number < 9999.5:
        return f"{number:.0f}"
    return f"{number / 1e3:.3g}k" if number < 999_500 else f"{number / 1e6:.3g}M"


def signed(value: float | None) -> str:
    return ABSENT if value is None or isnan(value) else f"{value:+.3f}"


def interval(low: float | None, high: float | None, tell: Callable[[float | None], str] = score) -> str:
    return ABSENT if low is None or high is None else f"{tell(low)} to {tell(high)}"


def probability(value: float | None) -> str:
    return ABSENT if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


def plural(number: int, thing: str, things: str | None = None) -> str:
    return f"{count(number)} {thing if number == 1 else things or thing + 's'}"


def megabytes(number: float | None) -> str:
    """10^6 bytes, with three digits that matter."""
    if number is None:
        return ABSENT
    mb = number / 1e6
    if mb >= 100 or mb == 0:
        return f"{mb:.0f}"
    if mb < 1e-4:
        return f"{mb:.6f}"
    return f"{mb:.1f}" if mb >= 10 else f"{mb:.2f}" if mb >= 0.1 else f"{mb:.2g}"


def byte_size(number: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f} B"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ABSENT
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def listed(names: list[str] | tuple[str, ...], most: int = 12) -> str:
    """a, b and c; of many, the first and how many more."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {count(len(names) - most)} more"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "none"


def short(name: str, most: int = 30) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
