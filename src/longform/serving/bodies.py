"""Bodies of requests, read strictly: orjson refuses NaN, lone surrogates, bytes that are not UTF-8 and deep nesting."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import orjson
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

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
