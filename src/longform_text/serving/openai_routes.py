"""OpenAI's routes: embeddings, and the list of models with the one that there is."""

import base64
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from longform_text.serving.engine import Engine
from longform_text.serving.errors import Body, NonEmpty, Refusal, StrictRoute, Whole, answer, refusals
from longform_text.serving.reading import changed, pooled_by
from longform_text.serving.service import Service

Ids = Annotated[list[Annotated[Whole, Field(ge=0)]], Field(min_length=1)]


class EmbeddingsBody(Body):
    """Body of ``client.embeddings.create``."""

    input: (
        NonEmpty | Annotated[list[NonEmpty], Field(min_length=1)] | Ids | Annotated[list[Ids], Field(min_length=1)]
    ) = Field(description="a text, texts, token ids of the model, or lists of them")
    model: str | None = Field(None, description="ignored: the server has one model")
    encoding_format: Literal["float", "base64"] = Field("float", description="base64: of little-endian float32")
    dimensions: Annotated[Whole, Field(ge=1)] | None = Field(
        None, description="the first ones alone, to length 1 again"
    )
    user: str | None = None
    prompt_name: str | None = Field(None, description="one of the model's prompts; null: its default")


class Embedding(BaseModel):
    """One vector."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """Tokens that the model has read."""

    prompt_tokens: int
    total_tokens: int


class Embeddings(BaseModel):
    """The answer."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


class Model(BaseModel):
    """The one model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class Models(BaseModel):
    """A list of one."""

    object: Literal["list"]
    data: list[Model]


def openai_routes(service: Service) -> APIRouter:
    """The routes over a service."""
    router = APIRouter(route_class=StrictRoute, tags=["OpenAI"])

    @router.post("/v1/embeddings", responses={200: {"model": Embeddings}, **refusals()})
    @router.post("/embeddings", responses={200: {"model": Embeddings}, **refusals()})
    async def embeddings(body: EmbeddingsBody, request: Request) -> Response:
        """Vectors of texts or token ids, in order."""
        given: Any = [body.input] if isinstance(body.input, str) or isinstance(body.input[0], int) else body.input
        normalise = None if body.dimensions is None else True
        encoder = changed(
            service.engine.encoder(), prompt_name=body.prompt_name, dimensions=body.dimensions, normalise=normalise
        )
        if isinstance(given[0], str):
            rows = await service.text_rows(given, pooled_by(encoder), encoder.prompt)
        else:
            rows = await service.id_rows(given, encoder)
        vectors = await service.vectors(request, encoder, rows)
        return answer(
            {
                "object": "list",
                "model": service.engine.name,
                "data": [
                    {"object": "embedding", "index": place, "embedding": _written(vector, body.encoding_format)}
                    for place, vector in enumerate(vectors)
                ],
                "usage": {"prompt_tokens": rows.tokens, "total_tokens": rows.tokens},
            },
            truncated=rows.truncated,
        )

    @router.get("/v1/models", responses={200: {"model": Models}, **refusals(503)})
    async def models() -> Response:
        """The model that is served."""
        return answer({"object": "list", "data": [_model(service.engine)]})

    @router.get("/v1/models/{name:path}", responses={200: {"model": Model}, **refusals(404, 503)})
    async def model(name: str) -> Response:
        """The model that is served, by its name."""
        if name != service.engine.name:
            raise Refusal("not_found", f"there is one model here: {service.engine.name}")
        return answer(_model(service.engine))

    return router


def _model(engine: Engine) -> dict[str, Any]:
    return {"id": engine.name, "object": "model", "created": 0, "owned_by": "longform"}


def _written(vector: np.ndarray, encoding: str) -> Any:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector
