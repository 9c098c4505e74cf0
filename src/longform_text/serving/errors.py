"""Refusals, bodies of requests and answers: what the server does not answer, as each of the two dialects says it.

OpenAI's routes nest the error, as its client reads it; all others have the form of text-embeddings-inference.
"""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, NamedTuple

import orjson
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response


class _Kind(NamedTuple):
    """``status`` and ``type`` of text-embeddings-inference, then those of OpenAI, where ``code`` is its short name."""

    status: int
    type: str
    openai_status: int
    openai_type: str
    code: str | None = None


INVALID = "invalid_request_error"
KINDS = {
    "empty": _Kind(400, "Empty", 400, INVALID, "empty_input"),
    "unauthorized": _Kind(401, "Unauthorized", 401, INVALID, "invalid_api_key"),
    "not_found": _Kind(404, "NotFound", 404, INVALID, "not_found"),
    "method": _Kind(405, "MethodNotAllowed", 405, INVALID, "method_not_allowed"),
    "too_large": _Kind(413, "Validation", 413, INVALID, "request_too_large"),
    "too_long": _Kind(413, "Validation", 400, INVALID, "context_length_exceeded"),
    "media_type": _Kind(415, "Validation", 415, INVALID, "unsupported_media_type"),
    "invalid": _Kind(422, "Validation", 400, INVALID),
    "wrong_model": _Kind(424, "Backend", 404, INVALID, "model_not_found"),
    "failed": _Kind(424, "Backend", 500, "server_error", "inference_failed"),
    "overloaded": _Kind(429, "Overloaded", 429, "rate_limit_error", "overloaded"),
    "gone": _Kind(499, "Gone", 499, "server_error", "client_closed_request"),
    "internal": _Kind(500, "Internal", 500, "server_error", "internal_error"),
    "not_ready": _Kind(503, "Unhealthy", 503, "server_error", "not_ready"),
}
STATUS_KINDS = {404: "not_found", 405: "method"}
RETRY = ("overloaded", "not_ready")


class Refusal(Exception):
    """A request that is not answered; ``kind``: one of KINDS. ``message``: for its sender, without any text of it."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


def is_openai(path: str) -> bool:
    """Whether a route speaks OpenAI's dialect."""
    return path.startswith("/v1/") or path == "/embeddings"


def refused(refusal: Refusal, path: str, headers: dict[str, str] | None = None) -> Response:
    """The answer to a request to ``path``."""
    kind = KINDS[refusal.kind]
    status = kind.openai_status if is_openai(path) else kind.status
    extra = dict(headers or {})
    if refusal.kind in RETRY:
        extra["Retry-After"] = "1"
    if refusal.kind == "unauthorized":
        extra["WWW-Authenticate"] = "Bearer"
    return Response(orjson.dumps(error_body(refusal, path)), status, extra, "application/json")


def error_body(refusal: Refusal, path: str) -> dict[str, Any]:
    """The JSON of a refusal."""
    kind = KINDS[refusal.kind]
    if is_openai(path):
        return {"error": {"message": refusal.message, "type": kind.openai_type, "param": None, "code": kind.code}}
    return {"error": refusal.message, "error_type": kind.type}


def of_validation(errors: list[Any]) -> Refusal:
    """Refusal of what pydantic found wrong: where and what, never the value, which may be somebody's text."""
    kinds = {str(each["type"]) for each in errors}
    if "json_invalid" in kinds:
        return Refusal("invalid", f"the body is no JSON: {errors[0]['ctx']['error']}")
    said = list(dict.fromkeys(f"{_place(each['loc'])}: {each['msg']}" for each in errors))
    kind = "empty" if kinds & {"string_too_short", "too_short"} else "invalid"
    return Refusal(kind, "; or ".join(said[:4]))


def _place(path: tuple[Any, ...]) -> str:
    """Where in the body: "input", "inputs.3"; of a choice of types the names that pydantic puts in are left out."""
    named = [str(part) for part in path[1:] if isinstance(part, int) or part.isidentifier()]
    return ".".join(named[:1] + [part for part in named[1:] if part.isdecimal()]) or "body"


WHY = {
    400: "an empty text or list; of OpenAI's routes anything that cannot be taken",
    401: "the key is missing or wrong",
    404: "of OpenAI's routes: the model is a classifier",
    413: "too many bytes, texts or tokens",
    415: "no JSON, or compressed",
    422: "no JSON, or not as the schema has it",
    424: "the model is of another kind, or failed on this input",
    429: "too many requests or tokens are waiting",
    500: "the server failed",
    503: "not ready yet, or stopping",
}


class Error(BaseModel):
    """A refusal as text-embeddings-inference has it."""

    error: str
    error_type: str


class OpenAIErrorDetails(BaseModel):
    """Details of an error that the client reads."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(BaseModel):
    """A refusal as OpenAI has it."""

    error: OpenAIErrorDetails


def refusals(dialect: str, *statuses: int) -> dict[int | str, dict[str, Any]]:
    """The statuses of a route (none named: of one that computes), with why and in which form."""
    computing = [status for status in WHY if status not in ((422, 424) if dialect == "openai" else (404,))]
    model = OpenAIError if dialect == "openai" else Error
    return {status: {"model": model, "description": WHY[status]} for status in {*(statuses or computing), 401, 500}}


NonEmpty = Annotated[str, Field(min_length=1)]
Inputs = NonEmpty | Annotated[list[NonEmpty], Field(min_length=1)]


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]  # in JSON 2.0 is one too


def _with_null(schema: dict[str, Any]) -> None:
    needed = schema.get("required", ())
    for name, field in schema["properties"].items():
        if name not in needed and {"type": "null"} not in field.get("anyOf", ()):
            kept = {each: field.pop(each) for each in ("title", "description", "default") if each in field}
            schema["properties"][name] = {**kept, "anyOf": [field, {"type": "null"}]}


class Body(BaseModel):
    """A JSON object; fields that a route does not know are ignored, no value is taken for one of another type.

    null for a field that has a default is the default: some clients write down all that they do not say.
    """

    model_config = ConfigDict(strict=True, json_schema_extra=_with_null)

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, given: Any) -> Any:
        return {name: value for name, value in given.items() if value is not None} if isinstance(given, dict) else given


class _StrictRequest(Request):
    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = orjson.loads(await self.body())
        return self._json


class StrictRoute(APIRoute):
    """A route whose body is read so."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, given the stricter request."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            read = _StrictRequest(request.scope, request.receive)
            await read.body()  # here, where a Refusal is not yet taken for a body that cannot be read
            return await handler(read)

        return strict


def answer(content: Any, *, truncated: int = 0) -> Response:
    """JSON of what may hold arrays; ``truncated``: tokens that were cut off, in a header."""
    headers = {"X-Truncated-Tokens": str(truncated)} if truncated else None
    return Response(orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY), 200, headers, "application/json")


def as_list(inputs: str | list[str]) -> list[str]:
    """Texts, where one may stand for a list of it."""
    return [inputs] if isinstance(inputs, str) else inputs
