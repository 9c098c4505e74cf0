"""The routes about the server: /health, /info, /metrics."""

from typing import Any

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from longform import __version__
from longform.pretrained.sentence_modules import PLAIN
from longform_text.serving.engine import Engine
from longform_text.serving.errors import StrictRoute, answer, refusals
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
    documents: str | None = Field(description="folder that /v1/search searches, by its name")
    version: str


def state_routes(service: Service) -> APIRouter:
    """The routes over a service."""
    router = APIRouter(route_class=StrictRoute, tags=["server"])
    up = {200: {"description": "ready"}, **refusals(503)}

    @router.get("/health", responses=up, response_class=Response)
    async def health() -> Response:
        """Whether the model is there."""
        assert service.engine
        return Response()

    @router.get("/", responses=up, response_class=Response)
    async def root(request: Request) -> Response:
        """Whether the model is there; a browser is sent to the page."""
        return RedirectResponse("ui") if "text/html" in request.headers.get("accept", "") else await health()

    @router.get("/info", responses={200: {"model": Info}, **refusals(503)})
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
                "documents": service.documents and service.documents.folder.resolve().name,
                "version": __version__,
            }
        )

    @router.get("/metrics", responses=refusals(503), response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Numbers for Prometheus."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return router


def _model_type(engine: Engine) -> dict[str, Any]:
    if engine.kind == "embedding":
        return {"embedding": {"pooling": engine.encoder().pooling or "sentence-transformers"}}
    labels = engine.classifier().label2id
    return {engine.kind: {"id2label": {str(place): label for label, place in labels.items()}, "label2id": labels}}
