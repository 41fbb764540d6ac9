"""The coordinator's side of a federation between hosts: found it, enrol its sites, run its rounds.

<folder>/config.toml      the coordinator's config          keys/<site>.pub    as the sites sent them back
         founded.toml     who takes part and where          enrolment/<site>/  what each site gets; no secret is in it
         terms/           what all agree on                 run/               checkpoints, metrics, audit log, model
         ca.* server.*    certificates and their keys      registered.json    what sites registered the last time
"""

from __future__ import annotations

import re
import shutil
import tomllib
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import tomli_w
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from grandrounds.config.schema import Config, load_config
from grandrounds.config.validation import explained
from grandrounds.data.corpora import UNLABELLED
from grandrounds.data.labels import LabelMap
from grandrounds.data.partition import SiteRow
from grandrounds.deployment.enrolment import NAME
from grandrounds.deployment.flower.grid import OverGrid, Roster
from grandrounds.deployment.flower.superlink import EVERYWHERE, SuperLink
from grandrounds.deployment.handshake import Handshake, Onlooker
from grandrounds.deployment.keys import (
    PublicKey,
    expires,
    issue_certificate,
    make_authority,
    public_bytes,
    read_public,
)
from grandrounds.deployment.presence import PresenceFile
from grandrounds.deployment.signed import sign_enrolment
from grandrounds.deployment.terms import Terms, read_terms, write_terms
from grandrounds.errors import ConfigError, DataError, GrandRoundsError
from grandrounds.federation.contract import Registration
from grandrounds.federation.files import write_whole
from grandrounds.federation.payloads import largest_upload
from grandrounds.registry import TASKS
from grandrounds.runs.folder import RunFolder
from grandrounds.runs.loop import RoundLoop
from grandrounds.runs.results import PRESENCE, Result
from grandrounds.setup.corpora import Corpora, paths_of, unlabelled_source
from grandrounds.setup.encoders import find_encoder, resolved
from grandrounds.setup.examples import examples_by_part
from grandrounds.setup.server import ServerSetup, asked, find_device, set_up, warmed_up
from grandrounds.tasks.task import Task

NOBODY_S = "Entity"


class Founded(BaseModel):
    """founded.toml"""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    sites: list[str] = Field(min_length=1)
    hosts: list[str] = Field(min_length=1)
    """Names and addresses by which sites reach the coordinator; the certificate is for these."""
    port: int
    bind: str
    data: str
    """Where the coordinator's own corpora lie."""
    insecure: bool = False

    @property
    def names(self) -> list[str]:
        """All that the certificate is for: the coordinator itself connects from this machine."""
        own = [] if self.bind in EVERYWHERE else [self.bind]
        return list(dict.fromkeys([*self.hosts, *own, "localhost", "127.0.0.1"]))


