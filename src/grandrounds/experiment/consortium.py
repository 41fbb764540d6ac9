"""The coordinator's side of a federation between hosts: found it, enrol its sites, run its rounds.

<folder>/config.toml      the coordinator's config          keys/<site>.pub    as the sites sent them back
         founded.toml     who takes part and where          enrolment/<site>/  what each site gets; no secret is in it
         terms/           what all agree on                 run/               checkpoints, metrics, audit log, model
         ca.* server.*    certificates and their keys
"""

from __future__ import annotations

import json
import re
import shutil
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import tomli_w
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from grandrounds import __version__
from grandrounds.data.corpora import Source, read_source
from grandrounds.data.documents import Document
from grandrounds.data.partition import SiteRow
from grandrounds.errors import ConfigError, DataError, GrandRoundsError
from grandrounds.experiment.config import Config, explained, load_config
from grandrounds.experiment.folder import RunFolder
from grandrounds.experiment.ground import (
    Ground,
    expected_of,
    find_device,
    find_encoder,
    manifest_of,
    paths_of,
    resolved,
    server_splits,
    warmed_up,
)
from grandrounds.experiment.loop import Conduct, Watcher
from grandrounds.experiment.terms import Terms, read_terms, write_terms
from grandrounds.federation.contract import Registration
from grandrounds.federation.coordinator import check_registrations
from grandrounds.federation.files import write_whole
from grandrounds.federation.flower.grid import Note, OverGrid, Roster
from grandrounds.federation.flower.superlink import EVERYWHERE, SuperLink
from grandrounds.federation.keys import (
    PublicKey,
    expires,
    issue_certificate,
    make_authority,
    public_bytes,
    public_text,
    read_public,
)
from grandrounds.federation.learner import Practice, Split
from grandrounds.federation.payloads import PublicSet
from grandrounds.tasks import TASKS
from grandrounds.tasks.task import Task

SPLITS = ("public", "validation", "test")
MOST = 10**12
"""Of anything that a site may count."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


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
        if not NAME.fullmatch(site):
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
    (enrolment / "README.txt").write_text(
        f"Site '{site}' of the federation '{founded.name}'. On the hospital's machine:\n\n"
        f"  grandrounds site init THIS_FOLDER       makes the key pair; send {site}.pub back to the coordinator\n"
        "  grandrounds site join THIS_FOLDER --data FOLDER --format FORMAT --dry-run     shows what would leave\n"
        "  grandrounds site join THIS_FOLDER --data FOLDER --format FORMAT\n",
        encoding="utf-8",
    )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class _Corpora:
    """The coordinator's own documents, and what the task sees in them."""

    def __init__(self, config: Config, base: Path) -> None:
        self.notes: Counter[str] = Counter()
        self.documents: list[Document] = []
        parts: dict[str, range] = {}
        for part in SPLITS:
            given = getattr(config.data, part)
            if isinstance(given, float | int) and given:
                raise ConfigError(
                    f"data.{part} is a share of the training data, which the coordinator does not have; give a file"
                )
            if given:
                documents = read_source(
                    Source(config.data.format, paths_of(given, base), config.data.options), part, self.notes
                )
                parts[part] = range(len(self.documents), len(self.documents) + len(documents))
                self.documents += documents
        if "test" not in parts:
            raise ConfigError("data.test is missing: name the corpus that the coordinator tests on")
        self._parts = parts

    def for_labels(self) -> list[Document]:
        return [self.documents[i] for part, members in self._parts.items() if part != "test" for i in members]

    def rows(self, task: Task) -> tuple[Sequence[Any], dict[str, list[int]]]:
        """The examples, and which of them each part has."""
        examples, left = task.examples(self.documents)
        self.notes += Counter(left)
        rows = {
            part: [row for row, example in enumerate(examples) if example.document in members]
            for part, members in self._parts.items()
        }
        for part, chosen in rows.items():
            if not chosen:
                raise DataError(f"the {part} corpus holds no example of {task.name}")
        return examples, rows


