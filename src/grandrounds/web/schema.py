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

    name: str = Field(max_length=255, description="Its ending says what it is: .txt, .ann, .json, .jsonl, .xml.")
    content: str = Field(description="The file's text.")


class Files(Asked):
    """Files that were dropped on the page."""

    files: list[File] = Field(
        min_length=1, max_length=2 * MOST_TEXTS, description="Each a File; BRAT's .txt and .ann come together."
    )
    threshold: Threshold = None


class Shown(Asked):
    """A document as `/read` gave it, and what of it to write."""

    document: str = Field(description="The `json` of a document that /read gave.")
    mentions: list[str] = Field(max_length=100_000, description="Ids of the mentions to write.")
    relations: list[int] = Field(
        max_length=100_000, description="Which relations to write: their places in the document, from 0."
    )


class Written(Asked):
    """Documents to write in a format."""

    format: Literal["brat", "bioc", "json"] = Field(description="brat, bioc or json.")
    documents: list[Shown] = Field(min_length=1, max_length=MOST_TEXTS, description="Each as Shown describes it.")


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

    task: str = Field(description="The task that the model was trained for.")
    finds: str = Field(description="Mentions, relations, or both.")
    types: list[str] = Field(description="Types of mentions or relations.")


class Models(BaseModel):
    """The models, and the settings that they read with."""

    version: str = Field(description="Of Grand Rounds.")
    models: list[Model] = Field(description="Each as Model describes it.")
    threshold: float = Field(description="What scores lower is left out, unless a request says otherwise.")
    window: int = Field(description="Sentences among which a document_re model relates entities.")
    assertions: bool = Field(description="Whether mentions are marked as negated, possible and so on.")
    dictionary: bool = Field(description="Whether mentions are linked to concepts.")


class Health(BaseModel):
    """That the server is there."""

    status: Literal["ok"] = Field("ok", description="Always ok.")


class Problem(BaseModel):
    """What is wrong, in one sentence without words of the text."""

    error: str = Field(description="One sentence.")
