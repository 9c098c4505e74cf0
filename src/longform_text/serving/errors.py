"""Refusals, in the form that OpenAI's client reads, bodies of requests, and answers."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, NamedTuple

import orjson
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response


class _Kind(NamedTuple):
    """``status`` of an answer; ``type`` and ``code`` as OpenAI has them."""

    status: int
    type: str
    code: str | None = None


INVALID, FAILED = "invalid_request_error", "server_error"
KINDS = {
    "empty": _Kind(400, INVALID, "empty_input"),
    "invalid": _Kind(400, INVALID),
    "too_long": _Kind(400, INVALID, "context_length_exceeded"),
    "unauthorized": _Kind(401, INVALID, "invalid_api_key"),
    "not_found": _Kind(404, INVALID, "not_found"),
    "wrong_model": _Kind(404, INVALID, "model_not_found"),
    "method": _Kind(405, INVALID, "method_not_allowed"),
    "too_large": _Kind(413, INVALID, "request_too_large"),
    "media_type": _Kind(415, INVALID, "unsupported_media_type"),
    "overloaded": _Kind(429, "rate_limit_error", "overloaded"),
    "gone": _Kind(499, FAILED, "client_closed_request"),
    "internal": _Kind(500, FAILED, "internal_error"),
    "failed": _Kind(500, FAILED, "inference_failed"),
    "not_ready": _Kind(503, FAILED, "not_ready"),
}
STATUS_KINDS = {404: "not_found", 405: "method"}
RETRY = ("overloaded", "not_ready")


class Refusal(Exception):
    """A request that is not answered; ``kind``: one of KINDS. ``message``: for its sender, without any text of it."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


def refused(refusal: Refusal, headers: dict[str, str] | None = None) -> Response:
    """The answer to a request that is not answered otherwise."""
    kind, extra = KINDS[refusal.kind], dict(headers or {})
    if refusal.kind in RETRY:
        extra["Retry-After"] = "1"
    if refusal.kind == "unauthorized":
        extra["WWW-Authenticate"] = "Bearer"
    error = {"message": refusal.message, "type": kind.type, "param": None, "code": kind.code}
    return Response(orjson.dumps({"error": error}), kind.status, extra, "application/json")


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
    400: "what cannot be taken: no JSON, not as the schema has it, an empty or too long text",
    401: "the key is missing or wrong",
    404: "there is no such thing, or the model is of another kind",
    413: "too many bytes, texts or tokens",
    415: "no JSON, or compressed",
    429: "too many requests or tokens are waiting",
    500: "the server failed, or the model on this input",
    503: "not ready yet, or stopping",
}


class ErrorDetails(BaseModel):
    """Details of an error, as OpenAI's client reads them."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(BaseModel):
    """A refusal."""

    error: ErrorDetails


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The statuses of a route (none named: of one that computes), and why."""
    return {status: {"model": Error, "description": WHY[status]} for status in {*(statuses or WHY), 401, 500}}


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
