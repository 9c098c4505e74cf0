"""Shared by routes that give vectors: the encoder as a request wants it, and the vectors of its rows."""

from typing import Any

import numpy as np
from starlette.requests import Request

from longform.inference.encoders import Encoder
from longform.serving.errors import Refusal
from longform.serving.reading import Rows
from longform.serving.service import Service


def changed(
    encoder: Encoder, *, prompt_name: str | None = None, dimensions: int | None = None, normalise: bool | None = None
) -> Encoder:
    """The encoder with what a request asks for; raises Refusal for what the model lacks."""
    if prompt_name is not None and prompt_name not in encoder.folder.prompts:
        there = ", ".join(encoder.folder.prompts) or "none"
        raise Refusal("invalid", f"prompt_name: the model has no prompt of that name; its prompts: {there}")
    if dimensions is not None and dimensions > encoder.whole:
        raise Refusal("invalid", f"dimensions: a vector has {encoder.whole}, fewer than {dimensions}")
    return encoder.changed(prompt_name=prompt_name, truncate_dim=dimensions, normalise=normalise)


def check_count(service: Service, texts: int) -> None:
    """Raise Refusal for too many texts in a request."""
    if texts > service.settings.max_texts:
        raise Refusal("too_large", f"the request has {texts:,} texts, the server takes {service.settings.max_texts:,}")


async def vectors_of(service: Service, request: Request, encoder: Encoder, rows: Rows) -> np.ndarray:
    """Vectors float32 (N, D) of rows that ``pooled_by`` finishes."""
    found: list[Any] = await service.results(request, rows)
    return encoder.finished(np.stack(found))
