"""The corpora that a simulation reads: one to partition or one for each site, and the server's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grandrounds.config.schema import Config, SiteSection
from grandrounds.data.corpora import GENERATED, UNLABELLED, Source
from grandrounds.data.labels import LabelMap
from grandrounds.errors import ConfigError
from grandrounds.setup.corpora import Corpora, paths_of, unlabelled_source

TRAIN_OF = "site "


def part_of(site: str, part: str) -> str:
    """The name of a part that is a site's own."""
    return f"{TRAIN_OF}{site}" if part == "train" else f"{part} of {site}"


def read_corpora(config: Config, base: Path) -> Corpora:
    corpora, data = Corpora(), config.data
    labels = LabelMap(data.map_labels)
    maps = [labels]
    if config.own_corpora:
        maps += _read_sites(config, base, corpora, labels)
    elif data.train is not None or data.format in GENERATED:
        corpora.add("train", data.source(paths_of(data.train, base), labels))
    else:
        raise ConfigError("data.train is missing: name the corpus to train on, or give [sites.<name>] tables")
    for part in ("public", "validation"):
        value = getattr(data, part)
        if not isinstance(value, float | int):
            corpora.add(part, data.source(paths_of(value, base), labels))
    test = data.test or None
    if isinstance(test, float | int):
        if config.own_corpora:
            raise ConfigError("data.test is a share, and sites have corpora of their own: name a corpus to test on")
    elif test is not None or data.format in GENERATED:
        corpora.add("test", data.source(paths_of(test, base), labels))
    elif not (config.own_corpora and all(site.test or "test" in _made(site, config) for site in config.sites.values())):
        raise ConfigError("data.test is missing: name the corpus to test on, or give a share of train")
    if (unlabelled := unlabelled_source(data, base, labels)) is not None:
        corpora.add(UNLABELLED, unlabelled)
    for mapped in maps:
        mapped.check()
    return corpora


def _read_sites(config: Config, base: Path, corpora: Corpora, labels: LabelMap) -> list[LabelMap]:
    """Add each site's parts; the label maps that are sites' own."""
    maps = []
    for name, site in sorted(config.sites.items()):
        own = labels
        if site.map_labels is not None:
            own = LabelMap(site.map_labels, f"sites.{name}.map_labels")
            maps.append(own)
        options = config.data.options if site.options is None else site.options
        for part in ("train", "validation", "test"):
            paths = getattr(site, part)
            if (paths is None and part in _made(site, config)) or isinstance(paths, str | list):
                format = site.format or config.data.format
                source = Source(format, paths_of(paths, base), options, config.data.lenient, own)
                corpora.add(part_of(name, part), source, part)
    return maps


def _made(site: SiteSection, config: Config) -> Sequence[str]:
    """Parts of a site's own corpus that come without files; a test only where the site has a model of its own."""
    parts = ("train", "test") if config.make_algorithm().personal else ("train",)
    return parts if site.generated else ()
