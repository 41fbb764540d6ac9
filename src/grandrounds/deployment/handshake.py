"""Before round 1 a coordinator and its sites say who they are; after the last they part.

Where one does not fit, both hear the same sentence.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from grandrounds import __version__
from grandrounds.deployment.flower.grid import Letter, OverGrid, Received, Roster
from grandrounds.deployment.keys import PublicKey, public_text
from grandrounds.deployment.protocol import (
    Bye,
    Done,
    FinalModel,
    Hello,
    Introduction,
    Keys,
    PeerKeys,
    Refused,
    Secret,
    Secrets,
)
from grandrounds.deployment.terms import Terms
from grandrounds.errors import ConfigError, GrandRoundsError, foreign
from grandrounds.federation.audit import Audit, log_payload
from grandrounds.federation.contract import Registration
from grandrounds.federation.coordinator import check_registrations
from grandrounds.federation.files import write_whole
from grandrounds.federation.payloads import Packed
from grandrounds.runs.loop import Watcher
from grandrounds.setup.server import ServerSetup

MOST = 10**12
"""Of anything that a site may count."""
JUMP = 10
"""Times what a site registered the last time, beyond which somebody has to look."""


class Onlooker(Watcher, Protocol):
    """Who watches sites come and go, too."""

    def sites(self, roster: Roster) -> None: ...


class Handshake:
    """Before round 1 everyone says who they are; after the last, goodbye."""

    def __init__(
        self,
        transport: OverGrid,
        setup: ServerSetup,
        terms: Terms,
        keys: Mapping[str, PublicKey],
        saved: Path,
        watcher: Onlooker,
        last: Path | None = None,
    ) -> None:
        """`last` remembers from run to run what sites registered."""
        self._last = last
        self._transport, self._setup, self._terms, self._keys = transport, setup, terms, keys
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
        if self._last is not None:
            write_whole(
                self._last, json.dumps({n: dict(s.counts) for n, s in registrations.items()}, indent=1).encode()
            )
        self._transport.registered = {name: site.digest for name, site in registrations.items()}
        return [registrations[name] for name in sorted(registrations)]

    def agree_on_secret(self) -> None:
        """One site seals the secret to those that lack it; we carry what we can't open."""
        lacking = sorted(name for name, held in self._holding.items() if not held)
        if not lacking:
            return
        maker = min((name for name, held in self._holding.items() if held), default=lacking[0])
        keys = {name: public_text(self._keys[name]) for name in self._holding}
        (made,) = self._transport.converse([Letter(maker, Keys(keys=keys))])
        sealed = made.message.sealed if isinstance(made.message, Secrets) else {}
        letters = [
            Letter(name, Secret(sealed=sealed[name], sender=maker, keys=keys))
            for name in lacking
            if name in sealed and name != maker
        ]
        held = {reply.site for reply in self._transport.converse(letters) if isinstance(reply.message, Done)}
        if missing := sorted(set(lacking) - held - ({maker} if sealed else set())):
            raise GrandRoundsError(f"the sites' secret did not reach {', '.join(missing)}; their own logs say why")

    def hand_out(self, weights: Packed, round: int, audit: Audit) -> None:
        """Send the selected weights to the sites that are here; who did not take them is said."""
        here = self._online({})
        taking = [name for name in sorted(self._transport.registered) if name in here]
        data = weights.to_bytes()
        letters = [Letter(name, FinalModel(round=round, digest=weights.digest), [data]) for name in taking]
        for name in taking:
            log_payload(audit, {"round": round, "exchange": 0, "site": name}, "down", weights)
        for reply in self._transport.converse(letters):
            if not isinstance(reply.message, Done):
                why = reply.lost or getattr(reply.message, "lost", None) or "it answered something else"
                self._watcher.say(f"site '{reply.site}' did not take the model ({foreign(why)})")
        if away := sorted(set(self._transport.registered) - set(here)):
            self._watcher.say(f"{', '.join(away)} did not get the model: not connected")

    def introduce_peers(self) -> None:
        """Sites that sum in secret must know each other's keys: they sign what we carry between them."""
        keys = {name: public_text(key) for name, key in self._keys.items()}
        for reply in self._transport.converse([Letter(name, PeerKeys(keys=keys)) for name in sorted(self._holding)]):
            if not isinstance(reply.message, Done):
                self._watcher.say(f"site '{reply.site}' did not take the other sites' keys; its own log says why")

    def close(self) -> None:
        """Goodbye; what sites say of their logs is kept, so that a log that is cut later is found out."""
        here = self._online({})
        for _ in self._transport.converse([Letter(name, Bye()) for name in here], patience=10):
            pass
        self._transport.flush()

    def _online(self, known: Mapping[str, Registration]) -> list[str]:
        here = [name for name, presence in self._transport.roster.look().items() if presence.online]
        return [name for name in here if not known or name in known]

    def _greet(self, names: Sequence[str], known: Mapping[str, Registration], wanted: int) -> list[Registration]:
        """Those that fit; where enough do, the others are refused and the rest goes on."""
        met, problems = list[Registration](), list[str]()
        for reply in self._transport.converse([Letter(name, self._hello(name)) for name in sorted(names)]):
            try:
                site = self._welcome(reply)
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

    def _hello(self, name: str) -> Hello:
        """With what it signed last: a site whose log has not got that any more says so."""
        noted = self._transport.heads.get(name)
        return Hello() if noted is None else Hello(log=noted.head, signature=noted.signature)

    def _welcome(self, reply: Received) -> Registration:
        """What the site says of itself; ConfigError where it does not fit."""
        name, said = reply.site, reply.message
        if not isinstance(said, Introduction):
            why = reply.lost or getattr(said, "lost", None) or "it answered something else"
            raise ConfigError(f"site '{name}' did not say who it is ({foreign(why)})")
        counts = said.counts
        site = Registration(said.site, counts, said.labels, said.manifest, said.label_counts)
        self._holding[name] = said.secret
        ours = {"version": __version__, "terms": self._terms.digest, "tokenizer": self._terms.tokenizer}
        spoken = {
            "version": "site '{name}' runs grandrounds {theirs}, the coordinator {ours}; install the same version",
            "tokenizer": "site '{name}' has the tokenizer {theirs}, the coordinator {ours}; enrol it again",
            "terms": "site '{name}' was enrolled on other terms ({theirs:.16}) than the coordinator's ({ours:.16}); "
            "give it its enrolment again",
        }
        for what, sentence in spoken.items():
            if (theirs := getattr(said, what)) != ours[what] and not (what == "tokenizer" and said.own_encoder):
                raise ConfigError(sentence.format(name=name, theirs=foreign(theirs, 64), ours=ours[what]))
        if site.site != name:
            raise ConfigError(f"site '{name}' calls itself '{foreign(site.site, 64)}': it has another site's enrolment")
        if not all(1 <= count < MOST for count in counts.values()) or not {"examples", "notes"} <= counts.keys():
            raise ConfigError(f"site '{name}' registered counts that can't be")
        self._check_jump(site)
        labels = None if self._terms.config.labels_may_differ else self._terms.task.labels
        check_registrations([site], labels, self._setup.expected.manifest)
        told = site.label_counts
        if not told.keys() <= set(site.labels) or not all(0 <= count < MOST for count in told.values()):
            raise ConfigError(f"site '{name}' registered counts of labels that can't be")
        _, public = self._terms.public
        if said.public and public and public not in said.public:
            held = foreign(said.public[-1], 16)
            self._watcher.say(f"site '{name}' holds version {held} of the public set, ours is {public}: it gets ours")
        return replace(site, manifest=self._setup.expected.manifest)

    def _check_jump(self, site: Registration) -> None:
        """What a site registers is its weight; nobody gets ten times the patients overnight."""
        if self._last is None or not self._last.exists():
            return
        try:
            before = json.loads(self._last.read_text(encoding="utf-8")).get(site.site, {})
            jumps = [(what, int(n)) for what, n in before.items() if site.counts.get(what, 0) > JUMP * int(n)]
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise GrandRoundsError(
                f"'{self._last}' was edited or torn; delete it to register all sites anew"
            ) from error
        for what, number in jumps:
            raise ConfigError(
                f"site '{site.site}' registers {site.counts[what]:,} {what}, and {number:,} the last time; if that is "
                f"right, delete it from '{self._last}'"
            )

    def _refuse(self, name: str, why: str) -> None:
        self._transport.roster.sites[name].refused = why
        for _ in self._transport.converse([Letter(name, Refused(why=why))], patience=10):
            pass

    def _read(self) -> dict[str, Registration]:
        if not self._saved.exists():
            return {}
        manifest = self._setup.expected.manifest
        try:
            held = json.loads(self._saved.read_text(encoding="utf-8"))
            known = {
                one["site"]: Registration(one["site"], one["counts"], one["labels"], manifest, one["label_counts"])
                for one in held
            }
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise GrandRoundsError(f"'{self._saved}' was edited or torn; the run can't go on without it") from error
        if gone := sorted(known.keys() - self._keys.keys()):
            self._watcher.say(f"{', '.join(gone)} registered, but the key is gone: the run goes on without")
        return {name: site for name, site in known.items() if name in self._keys}


def _plain(site: Registration) -> dict[str, Any]:
    told = dict(site.label_counts)
    return {"site": site.site, "counts": dict(site.counts), "labels": list(site.labels), "label_counts": told}