def _make_terms(config: Config, base: Path, folder: Path) -> Terms:
    torch.set_num_threads(config.threads)
    corpora = _Corpora(config, base)
    task = _task(config, corpora)
    examples, rows = corpora.rows(task)
    public = _public(task, examples, rows)
    folder.mkdir(parents=True, exist_ok=True)
    texts = [task.text(examples[row]) for row in rows.get("public", [])]
    encoder = find_encoder(resolved(config.model.encoder, base), task, texts, folder)
    practice = Practice(task, encoder, config.training, config.seed, find_device(config.device))
    splits = server_splits(task.features(examples, encoder), rows, public)
    made = write_terms(
        folder,
        config,
        warmed_up(config, practice, splits, folder),
        (0, "") if public is None else (len(public.examples), public.digest),
    )
    shutil.rmtree(folder / "vocabulary", ignore_errors=True)
    (folder / "start.safetensors").unlink(missing_ok=True)
    return made


def _task(config: Config, corpora: _Corpora) -> Task:
    try:
        return TASKS[config.task["name"]].of(config.task_options(), corpora.for_labels())
    except DataError as error:
        raise ConfigError(
            "the label set is unknown: name it in task.labels, or give the coordinator a public set that shows it"
        ) from error


def _public(task: Task, examples: Sequence[Any], rows: Mapping[str, Sequence[int]]) -> PublicSet | None:
    return PublicSet([task.question(examples[row]) for row in rows["public"]]) if "public" in rows else None


def server_ground(config: Config, base: Path, terms: Terms) -> Ground:
    """What the coordinator holds, on the terms that sites were enrolled with."""
    torch.set_num_threads(config.threads)
    corpora = _Corpora(config, base)
    examples, rows = corpora.rows(terms.task)
    public = _public(terms.task, examples, rows)
    if (0 if public is None else len(public.examples), "" if public is None else public.digest) != terms.public:
        raise ConfigError("the coordinator's public set is not the one that sites were enrolled with; put it back")
    practice = terms.practice(config.training, find_device(config.device))
    splits: Mapping[str, Split] = server_splits(terms.task.features(examples, terms.encoder), rows, public)
    model = practice.initial_model()
    manifest = manifest_of(model, config.make_algorithm())
    expected = expected_of(model, manifest, terms.task, terms.public)
    return Ground(practice, model, splits, public, expected, (), (), dict(corpora.notes))


class Onlooker(Watcher, Protocol):
    """Who watches sites come and go, too."""

    def sites(self, roster: Roster) -> None: ...


def coordinate(
    consortium: Consortium, watcher: Onlooker, *, resume: bool = False, at_least: int | None = None
) -> dict[str, Any]:
    """Wait for the sites, run the experiment to its end, and give its result."""
    config, founded = consortium.config, consortium.founded
    terms = read_terms(consortium.folder / "terms")
    keys = _keys(consortium, at_least)
    consortium.check_certificate()
    with ExitStack() as stack:
        folder = RunFolder(consortium.folder / "run", config, resume)
        stack.callback(folder.close)
        if folder.result is not None and folder.result["rounds_planned"] >= config.federation.rounds:
            watcher.say(f"this run is already finished: {folder.path}")
            return folder.result
        ground = server_ground(config, Path(founded.data), terms)
        link = SuperLink(consortium.folder, founded.bind, founded.port, consortium.tls)
        stack.callback(link.close)
        grid = link.open_run([public_bytes(key) for key in keys.values()])
        roster = Roster(grid, {public_bytes(key): site for site, key in keys.items()})

        def idle() -> None:
            link.check()
            watcher.sites(roster)

        rounds = config.federation
        transport = OverGrid(
            grid, roster, folder.path / "spool", deadline=rounds.deadline, absence=rounds.absence, idle=idle
        )
        stack.callback(transport.close)
        meeting = _Meeting(transport, ground, terms, keys, folder.path / "registrations.json", watcher)
        sites = meeting.open(at_least or len(founded.sites), idle, rounds.absence)
        if config.make_algorithm().needs_secret:
            meeting.agree_on_secret()
        folder.claim(config)  # the sites fit: from here on there is a run to go on with
        table = [SiteRow(site.site, site.counts["notes"], site.counts["examples"], {}) for site in sites]
        left_out = sorted(set(founded.sites) - {site.site for site in sites})
        ground = replace(ground, table=table, left_out=left_out)
        result = Conduct(config, folder, ground, sites, transport, watcher, terms.digest).go()
        meeting.close()
        return result


