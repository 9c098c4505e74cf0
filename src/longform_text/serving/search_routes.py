"""Search of the folder that the server was given: /v1/search, and a document of it: /v1/search/document."""

from itertools import islice
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from longform_text.search.index import Index
from longform_text.serving.errors import Body, NonEmpty, Refusal, StrictRoute, Whole, answer, refusals
from longform_text.serving.service import Service

NAMED = 100  # files that are passed over


class SearchBody(Body):
    """Body of ``/v1/search``."""

    query: NonEmpty
    k: Annotated[Whole, Field(ge=1, le=1000)] = Field(10, description="documents")
    passages: Annotated[Whole, Field(ge=1, le=100)] = Field(1, description="passages of each")


class Found(BaseModel):
    """A passage: its document, that one's file and title, the headings above, its page, line or characters, its text,
    the characters from-to of the query's words in it, the document's score, and whether that may well answer.
    """

    document: str
    file: str
    title: str
    headings: str
    place: str
    passage: str
    marks: list[tuple[int, int]]
    score: float
    fits: bool


class SearchAnswer(BaseModel):
    """The best passages, best documents first, of ``passages`` that are searched; ``fits``: whether any may answer.

    ``passed_over``: why files, or parts of them, are not searched; the first hundred of ``files_passed_over``.
    """

    object: str
    model: str
    data: list[Found]
    fits: bool
    passages: int
    files_passed_over: int
    passed_over: dict[str, str]
    seconds_left: float | None = Field(description="of reading what is new; null: all is read")
    failure: str = Field(description="why the folder is not read on; empty where it is")


class DocumentBody(Body):
    """Body of ``/v1/search/document``."""

    document: NonEmpty


class Passage(BaseModel):
    """A passage of a document: its page, line or characters, and its text."""

    place: str
    passage: str


class DocumentAnswer(BaseModel):
    """The passages of a document, in order."""

    object: str
    document: str
    title: str
    data: list[Passage]


def search_routes(service: Service) -> APIRouter:
    """The routes over a service."""
    router = APIRouter(route_class=StrictRoute, tags=["search"])

    @router.post("/v1/search", responses={200: {"model": SearchAnswer}, **refusals(400, 404, 413, 415, 503)})
    async def search(body: SearchBody) -> Response:
        """Passages of the server's documents that answer a question; while they are being read, of those that are."""
        index = _index(service)
        hits = await run_in_threadpool(index.search, body.query, body.k, passages=body.passages)
        passages, passed = await run_in_threadpool(lambda: (len(index), index.passed_over()))
        return answer(
            {
                "object": "list",
                "model": service.engine.name,
                "data": [hit._asdict() for hit in hits],
                "fits": any(hit.fits for hit in hits),
                "passages": passages,
                "files_passed_over": len(passed),
                "passed_over": dict(islice(passed.items(), NAMED)),
                "seconds_left": index.seconds_left,
                "failure": service.documents.failure if service.documents else "",
            }
        )

    @router.post(
        "/v1/search/document",
        responses={200: {"model": DocumentAnswer}, **refusals(400, 404, 413, 415, 503)},
    )
    async def document(body: DocumentBody) -> Response:
        """The whole of a document that an answer names, passage by passage."""
        title, passages = await run_in_threadpool(_index(service).document, body.document)
        if not passages:
            raise Refusal("not_found", f'there is no document "{body.document}"')
        data = [{"place": place, "passage": text} for place, text in passages]
        return answer({"object": "document", "document": body.document, "title": title, "data": data})

    return router


def _index(service: Service) -> Index:
    if service.documents is None:
        raise Refusal("not_found", "this server has no documents: start it with --documents FOLDER")
    return service.documents.index
