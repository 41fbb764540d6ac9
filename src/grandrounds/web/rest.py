"""The REST interface: `/extract`, `/read`, `/export`, `/models`, `/health`; and a page about it, offline too."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from grandrounds import __version__
from grandrounds.data.documents import Document
from grandrounds.data.formats import documents_json
from grandrounds.errors import GrandRoundsError, foreign
from grandrounds.pipeline.pipeline import Pipeline
from grandrounds.reports.colours import colour
from grandrounds.tasks.abilities import SplitsText
from grandrounds.web import schema
from grandrounds.web.agreement import agreement
from grandrounds.web.answers import HANDLERS, page, refusal, static
from grandrounds.web.dropped import documents as dropped
from grandrounds.web.exports import Export, export, narrowed, parsed
from grandrounds.web.reading import NotReadError, QueueFullError, Read, Reader

WRONG = {
    "missing": "is missing",
    "extra_forbidden": "is not known here",
    "string_type": "must be a text",
    "string_unicode": "holds half of a character",
    "string_too_long": "is too long",
    "too_long": "has too many items",
    "too_short": "has too few items",
    "greater_than_equal": "is too small",
    "less_than_equal": "is too large",
}
"""What is said of a field that is not as it should be: pydantic's own messages may quote it."""
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": schema.Problem, "description": description}
    for status, description in {
        401: "The token is missing or wrong.",
        413: "Too much text.",
        422: "Something in the request can't be used.",
        503: "The queue is full; Retry-After says when to come again.",
        504: "The texts were not read in time.",
    }.items()
}


@dataclass(frozen=True)
class Limits:
    """Of one request."""

    characters: int = 200_000
    seconds: float = 60.0


def application(reader: Reader, limits: Limits) -> FastAPI:
    """The page and the REST interface; `serving.guarded` protects them."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        reader.start()
        yield
        await asyncio.to_thread(reader.end)

    handlers = {**HANDLERS, RequestValidationError: _invalid, GrandRoundsError: _unusable}
    app = FastAPI(
        title="Grand Rounds",
        version=__version__,
        description="Mentions, assertions, links and relations of a text. Every request needs the header "
        "`Authorization: Bearer TOKEN`, but for `/health`.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        exception_handlers=handlers,
        redirect_slashes=False,
    )
    problems = {"responses": PROBLEMS}
    answers = _Handlers(reader, limits)
    app.add_api_route("/extract", answers.extract, methods=["POST"], response_model=schema.Found, **problems)  # type: ignore[arg-type]
    app.add_api_route("/read", answers.read, methods=["POST"], **problems)  # type: ignore[arg-type]
    app.add_api_route("/export", answers.export, methods=["POST"], response_class=Response, **problems)  # type: ignore[arg-type]
    app.add_api_route("/models", answers.models, response_model=schema.Models, responses={401: PROBLEMS[401]})
    app.add_api_route("/health", answers.health, response_model=schema.Health)
    app.add_route("/static/{name}", static, include_in_schema=False)
    app.add_route("/docs", partial(_docs, app), include_in_schema=False)
    app.add_route("/", partial(_home, reader.pipeline), include_in_schema=False)
    return app


@dataclass(frozen=True)
class _Handlers:
    """What answers."""

    reader: Reader
    limits: Limits

    async def extract(self, request: Request, asked: schema.Extract) -> JSONResponse:
        """Find mentions and relations in a text, or in several."""
        texts = asked.all
        if texts is None:
            raise HTTPException(422, "give either 'text' or 'texts'")
        found = await self._found(request, texts, asked.threshold)
        return JSONResponse({"documents": [d.to_dict() for d in found.documents], "warnings": found.warnings})

    async def read(self, request: Request, asked: schema.Files) -> JSONResponse:
        """Read files: texts, or documents in BRAT, PubTator, BioC, PubAnnotation or our JSON. Of documents with
        annotations, `gold` holds these, and `agreement` says which of them were found."""
        warnings = Counter[str]()
        files = [(file.name, file.content) for file in asked.files]
        given = await asyncio.to_thread(dropped, files, schema.MOST_TEXTS, warnings)
        found = await self._found(request, [self._unread(document) for document in given], asked.threshold)
        answer = await asyncio.to_thread(_for_page, given, found.documents, bool(self.reader.pipeline.taggers))
        return JSONResponse({**answer, "warnings": {**warnings, **found.warnings}})

    async def export(self, asked: schema.Written) -> Response:
        """Write documents, or parts of them, as BRAT (a zip of .txt and .ann), BioC's JSON or our JSON."""
        written = await asyncio.to_thread(_written, asked)
        named = {"Content-Disposition": f'attachment; filename="{written.name}"'}
        return Response(written.content, media_type=written.media, headers=named)

    async def models(self) -> schema.Models:
        """The models that are served."""
        return about(self.reader.pipeline)

    async def health(self) -> schema.Health:
        """Whether the server is there; needs no token."""
        return schema.Health()

    def _unread(self, document: Document) -> Document:
        """As text is read: a tagger finds sentences as in its training data."""
        taggers = self.reader.pipeline.taggers
        splits = bool(taggers) and isinstance(taggers[0].task, SplitsText)
        return Document(document.id, document.text, attributes=document.attributes) if splits else document

    async def _found(self, request: Request, texts: Sequence[str | Document], threshold: float | None) -> Read:
        characters = sum(len(text.text if isinstance(text, Document) else text) for text in texts)
        if characters > self.limits.characters:
            most = f"{self.limits.characters:,}"
            raise HTTPException(413, f"a request has at most {most} characters of text here; send less at a time")
        try:
            answer = self.reader.submit(texts, threshold)
        except QueueFullError as full:
            wait = {"Retry-After": str(full.seconds)}
            raise HTTPException(503, f"the queue is full; come again in {full.seconds} s", wait) from None
        try:
            return await self._awaited(request, answer)
        except TimeoutError:
            late = f"the texts were not read within {self.limits.seconds:g} s; send less at a time, or come again later"
            raise HTTPException(504, late) from None
        except NotReadError:
            raise HTTPException(500, "a text could not be read; the server's log says where") from None
        finally:
            answer.cancel()

    async def _awaited(self, request: Request, answer: asyncio.Future[Read]) -> Read:
        """The answer; nobody reads for a client that has gone."""
        async with asyncio.timeout(self.limits.seconds):
            while True:
                done, _ = await asyncio.wait([answer], timeout=1)
                if done:
                    return answer.result()
                if await request.is_disconnected():
                    raise HTTPException(499, "the client has gone")


