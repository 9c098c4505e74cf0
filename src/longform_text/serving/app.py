"""The application: all routes, behind the gate, and the page ``/ui``."""

import base64
import contextlib
import hashlib
from asyncio import get_running_loop
from collections.abc import AsyncGenerator, Callable
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from longform import __version__
from longform.errors import DataError, LongformError, MissingDependencyError
from longform_text.data.bundled import speeches
from longform_text.serving.chunk_routes import chunk_routes
from longform_text.serving.engine import Engine
from longform_text.serving.errors import STATUS_KINDS, Refusal, of_validation, refused
from longform_text.serving.gate import Gate
from longform_text.serving.openai_routes import openai_routes
from longform_text.serving.score_routes import score_routes
from longform_text.serving.search_routes import search_routes
from longform_text.serving.service import Service
from longform_text.serving.settings import ServingSettings
from longform_text.serving.state_routes import state_routes

EXAMPLES = 12  # speeches, evenly over the years


def page_routes() -> APIRouter:
    """The page and its examples; a browser runs no script on the page but its own, and sends nothing elsewhere."""
    router = APIRouter()
    page = files("longform_text.serving").joinpath("page.html").read_text(encoding="utf-8")
    script = page.split("<script>", 1)[1].split("</script>", 1)[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )

    @router.get("/ui", include_in_schema=False)
    async def page_in_browser() -> HTMLResponse:
        return HTMLResponse(page, headers={"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"})

    # Reading them takes a moment: not in the event loop, but in a thread, where FastAPI runs what is not async.
    @router.get("/ui/examples", include_in_schema=False)
    def example_names() -> list[str]:
        return list(examples())

    @router.get("/ui/examples/{name}", include_in_schema=False)
    def example(name: str) -> dict[str, str]:
        if name not in examples():
            raise Refusal("not_found", "there is no example of this name")
        return {"text": examples()[name]}

    return router


@cache
def examples() -> dict[str, str]:
    """Speeches by name; none where the package that has them is not installed."""
    try:
        found = speeches()
    except (MissingDependencyError, DataError):
        return {}
    return {each.id: each.text for each in found[:: -(-len(found) // EXAMPLES)]}


def create_app(settings: ServingSettings, load: Callable[[], Engine]) -> Gate:
    """The ASGI application; ``load`` is called when it starts, in a thread of its own."""
    service = Service(settings, load)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        service.start(get_running_loop())
        yield
        service.stop()

    app = FastAPI(
        title="Longform",
        version=__version__,
        lifespan=lifespan,
        description="Vectors, labels and chunks of long documents, over one model.",
    )
    for routes in (openai_routes, score_routes, chunk_routes, search_routes, state_routes):
        app.include_router(routes(service))
    app.include_router(page_routes())
    _add_handlers(app)
    return Gate(app, service, frozenset(app.openapi()["paths"]))


def _add_handlers(app: FastAPI) -> None:
    """Every error as a refusal."""

    @app.exception_handler(Refusal)
    async def of_refusal(request: Request, error: Refusal) -> Response:
        return refused(error)

    @app.exception_handler(RequestValidationError)
    async def of_body(request: Request, error: RequestValidationError) -> Response:
        return refused(of_validation(list(error.errors())))

    @app.exception_handler(LongformError)
    async def of_options(request: Request, error: LongformError) -> Response:
        return refused(Refusal("invalid", str(error)))

    @app.exception_handler(Exception)
    async def of_failure(request: Request, error: Exception) -> Response:
        return refused(Refusal("internal", "the server failed on this request"))

    @app.exception_handler(HTTPException)
    async def of_route(request: Request, error: HTTPException) -> Response:
        kind = STATUS_KINDS.get(error.status_code, "internal")
        return refused(Refusal(kind, str(error.detail)), dict(error.headers or {}))
