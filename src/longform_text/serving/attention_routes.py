"""Our own route for looking: what a word of a text draws on, near and far, in each layer (effective maps).

Axes: L layers, h heads, n tokens, m words.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from longform.choices import facts_of
from longform.models.effective_maps import effective_maps
from longform.models.text_reader import reader_of
from longform_text.data.batching import TokenizedText, enough
from longform_text.data.text import clean_text
from longform_text.serving.engine import Engine
from longform_text.serving.errors import Body, NonEmpty, Refusal, StrictRoute, Whole, answer, refusals
from longform_text.serving.reading import Rows
from longform_text.serving.service import Service

MOST_TOKENS = 512  # the maps of all layers and heads are n x n: of MiniLM 75 MB, and as much again while they are made


class AttentionBody(Body):
    """Body of ``/attention``."""

    inputs: NonEmpty = Field(description=f"a text, of which the first {MOST_TOKENS} tokens are read")
    word: Annotated[Whole, Field(ge=0, le=MOST_TOKENS)] | None = Field(
        None, description="the number of the word that is looked at; null: the words alone"
    )
    head: Annotated[Whole, Field(ge=0)] | None = Field(
        None, description="the number of the attention head, in each layer; null: their mean"
    )


class Word(BaseModel):
    """A word's characters from-to (Unicode code points)."""

    start: int
    end: int


class Attention(BaseModel):
    """Shares that a word's tokens draw from others. A layer's ``weights`` and ``special`` sum to 1."""

    model: str
    words: list[Word]
    tokens: int = Field(description="that were read, special ones included")
    truncated: bool = Field(description="the text goes on after the last word")
    heads: int = Field(description="that every layer has")
    near: tuple[int, int] | None = Field(description="the first and last word that it sees exactly; null: no window")
    weights: list[list[float]] | None = Field(description="of each layer, for each word")
    special: list[float] | None = Field(description="of each layer, for all special tokens together")


class Read(NamedTuple):
    """A text's ids; ``words``: characters from-to; ``homes`` int (n,): each token's word, m of a special one."""

    ids: list[int]
    words: list[tuple[int, int]]
    homes: np.ndarray
    truncated: bool


def attention_routes(service: Service) -> APIRouter:
    """The routes over a service."""
    router = APIRouter(route_class=StrictRoute, tags=["attention"])

    @router.post("/attention", responses={200: {"model": Attention}, **refusals("tei")})
    async def attention(body: AttentionBody, request: Request) -> Response:
        """The words of a text, and what one of them draws on in each layer; of Longforms whose attention has a map."""
        model = _with_map(service.engine)
        read = await service.read(len(body.inputs), lambda engine: read_words(engine, body.inputs))
        found, near, heads = None, None, _heads(model)
        if body.word is not None:
            if body.word >= len(read.words):
                raise Refusal("invalid", f"word: {body.word} of {len(read.words)} words that were read, the first is 0")
            if body.head is not None and body.head >= heads:
                raise Refusal("invalid", f"head: {body.head} of {heads} heads, the first is 0")
            at = np.flatnonzero(read.homes == body.word)
            row = (TokenizedText(read.ids), lambda _: drawn(model, read, at, body.head))
            near = _near(read, at, model.config.attention_window)
            (found,) = await service.results(request, Rows([row]))
        return answer(
            {
                "model": service.engine.name,
                "words": [{"start": start, "end": end} for start, end in read.words],
                "tokens": len(read.ids),
                "truncated": read.truncated,
                "heads": heads,
                "near": near,
                "weights": None if found is None else np.ascontiguousarray(found[:, :-1]),
                "special": None if found is None else np.ascontiguousarray(found[:, -1]),
            }
        )

    return router


def _with_map(engine: Engine) -> Any:
    """The model; raises Refusal where its attention has no map."""
    model: Any = engine.runner.model
    if reader_of(model) is None:
        raise Refusal("wrong_model", f"{engine.name} is no Longform: its attention is not looked at here")
    if not facts_of(model.config.projection).has_map:
        raise Refusal("wrong_model", f'{engine.name} has the projection "{model.config.projection}", which has no map')
    return model


def _heads(model: Any) -> int:
    return min(layer.attention.num_heads for layer in model.base_model.encoder.layers)


def read_words(engine: Engine, text: str) -> Read:
    """The words of a text's first tokens, as its tokenizer parts them."""
    tokenizer, special, text = engine.runner.tokenizer, engine.special, clean_text(text)[0]
    room = min(engine.runner.limit, MOST_TOKENS) - special.total
    begun = text[: enough(text, tokenizer, room)]
    made = tokenizer(begun, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    words: list[tuple[int, int]] = []
    homes, last = [], None
    for home, (start, end) in zip(made.word_ids()[:room], made["offset_mapping"][:room], strict=True):
        if home is not None and home == last:
            words[-1] = (words[-1][0], end)
        elif home is not None:
            words.append((start, end))
        last = home
        homes.append(-1 if home is None else len(words) - 1)
    places = np.array([-1] * len(special.prefix) + homes + [-1] * len(special.suffix), dtype=np.int64)
    rest = text[words[-1][1] :] if words else ""
    return Read(
        special.around(made["input_ids"][:room]), words, np.where(places < 0, len(words), places), bool(rest.strip())
    )


def _near(read: Read, at: np.ndarray, window: int | None) -> tuple[int, int] | None:
    """The first and last word of which the tokens ``at`` see a token exactly."""
    if window is None:
        return None
    homes = read.homes[max(0, at[0] - window) : at[-1] + window + 1]
    homes = homes[homes < len(read.words)]
    return int(homes.min()), int(homes.max())


def drawn(model: Any, read: Read, at: np.ndarray, head: int | None) -> np.ndarray:
    """Shares drawn by the tokens ``at``, their mean: float32 (L, m + 1), special tokens last; no ``head``: of all."""
    ids = torch.tensor([read.ids], device=model.device)
    maps = effective_maps(model, input_ids=ids, attention_mask=torch.ones_like(ids))
    chosen = slice(None) if head is None else slice(head, head + 1)
    rows = torch.stack([each[0, chosen, at].float().mean(dim=(0, 1)) for each in maps]).cpu()
    found = torch.zeros(len(rows), len(read.words) + 1)
    return found.index_add_(1, torch.from_numpy(read.homes), rows).numpy()
