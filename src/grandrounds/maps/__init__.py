"""When each system's idea works: its advantage over the best rival, over two properties of synthetic hospitals."""

from __future__ import annotations

from importlib import import_module

from grandrounds.errors import ConfigError, unknown
from grandrounds.maps.declaration import Map

SYSTEMS = ("feded", "fedlcc", "lazy_mil", "fedner", "fedbert")


def declared(system: str) -> Map:
    """The map of a system, from the module of its name."""
    if system not in SYSTEMS:
        raise ConfigError(unknown("system", system, SYSTEMS))
    made: Map = import_module(f"grandrounds.maps.{system}").declare()
    return made
