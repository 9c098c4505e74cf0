"""Refusals as the schema of the server (``/openapi.json``) has them."""

from typing import Any

from pydantic import BaseModel

WHY = {
    400: "an empty text or list; of OpenAI's routes anything that cannot be taken",
    401: "the key is missing or wrong",
    404: "of OpenAI's routes: the model is a classifier",
    408: "the body came too slowly",
    413: "too many bytes, texts or tokens",
    415: "no JSON, or compressed",
    422: "no JSON, or not as the schema has it",
    424: "the model is of another kind, or failed on this input",
    429: "too many requests, tokens or bytes are waiting",
    500: "the server failed",
    503: "not ready yet, or stopping",
    504: "not answered in time",
}


class Error(BaseModel):
    """A refusal as text-embeddings-inference has it."""

    error: str
    error_type: str


class OpenAIErrorDetails(BaseModel):
    """What the client reads."""

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
