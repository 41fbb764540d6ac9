"""What may be asked over REST, and how much of it; FastAPI checks it and describes it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Threshold = Annotated[float | None, Field(ge=0, le=1, description="Leave out what scores lower.")]
MOST_TEXTS = 64


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Extract(Asked):
    """A text, or several."""

    text: str | None = Field(None, description="One text.")
    texts: list[str] | None = Field(None, max_length=MOST_TEXTS, description="Several texts.")
    threshold: Threshold = None

    @property
    def all(self) -> list[str] | None:
        """None unless exactly one of the two was given."""
        if self.text is not None:
            return [self.text] if self.texts is None else None
        return self.texts


class File(Asked):
    """A file by its name, which says what it is, and its content."""

    name: str = Field(max_length=255)
    content: str


class Files(Asked):
    """Files that were dropped on the page."""

    files: list[File] = Field(min_length=1, max_length=2 * MOST_TEXTS)
    threshold: Threshold = None


class Shown(Asked):
    """A document as `/read` gave it, and what of it to write."""

    document: str = Field(description="The `json` of a document that /read gave.")
    mentions: list[str] = Field(max_length=100_000, description="Ids.")
    relations: list[int] = Field(max_length=100_000, description="Numbers, from 0.")


class Written(Asked):
    """Documents to write in a format."""

    format: Literal["brat", "bioc", "json"]
    documents: list[Shown] = Field(min_length=1, max_length=MOST_TEXTS)


ASKED = (Extract, Files, File, Written, Shown)


class Found(BaseModel):
    """What was found, in the order of the texts."""

    documents: list[dict[str, Any]] = Field(
        description="Each has id, text, sentences, mentions, entities and relations, as `grandrounds extract --to "
        "dict` writes them. Offsets count characters (Unicode code points)."
    )
    warnings: dict[str, int] = Field(description="What was passed over in this request's texts, counted.")


class Model(BaseModel):
    """A model that is served."""

    task: str
    finds: str = Field(description="mentions, relations, or mentions and relations")
    types: list[str] = Field(description="Types of mentions or relations.")


class Models(BaseModel):
    """The models, and the settings that they read with."""

    version: str
    models: list[Model]
    threshold: float
    window: int
    assertions: bool
    dictionary: bool


class Health(BaseModel):
    """That the server is there."""

    status: Literal["ok"] = "ok"


class Problem(BaseModel):
    """What is wrong, in one sentence without words of the text."""

    error: str
