"""The messages between a coordinator and its sites: typed, encoded in one way, and checked when they are decoded.

Hello     who are you?                             Introduction  registration, version, digests to compare
AskMethod run a method of the algorithm            Answered      how that went; payloads travel beside it
Keys      the public keys of all sites             Secrets       the sites' secret, sealed to each of them, signed
Secret    the secret, sealed to one site           Done          understood
FinalModel the selected weights travel beside it   Done
PeerKeys  the public keys of all sites, to keep    Done
Refused   the coordinator refuses the site         Done
Bye       it is over                               Done
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.payloads import Packed, PayloadError

MOST_BYTES = 1 << 24
"""Of a message without its payloads."""
MOST_ID = 100
"""Letters of a request's id."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Place(_Model):
    """A payload of an ask: its place among those that travel beside it."""

    payload: int = Field(ge=0)


class Sealed(_Model):
    """A secret that only one site can open, and the signature of who sealed it; both in base64."""

    box: str
    signature: str


class Hello(_Model):
    what: Literal["hello"] = "hello"
    log: str = ""
    """The head of the site's audit log that it signed last; empty: none that we know."""
    signature: str = ""


class AskMethod(_Model):
    what: Literal["ask"] = "ask"
    site: str
    algorithm: str
    options: dict[str, Any]
    method: str
    round: int
    exchange: int
    message: list[Place | bool | int | float | str]
    config: str
    start: str | None
    commit: str | None
    needed: list[str]
    public: str
    public_set: int | None
    phase: str = ""
    attempt: str = ""

    @classmethod
    def of(cls, ask: Ask, put: Callable[[Packed], int]) -> AskMethod:
        plain = ask.note(put)
        return cls.model_validate({**plain, "needed": [*ask.needed], "options": dict(ask.options)})

    def ask(self, payloads: Sequence[bytes]) -> Ask:
        """PayloadError where it names a payload that did not come."""

        def get(place: int) -> Packed:
            if not 0 <= place < len(payloads):
                raise PayloadError(f"an ask names payload {place}, and {len(payloads)} came with it")
            return Packed.from_bytes(payloads[place])

        return Ask.of(self.model_dump(exclude={"what"}), get)


class Keys(_Model):
    what: Literal["keys"] = "keys"
    keys: dict[str, str]


class PeerKeys(_Model):
    what: Literal["peers"] = "peers"
    keys: dict[str, str]


class Secret(_Model):
    what: Literal["secret"] = "secret"
    sealed: Sealed
    sender: str
    keys: dict[str, str]


class FinalModel(_Model):
    what: Literal["model"] = "model"
    round: int = Field(ge=0)
    """The last of the run."""
    digest: str


class Refused(_Model):
    what: Literal["refused"] = "refused"
    why: str


class Bye(_Model):
    what: Literal["bye"] = "bye"


class Introduction(_Model):
    what: Literal["hello"] = "hello"
    site: str
    counts: dict[str, int]
    labels: list[str]
    manifest: dict[str, tuple[int, ...]]
    version: str
    secret: bool
    """Whether the site holds the sites' secret."""
    terms: str = ""
    tokenizer: str = ""
    own_encoder: bool = False
    torch: str = ""
    label_counts: dict[str, int] = Field(default_factory=dict)
    """How often each label occurs, where the site's policy lets that leave."""
    public: list[str] = Field(default_factory=list)
    """Digests of the public sets that the site holds."""


class Answered(_Model):
    what: Literal["answer"] = "answer"
    version: str | None = None
    lost: str | None = None
    lacks_public: bool = False
    work: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, answer: Answer) -> Answered:
        return cls(**{**answer.note(), "work": tuple(answer.work)})

    def answer(self, site: str, payloads: Sequence[bytes], most: int = 1 << 34) -> Answer:
        """PayloadError where a payload has more than `most` bytes, or is none."""
        return Answer.of(site, tuple(Packed.from_bytes(data, most) for data in payloads), self.model_dump())


class Secrets(_Model):
    what: Literal["keys"] = "keys"
    sealed: dict[str, Sealed]


class Done(_Model):
    what: Literal["done"] = "done"


Asked = Hello | AskMethod | Keys | PeerKeys | Secret | FinalModel | Refused | Bye
Said = Introduction | Answered | Secrets | Done


class Request(_Model):
    """From the coordinator to a site."""

    id: str
    message: Annotated[Asked, Field(discriminator="what")]


class Response(_Model):
    """From a site; it names the request, so that it can't be taken for another's answer."""

    id: str
    registration: str
    """Digest of what the site registered."""
    log: str
    """The head of the site's audit log, and its signature under the site's key."""
    signature: str = ""
    message: Annotated[Said, Field(discriminator="what")]


M = TypeVar("M", Request, Response)


def encode(message: Request | Response) -> bytes:
    return json.dumps(message.model_dump()).encode()


def decode(kind: type[M], data: bytes) -> M:
    """PayloadError where it is no such message; the sentence holds nothing of the message's values."""
    if len(data) > MOST_BYTES:
        raise PayloadError(f"a message of {len(data)} bytes is over the limit of {MOST_BYTES}")
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False, include_context=False)[0]
        where = ".".join(map(str, problem["loc"]))[:80] or "JSON"
        raise PayloadError(f"a message can't be read ({where}: {problem['type'].replace('_', ' ')})") from None


def id_of(data: bytes) -> str:
    """The id of a request that can't be read, so that the refusal finds its way back; empty where it is no id of ours:
    half a surrogate pair, say, would make our response one that can't be read."""
    try:
        name = json.loads(data[:MOST_BYTES])["id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return name if isinstance(name, str) and len(name) <= MOST_ID and name.isprintable() else ""
