"""The routes about the server and its tokenizer: /health, /info, /metrics, /tokenize."""

from typing import Any

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, Field, RootModel
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from longform import __version__
from longform.pretrained.sentence_modules import PLAIN
from longform_text.data.text import clean_text
from longform_text.serving.engine import Engine
from longform_text.serving.errors import Body, Inputs, StrictRoute, answer, as_list, refusals
from longform_text.serving.reading import changed
from longform_text.serving.service import Service


class Info(BaseModel):
    """Description of what is served, and its limits."""

    model_id: str
    model_dtype: str
    model_type: dict[str, Any]
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_client_batch_size: int
    auto_truncate: bool
    prompts: list[str]
    tokenization_workers: int
    documents: str | None = Field(description="folder that /v1/search searches, by its name")
    version: str


class TokenizeBody(Body):
    """Body of ``/tokenize``."""

    inputs: Inputs
    add_special_tokens: bool = True
    prompt_name: str | None = Field(None, description="one of the model's prompts; null: none")


class Token(BaseModel):
    """A token and its characters; none of a special one."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class Tokens(RootModel[list[list[Token]]]):
    """The tokens of each text."""


def state_routes(service: Service) -> APIRouter:
    """The routes over a service."""
    router = APIRouter(route_class=StrictRoute, tags=["server"])
    up = {200: {"description": "ready"}, **refusals("tei", 503)}

    @router.get("/health", responses=up, response_class=Response)
    @router.get("/ping", responses=up, response_class=Response)
    async def health() -> Response:
        """Whether the model is there."""
        assert service.engine
        return Response()

    @router.get("/", responses=up, response_class=Response)
    async def root(request: Request) -> Response:
        """Whether the model is there; a browser is sent to the page."""
        return RedirectResponse("ui") if "text/html" in request.headers.get("accept", "") else await health()

    @router.get("/info", responses={200: {"model": Info}, **refusals("tei", 503)})
    async def info() -> Response:
        """Description of what is served, and its limits."""
        engine, settings = service.engine, service.settings
        return answer(
            {
                "model_id": engine.name,
                "model_dtype": str(engine.runner.model.dtype).removeprefix("torch."),
                "model_type": _model_type(engine),
                "max_concurrent_requests": settings.max_concurrent_requests,
                "max_input_length": engine.runner.limit,
                "max_batch_tokens": settings.batch_tokens,
                "max_client_batch_size": settings.max_texts,
                "auto_truncate": settings.on_long == "truncate",
                "prompts": list(getattr(engine.runner, "folder", PLAIN).prompts),
                "tokenization_workers": 1,
                "documents": service.documents and service.documents.folder.resolve().name,
                "version": __version__,
            }
        )

    @router.get("/metrics", responses=refusals("tei", 503), response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Numbers for Prometheus."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @router.post("/tokenize", responses={200: {"model": Tokens}, **refusals("tei")})
    async def tokenize(body: TokenizeBody) -> Response:
        """The tokens of texts, whole, with the characters that each stands for."""
        texts, prompt = as_list(body.inputs), ""
        service.check_count(len(texts))
        if body.prompt_name is not None:
            prompt = changed(service.engine.encoder(), prompt_name=body.prompt_name).prompt
        made = await service.read(
            sum(map(len, texts)),
            lambda engine: [_tokens(engine, prompt + text, special=body.add_special_tokens) for text in texts],
        )
        return answer(made)

    return router


def _model_type(engine: Engine) -> dict[str, Any]:
    if engine.kind == "embedding":
        return {"embedding": {"pooling": engine.encoder().pooling or "sentence-transformers"}}
    labels = engine.classifier().label2id
    return {engine.kind: {"id2label": {str(place): label for label, place in labels.items()}, "label2id": labels}}


def _tokens(engine: Engine, text: str, *, special: bool) -> list[dict[str, Any]]:
    text = clean_text(text)[0]
    tokenizer = engine.runner.tokenizer
    made = tokenizer(
        text, add_special_tokens=special, return_offsets_mapping=True, return_special_tokens_mask=True, verbose=False
    )
    found = []
    for id, (start, stop), marked in zip(
        made["input_ids"], made["offset_mapping"], made["special_tokens_mask"], strict=True
    ):
        said = tokenizer.convert_ids_to_tokens(id) if marked else text[start:stop]
        place = (None, None) if marked else (start, stop)
        found.append({"id": id, "text": said, "special": bool(marked), "start": place[0], "stop": place[1]})
    return found
