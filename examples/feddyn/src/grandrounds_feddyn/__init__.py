"""FedDyn as a package of its own: `--import grandrounds_feddyn`, or installed, `algorithm.name=feddyn`."""

from grandrounds_feddyn.feddyn import FedDyn

__all__ = ["FedDyn"]
