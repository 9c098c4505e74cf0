"""The routes of text-embeddings-inference that give vectors: /embed, /embed_all and /similarity."""

from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field, RootModel
from starlette.requests import Request
from starlette.responses import Response

from longform_text.inference.encoders import Encoder
from longform_text.serving.errors import Body, Inputs, NonEmpty, StrictRoute, Whole, answer, as_list, refusals
from longform_text.serving.reading import Rows, changed, pooled_by, text_rows, token_states
from longform_text.serving.service import STATES, Service


class Reading(Body):
    """How texts are read."""

    truncate: bool | None = Field(None, description="cut a text over the limit; null: as the server was started")
    truncation_direction: Literal["Left", "Right"] = Field("Right", description="the side that is cut off")
    prompt_name: str | None = Field(None, description="one of the model's prompts; null: its default")


class EmbedBody(Reading):
    """Body of ``/embed``."""

    inputs: Inputs
    normalize: bool = Field(True, description="vectors of length 1; false: as the model pools them")
    dimensions: Annotated[Whole, Field(ge=1)] | None = Field(None, description="the first ones alone")


class EmbedAllBody(Reading):
    """Body of ``/embed_all``."""

    inputs: Inputs


class Sentences(Body):
    """One text, and those that are compared with it."""

    source_sentence: NonEmpty
    sentences: Annotated[list[NonEmpty], Field(min_length=1)]


class SimilarityBody(Body):
    """Body of ``/similarity``."""

    inputs: Sentences
    parameters: Reading | None = None


class Vectors(RootModel[list[list[float]]]):
    """A vector a text."""


class TokenVectors(RootModel[list[list[list[float]]]]):
    """A vector a token, special ones included."""


class Scores(RootModel[list[float]]):
    """A cosine a text."""


def tei_routes(service: Service) -> APIRouter:
    """The routes over a service."""
    router = APIRouter(route_class=StrictRoute, tags=["text-embeddings-inference"])

    @router.post("/embed", responses={200: {"model": Vectors}, **refusals("tei")})
    async def embed(body: EmbedBody, request: Request) -> Response:
        """Vectors of texts, in order."""
        plain = service.engine.encoder()
        encoder = changed(plain, prompt_name=body.prompt_name, dimensions=body.dimensions, normalise=body.normalize)
        rows = await _read(service, encoder, as_list(body.inputs), body)
        vectors = await service.vectors(request, encoder, rows)
        return answer(list(vectors), truncated=rows.truncated)

    @router.post("/embed_all", responses={200: {"model": TokenVectors}, **refusals("tei")})
    async def embed_all(body: EmbedAllBody, request: Request) -> Response:
        """The last hidden state of every token of every text."""
        encoder = changed(service.engine.encoder(), prompt_name=body.prompt_name)
        rows = await _read(service, encoder, as_list(body.inputs), body)
        rows = rows._replace(rows=[(tokens, token_states) for tokens, _ in rows.rows])
        return answer(await service.results(request, rows, weight=STATES), truncated=rows.truncated)

    @router.post("/similarity", responses={200: {"model": Scores}, **refusals("tei")})
    async def similarity(body: SimilarityBody, request: Request) -> Response:
        """The cosine of one text with each of the others."""
        how = body.parameters or Reading()
        encoder = changed(service.engine.encoder(), prompt_name=how.prompt_name, normalise=True)
        rows = await _read(service, encoder, [body.inputs.source_sentence, *body.inputs.sentences], how)
        first, *others = await service.vectors(request, encoder, rows)
        return answer([float(first @ other) for other in others], truncated=rows.truncated)

    return router


def cuts(service: Service, truncate: bool | None) -> bool:
    """Whether a text over the limit is cut."""
    return service.settings.on_long == "truncate" if truncate is None else truncate


async def _read(service: Service, encoder: Encoder, texts: list[str], how: Reading) -> Rows:
    service.check_count(len(texts))
    finish, truncate = pooled_by(encoder), cuts(service, how.truncate)
    return await service.read(
        sum(map(len, texts)),
        lambda engine: text_rows(
            engine, texts, finish, truncate=truncate, prompt=encoder.prompt, side=how.truncation_direction
        ),
    )