class Consortium:
    """A founded federation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self.founded = Founded(**tomllib.loads((folder / "founded.toml").read_text(encoding="utf-8")))
        except FileNotFoundError as error:
            raise GrandRoundsError(
                f"'{folder}' holds no federation; found one with: grandrounds federation create {folder} --sites ..."
            ) from error
        except ValidationError as error:
            raise explained(error, Founded, f"{folder / 'founded.toml'}: ") from error
        except (OSError, ValueError) as error:
            raise ConfigError(f"'{folder / 'founded.toml'}' can't be read: {error}") from error
        self.config = load_config(folder / "config.toml")

    @property
    def tls(self) -> tuple[Path, Path, Path] | None:
        if self.founded.insecure:
            return None
        return self.folder / "ca.crt", self.folder / "server.crt", self.folder / "server.key"

    def keys(self) -> dict[str, PublicKey]:
        """The public keys that have come back."""
        paths = {site: self.folder / "keys" / f"{site}.pub" for site in self.founded.sites}
        return {site: read_public(path) for site, path in paths.items() if path.exists()}

    def check_certificate(self) -> None:
        if self.tls and expires(self.tls[1]) <= datetime.now(UTC):
            raise GrandRoundsError(
                f"the server's certificate has expired; renew it with: grandrounds federation renew {self.folder}"
            )


def create(folder: Path, founded: Founded, config: Config) -> Consortium:
    """Certificates, terms, and an enrolment for each site. Nothing of this run again would change what sites hold."""
    if (folder / "founded.toml").exists():
        raise GrandRoundsError(f"'{folder}' already holds a federation; choose another folder")
    _check_names(founded.sites)
    find_device(config.device)
    folder.mkdir(parents=True, exist_ok=True)
    for left in ("terms", "enrolment"):
        shutil.rmtree(folder / left, ignore_errors=True)  # of one that was interrupted
    (folder / "keys").mkdir(exist_ok=True)
    _make_terms(config, Path(founded.data), folder / "terms")
    if not founded.insecure:
        make_authority(folder, founded.name)
        issue_certificate(folder, founded.names)
    for site in founded.sites:
        _enrol(folder, founded, site)
    (folder / "config.toml").write_text(config.to_toml(), encoding="utf-8")
    write_whole(folder / "founded.toml", tomli_w.dumps(founded.model_dump()).encode())
    return Consortium(folder)


def _check_names(sites: Sequence[str]) -> None:
    for site in sites:
        if not re.match(NAME, site):
            raise ConfigError(f"'{site}' can't be a site's name: take letters, digits, '-', '_' and '.'")
    for site, count in Counter(sites).items():
        if count > 1:
            raise ConfigError(f"site '{site}' is named twice")


def _enrol(folder: Path, founded: Founded, site: str) -> None:
    enrolment = folder / "enrolment" / site
    shutil.copytree(folder / "terms", enrolment / "terms")
    about = {
        "name": site,
        "coordinator": f"{_bracketed(founded.hosts[0])}:{founded.port}",
        "insecure": founded.insecure,
    }
    (enrolment / "site.toml").write_text(tomli_w.dumps(about), encoding="utf-8")
    if not founded.insecure:
        shutil.copy(folder / "ca.crt", enrolment / "ca.crt")
        sign_enrolment(enrolment, site, folder / "ca.key")
    (enrolment / "README.txt").write_text(
        f"Site '{site}' of the federation '{founded.name}'. On the hospital's machine:\n\n"
        f"  grandrounds site init THIS_FOLDER       makes the key pair; send {site}.pub back to the coordinator\n"
        "  grandrounds site join THIS_FOLDER --data FOLDER --format FORMAT --dry-run     shows what would leave\n"
        "  grandrounds site join THIS_FOLDER --data FOLDER --format FORMAT\n",
        encoding="utf-8",
    )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _read_corpora(config: Config, base: Path) -> Corpora:
    """The coordinator's own documents."""
    if config.data.mask_overlap:
        raise ConfigError("data.mask_overlap is about all sites' training data: only a simulation has that")
    corpora, labels = Corpora(), LabelMap(config.data.map_labels)
    for part in ("public", "validation", "test"):
        given = getattr(config.data, part)
        if isinstance(given, float | int) and given:
            raise _share_of_train(part)
        if given:
            corpora.add(part, config.data.source(paths_of(given, base), labels))
    if isinstance(config.data.unlabelled, float | int) and config.data.unlabelled:
        raise _share_of_train(UNLABELLED)
    if (unlabelled := unlabelled_source(config.data, base, labels)) is not None:
        corpora.add(UNLABELLED, unlabelled)
    if "test" not in corpora.parts and not config.make_algorithm().personal:
        raise ConfigError("data.test is missing: name the corpus that the coordinator tests on")
    return corpora


def _share_of_train(part: str) -> ConfigError:
    return ConfigError(f"data.{part} is a share of the training data, which the coordinator does not have; give a file")


def _make_terms(config: Config, base: Path, folder: Path) -> Terms:
    torch.set_num_threads(config.threads)
    corpora = _read_corpora(config, base)
    examples, rows = examples_by_part(_task(config, corpora, base), corpora)
    folder.mkdir(parents=True, exist_ok=True)
    name, texts = resolved(config.model.encoder, base), examples.public_texts(rows)
    encoder = find_encoder(name, config.model, base, examples.task, texts, folder)
    spec, public = config.spec(examples.task, encoder, find_device(config.device)), examples.public_set(rows)
    splits = examples.encode(encoder).server_splits(rows, public) if rows else {}
    made = write_terms(folder, config, warmed_up(config, spec, splits, folder), asked(spec.task, splits.get("public")))
    shutil.rmtree(folder / "vocabulary", ignore_errors=True)
    (folder / "start.safetensors").unlink(missing_ok=True)
    return made


def _task(config: Config, corpora: Corpora, base: Path) -> Task:
    try:
        return config.make_task(corpora.labelled(), base)
    except DataError as error:
        if config.labels_may_differ:  # the coordinator's are nobody's; its model needs some
            options = config.task_options().model_copy(update={"labels": [NOBODY_S]})
            return TASKS[config.task["name"]].of(options, ()).at(base)
        raise ConfigError(
            "the label set is unknown: name it in task.labels, or give the coordinator a public set that shows it"
        ) from error


def server_setup(config: Config, base: Path, terms: Terms) -> ServerSetup:
    """What the coordinator holds, on the terms that sites were enrolled with."""
    torch.set_num_threads(config.threads)
    corpora = _read_corpora(config, base)
    examples, rows = examples_by_part(terms.task, corpora)
    public = examples.public_set(rows)
    splits = examples.encode(terms.encoder).server_splits(rows, public) if rows else {}
    if asked(terms.task, splits.get("public")) != terms.public:
        raise ConfigError("the coordinator's public set is not the one that sites were enrolled with; put it back")
    spec = terms.spec(config.training, find_device(config.device))
    return set_up(spec, splits, public, config.make_algorithm(), corpora.warnings)


def coordinate(
    consortium: Consortium, watcher: Onlooker, *, resume: bool = False, at_least: int | None = None
) -> Result:
    """Wait for the sites, run the experiment to its end, and give its result."""
    config, founded = consortium.config, consortium.founded
    terms = read_terms(consortium.folder / "terms")
    keys = _keys(consortium, at_least)
    find_device(config.device)
    consortium.check_certificate()
    with ExitStack() as stack:
        folder = RunFolder(consortium.folder / "run", config, resume)
        stack.callback(folder.close)
        if (finished := folder.finished) is not None:
            watcher.say(f"this run is already finished: {folder.path}")
            return finished
        setup = server_setup(config, Path(founded.data), terms)
        public = {site: public_bytes(key) for site, key in keys.items()}
        link = SuperLink(consortium.folder, founded.bind, founded.port, consortium.tls, public)
        stack.callback(link.close)
        grid = link.open_run()
        roster = Roster(grid, {key: site for site, key in public.items()})

        presence = PresenceFile(folder.path / PRESENCE)

        def idle() -> None:
            link.check()
            watcher.sites(roster)
            presence.write(roster)

        rounds = config.federation
        transport = OverGrid(
            grid,
            roster,
            folder.path / "spool",
            deadline=rounds.deadline,
            absence=rounds.absence,
            idle=idle,
            keys=keys,
            logs=folder.path / "site_logs.json",
        )
        stack.callback(transport.close)
        registered = folder.path / "registrations.json", watcher, consortium.folder / "registered.json"
        handshake = Handshake(transport, setup, terms, keys, *registered)
        sites = handshake.open(at_least or len(founded.sites), idle, rounds.absence)
        if config.make_algorithm().needs_secret:
            handshake.agree_on_secret()
        if config.federation.secure:
            handshake.introduce_peers()
        folder.claim(config)  # the sites fit: from here on there is a run to go on with
        table = [SiteRow(s.site, s.counts["notes"], s.counts["examples"], dict(s.label_counts)) for s in sites]
        left_out = sorted(set(founded.sites) - {site.site for site in sites})
        most = largest_upload(setup.expected, max(site.counts["examples"] for site in sites))
        transport.largest = most
        link.limit(grid, most)
        setup = replace(setup, expected=replace(setup.expected, max_bytes=most))
        setup = replace(setup, table=table, left_out=left_out, at_sites=_at_all(sites, config))
        hand_out = handshake.hand_out if config.shares_model else None
        result = RoundLoop(config, folder, setup, sites, transport, watcher, terms.digest, hand_out).go()
        handshake.close()
        return result


def _at_all(sites: Sequence[Registration], config: Config) -> frozenset[str]:
    """What every site can be scored on by itself."""
    parts = ("validation", "test") if config.make_algorithm().personal else ()
    return frozenset(part for part in parts if all(part in site.counts for site in sites))


def _keys(consortium: Consortium, at_least: int | None) -> dict[str, PublicKey]:
    keys, founded = consortium.keys(), consortium.founded
    missing = [site for site in founded.sites if site not in keys]
    if len(keys) < (at_least or len(founded.sites)):
        raise GrandRoundsError(
            f"the public key of {', '.join(missing)} is missing: the site makes it with 'grandrounds site init'; put "
            f"{missing[0]}.pub into '{consortium.folder / 'keys'}', or go on without: --at-least {max(len(keys), 1)}"
        )
    return keys