def about(pipeline: Pipeline) -> schema.Models:
    models = [
        schema.Model(task=model.task.name, finds=model.extraction.finds, types=_types(model.task))
        for model in (*pipeline.taggers, *pipeline.relaters)
    ]
    return schema.Models(
        version=__version__,
        models=models,
        threshold=pipeline.threshold,
        window=pipeline.window,
        assertions=pipeline.assertions,
        dictionary=pipeline.dictionary is not None,
    )


def _types(task: Any) -> list[str]:
    return [str(label) for label in task.labels[1:]]


def _for_page(given: Sequence[Document], found: Sequence[Document], tagged: bool) -> dict[str, Any]:
    """What was found; beside gold, where a document has some that was not simply taken over."""
    types = {mention.type for document in (*given, *found) for mention in document.mentions}
    documents = []
    for gold, one in zip(given, found, strict=True):
        has_gold = bool(gold.relations or (tagged and gold.mentions))
        documents.append(
            {
                "found": one.to_dict(),
                "json": documents_json.render([one]).rstrip("\n"),
                "gold": gold.to_dict() if has_gold else None,
                "agreement": agreement(one, gold) if has_gold else None,
            }
        )
    return {"documents": documents, "colours": {name: colour(name) for name in sorted(types)}}


def _written(asked: schema.Written) -> Export:
    shown = [narrowed(parsed(one.document), set(one.mentions), one.relations) for one in asked.documents]
    return export(shown, asked.format)


async def _home(pipeline: Pipeline, request: Request) -> Response:
    return page("serve.html", title="Grand Rounds", models=about(pipeline).models, tagged=bool(pipeline.taggers))


async def _docs(app: FastAPI, request: Request) -> Response:
    described: Mapping[str, Any] = app.openapi()
    return page("rest.html", title="Grand Rounds over REST", api=described, host=request.headers["host"])


async def _invalid(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, RequestValidationError)
    first = problem.errors()[0]
    known = {name for model in schema.ASKED for name in model.model_fields}
    path = [str(part) for part in first["loc"][1:] if isinstance(part, int) or part in known]
    if first["type"] == "json_invalid" or len(first["loc"]) < 2:
        return refusal(422, "the body must be JSON as /docs describes it, sent as application/json", request.headers)
    field = f"'{'.'.join(path)}'" if path and first["type"] != "extra_forbidden" else "a field"
    return refusal(422, f"{field} {WRONG.get(first['type'], 'is not what /docs describes')}", request.headers)


async def _unusable(request: Request, problem: Exception) -> Response:
    return refusal(422, foreign(str(problem)), request.headers)
