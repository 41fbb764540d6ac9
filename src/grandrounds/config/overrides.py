"""`key=value` on the command line, as TOML would read it."""

from __future__ import annotations

import tomllib
from typing import Any

from grandrounds.errors import ConfigError


def parse_override(text: str) -> tuple[str, Any]:
    """'a.b=1' -> ('a.b', 1); what is not TOML is taken as a string."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"'{text}' is not an override; write it as section.key=value, such as federation.rounds=5")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()
