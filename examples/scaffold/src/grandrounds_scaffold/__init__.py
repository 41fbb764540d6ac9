"""SCAFFOLD as a package of its own: `--import grandrounds_scaffold`, or installed, `algorithm.name=scaffold`."""

from grandrounds_scaffold.scaffold import Scaffold

__all__ = ["Scaffold"]