def _keys(consortium: Consortium, at_least: int | None) -> dict[str, PublicKey]:
    keys, founded = consortium.keys(), consortium.founded
    missing = [site for site in founded.sites if site not in keys]
    if len(keys) < (at_least or len(founded.sites)):
        raise GrandRoundsError(
            f"the public key of {', '.join(missing)} is missing: the site makes it with 'grandrounds site init'; put "
            f"{missing[0]}.pub into '{consortium.folder / 'keys'}', or go on without: --at-least {max(len(keys), 1)}"
        )
    return keys


class _Meeting:
    """Before round 1 everyone says who they are; after the last, goodbye."""

    def __init__(
        self,
        transport: OverGrid,
        ground: Ground,
        terms: Terms,
        keys: Mapping[str, PublicKey],
        saved: Path,
        watcher: Onlooker,
    ) -> None:
        self._transport, self._ground, self._terms, self._keys = transport, ground, terms, keys
        self._saved, self._watcher = saved, watcher
        self._holding: dict[str, bool] = {}
        """Who holds the sites' secret already."""

    def open(self, wanted: int, idle: Callable[[], None], patience: float) -> list[Registration]:
        """Who takes part: all that are here at the first start, the same ones when the run goes on."""
        known = self._read()
        self._watcher.say(f"waiting for {len(known) or wanted} sites")
        until = time.monotonic() + patience
        while len(here := self._online(known)) < (len(known) or wanted):
            if known and here and time.monotonic() > until:
                self._watcher.say(f"going on without {', '.join(sorted(set(known) - set(here)))} for now")
                break
            idle()
            time.sleep(0.2)
        met = self._greet(here, known, 1 if known else wanted)
        registrations = known or {site.site: site for site in met}
        write_whole(self._saved, json.dumps([_plain(site) for site in registrations.values()], indent=1).encode())
        self._transport.registered = {name: site.digest for name, site in registrations.items()}
        return [registrations[name] for name in sorted(registrations)]

    def agree_on_secret(self) -> None:
        """One site seals the secret to those that lack it; we carry what we can't open."""
        lacking = sorted(name for name, held in self._holding.items() if not held)
        if not lacking:
            return
        maker = min((name for name, held in self._holding.items() if held), default=lacking[0])
        keys = {name: public_text(self._keys[name]) for name in self._holding}
        (made,) = self._transport.converse([(maker, {"what": "keys", "keys": keys}, ())])
        sealed = made.note.get("sealed") or {}
        notes: list[Note] = [
            (name, {"what": "secret", "sealed": sealed[name], "from": maker, "keys": keys}, ())
            for name in lacking
            if name in sealed and name != maker
        ]
        held = {reply.site for reply in self._transport.converse(notes) if reply.note.get("held") is True}
        if missing := sorted(set(lacking) - held - ({maker} if sealed else set())):
            raise GrandRoundsError(f"the sites' secret did not reach {', '.join(missing)}; their own logs say why")

    def close(self) -> None:
        """Goodbye; what sites say of their logs is kept, so that a log that is cut later is found out."""
        here = self._online({})
        heads = {
            reply.site: reply.note.get("log")
            for reply in self._transport.converse([(name, {"what": "bye"}, ()) for name in here], patience=10)
        }
        write_whole(self._saved.with_name("site_logs.json"), json.dumps(heads, indent=1).encode())

    def _online(self, known: Mapping[str, Registration]) -> list[str]:
        here = [name for name, presence in self._transport.roster.look().items() if presence.online]
        return [name for name in here if not known or name in known]

    def _greet(self, names: Sequence[str], known: Mapping[str, Registration], wanted: int) -> list[Registration]:
        """Those that fit; where enough do, the others are refused and the rest goes on."""
        met, problems = list[Registration](), list[str]()
        for reply in self._transport.converse([(name, {"what": "hello"}, ()) for name in sorted(names)]):
            try:
                if reply.lost:
                    raise ConfigError(f"site '{reply.site}' did not say who it is ({reply.lost})")
                site = self._welcome(reply.site, reply.note.get("hello"))
                if known and known[reply.site] != site:
                    raise ConfigError(f"site '{reply.site}' has other data than when the run began; start a new run")
                met.append(site)
            except ConfigError as problem:
                problems.append(str(problem))
                self._refuse(reply.site, str(problem))
                self._holding.pop(reply.site, None)
        if problems and len(met) < max(wanted, 1):
            raise ConfigError(problems[0])
        for sentence in problems:
            self._watcher.say(sentence)
        return met

    def _welcome(self, name: str, hello: Any) -> Registration:
        """What the site says of itself; ConfigError where it does not fit."""
        try:
            said = dict(hello)
            counts = {str(what): int(count) for what, count in said["counts"].items()}
            manifest = {str(what): tuple(map(int, shape)) for what, shape in said["manifest"].items()}
            site = Registration(str(said["site"]), counts, [str(label) for label in said["labels"]], manifest)
            theirs = {what: str(said[what]) for what in ("version", "terms", "tokenizer")}
            own_encoder, held = bool(said["own_encoder"]), [str(digest) for digest in said["public"]]
            self._holding[name] = bool(said["secret"])
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ConfigError(f"site '{name}' did not say who it is in a way that can be read") from error
        ours = {"version": __version__, "terms": self._terms.digest, "tokenizer": self._terms.tokenizer}
        spoken = {
            "version": "site '{name}' runs grandrounds {theirs}, the coordinator {ours}; install the same version",
            "tokenizer": "site '{name}' has the tokenizer {theirs}, the coordinator {ours}; enrol it again",
            "terms": "site '{name}' was enrolled on other terms ({theirs:.16}) than the coordinator's ({ours:.16}); "
            "give it its enrolment again",
        }
        for what, sentence in spoken.items():
            if theirs[what] != ours[what] and not (what == "tokenizer" and own_encoder):
                raise ConfigError(sentence.format(name=name, theirs=theirs[what], ours=ours[what]))
        if site.site != name:
            raise ConfigError(f"site '{name}' calls itself '{site.site}': it has another site's enrolment")
        if not all(1 <= count < MOST for count in counts.values()) or not {"examples", "notes"} <= counts.keys():
            raise ConfigError(f"site '{name}' registered counts that can't be")
        check_registrations([site], self._terms.task.labels, self._ground.expected.manifest)
        _, public = self._terms.public
        if held and public and public not in held:
            self._watcher.say(
                f"site '{name}' holds version {held[-1]} of the public set, ours is {public}: it gets ours"
            )
        return replace(site, manifest=self._ground.expected.manifest)

    def _refuse(self, name: str, why: str) -> None:
        for _ in self._transport.converse([(name, {"what": "refused", "why": why}, ())], patience=10):
            pass

    def _read(self) -> dict[str, Registration]:
        if not self._saved.exists():
            return {}
        manifest = self._ground.expected.manifest
        try:
            held = json.loads(self._saved.read_text(encoding="utf-8"))
            known = {one["site"]: Registration(one["site"], one["counts"], one["labels"], manifest) for one in held}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise GrandRoundsError(f"'{self._saved}' was edited or torn; the run can't go on without it") from error
        if gone := sorted(known.keys() - self._keys.keys()):
            self._watcher.say(f"{', '.join(gone)} registered, but the key is gone: the run goes on without")
        return {name: site for name, site in known.items() if name in self._keys}


def _plain(site: Registration) -> dict[str, Any]:
    return {"site": site.site, "counts": dict(site.counts), "labels": list(site.labels)}
