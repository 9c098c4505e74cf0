"""Our own route: vectors of the chunks of a document that is read as a whole (late chunking)."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from longform_text.inference.encoders import Encoder
from longform_text.serving.errors import Body, Inputs, Refusal, StrictRoute, Whole, answer, as_list, refusals
from longform_text.serving.reading import changed, chunk_rows
from longform_text.serving.service import Service


class ChunksBody(Body):
    """Body of ``/chunks``."""

    inputs: Inputs
    chunk_tokens: Annotated[Whole, Field(ge=1, le=2**20)] = Field(256, description="tokens of a chunk at most")
    overlap: Annotated[Whole, Field(ge=0, le=2**20)] = Field(
        0, description="tokens that neighbours share; less than that"
    )
    boundaries: Literal["tokens", "sentences", "paragraphs"] = Field("tokens", description="where a chunk may begin")
    document_weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.0, description="weight of the mean of a text's chunks beside each chunk's own vector"
    )
    titles: list[str] | None = Field(None, description="of each text, read in front of it and added to its chunks")
    prompt_name: str | None = Field(None, description="one of the model's prompts; null: its default")
    normalize: bool | None = Field(None, description="vectors of length 1; null: as the model has them")
    dimensions: Annotated[Whole, Field(ge=1)] | None = Field(None, description="the first ones alone")


class Chunk(BaseModel):
    """One chunk: its characters from-to (Unicode code points, as Python counts), its tokens, its vector."""

    start: int
    end: int
    tokens: int
    embedding: list[float]


class Document(BaseModel):
    """The chunks of one text."""

    index: int
    chunks: list[Chunk]


class Chunks(BaseModel):
    """A document a text."""

    model: str
    documents: list[Document]
    tokens: int = Field(description="that the model has read, special ones and what is read twice included")


def chunk_routes(service: Service) -> APIRouter:
    """The routes over a service."""
    router = APIRouter(route_class=StrictRoute, tags=["chunks"])

    @router.post("/chunks", responses={200: {"model": Chunks}, **refusals()})
    async def chunks(body: ChunksBody, request: Request) -> Response:
        """Vectors of the chunks of texts of any length; each knows its whole document."""
        texts = as_list(body.inputs)
        service.check_count(len(texts))
        titles = [""] * len(texts) if body.titles is None else body.titles
        if len(titles) != len(texts):
            raise Refusal("invalid", f"titles: {len(titles)} of them for {len(texts)} texts; give one for each")
        encoder = changed(
            service.engine.encoder(), prompt_name=body.prompt_name, dimensions=body.dimensions, normalise=body.normalize
        )
        how: Any = {"chunk_tokens": body.chunk_tokens, "overlap": body.overlap, "boundaries": body.boundaries}
        rows = await service.read(sum(map(len, [*texts, *titles])), lambda _: chunk_rows(encoder, texts, titles, **how))
        found = iter(await service.results(request, rows))
        documents = [
            {
                "index": place,
                "chunks": _chunks(encoder, plan, [next(found) for _ in plan.readings], body.document_weight),
            }
            for place, plan in enumerate(rows.plans)
        ]
        return answer({"model": service.engine.name, "documents": documents, "tokens": rows.tokens})

    return router


def _chunks(encoder: Encoder, plan: Any, readings: list[Any], document_weight: float) -> list[dict[str, Any]]:
    vectors = plan.no_vectors(encoder.whole)
    for number, vector in (each for reading in readings for each in reading):
        vectors[number] = vector
    finished = plan.finished(encoder, vectors, document_weight)
    return [
        {"start": int(start), "end": int(end), "tokens": int(tokens), "embedding": vector}
        for (start, end), tokens, vector in zip(plan.spans, plan.tokens, finished, strict=True)
    ]
