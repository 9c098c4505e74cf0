"""Bodies of requests, read strictly: orjson refuses NaN, lone surrogates, bytes that are not UTF-8 and deep nesting."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import orjson
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

NonEmpty = Annotated[str, Field(min_length=1)]
Inputs = NonEmpty | Annotated[list[NonEmpty], Field(min_length=1)]


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]  # in JSON 2.0 is one too


class Body(BaseModel):
    """A JSON object; fields that a route does not know are ignored, no value is taken for one of another type."""

    model_config = ConfigDict(strict=True)


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
