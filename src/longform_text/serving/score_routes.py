"""The routes of text-embeddings-inference that give scores: /predict of a classifier, /rerank of a CrossEncoder."""

from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, Field, RootModel
from starlette.requests import Request
from starlette.responses import Response

from longform_text.data.text import Text
from longform_text.inference.classifiers import Classifier
from longform_text.serving.errors import Body, NonEmpty, StrictRoute, answer, refusals
from longform_text.serving.reading import Rows, check_pairs, logits_of, text_rows
from longform_text.serving.service import Service
from longform_text.serving.tei_routes import cuts

One = Annotated[list[NonEmpty], Field(min_length=1, max_length=2)]  # [text], or [first, second] of a pair
SIDE = "the side that is cut off; of pairs Right alone"


class PredictBody(Body):
    """Body of ``/predict``; as there, a list of strings is one text, or one pair."""

    inputs: NonEmpty | One | Annotated[list[One], Field(min_length=1)] = Field(
        description="a text, a pair [first, second], or a list of [text] or [first, second]"
    )
    truncate: bool | None = Field(None, description="cut a text over the limit; null: as the server was started")
    truncation_direction: Literal["Left", "Right"] = Field("Right", description=SIDE)
    raw_scores: bool = Field(False, description="the logits themselves")


class RerankBody(Body):
    """Body of ``/rerank``."""

    query: NonEmpty
    texts: Annotated[list[NonEmpty], Field(min_length=1)]
    truncate: bool | None = Field(None, description="cut a pair over the limit; null: as the server was started")
    raw_scores: bool = Field(False, description="the logits; false: their sigmoid")
    return_text: bool = False


class Prediction(BaseModel):
    """A label and its score."""

    score: float
    label: str


class Predictions(RootModel[list[Prediction] | list[list[Prediction]]]):
    """The labels of a text, best first, or a list of these."""


class Rank(BaseModel):
    """The score of one text: ``index`` is its place in the request."""

    index: int
    score: float
    text: str | None = None


class Ranks(RootModel[list[Rank]]):
    """Best first."""


def score_routes(service: Service) -> APIRouter:
    """The routes over a service."""
    router = APIRouter(route_class=StrictRoute, tags=["text-embeddings-inference"])

    @router.post("/predict", responses={200: {"model": Predictions}, **refusals("tei")})
    async def predict(body: PredictBody, request: Request) -> Response:
        """Labels and scores, as ``longform predict`` gives them: best first."""
        classifier = service.engine.classifier()
        several = isinstance(body.inputs, list) and isinstance(body.inputs[0], list)
        given: list[Any] = list(body.inputs) if several else [body.inputs]
        texts = [each if isinstance(each, str) else each[0] if len(each) == 1 else tuple(each) for each in given]
        check_pairs(classifier, texts)
        rows = await _read(service, texts, truncate=body.truncate, side=body.truncation_direction)
        found = [_labelled(classifier, logits, raw=body.raw_scores) for logits in await service.results(request, rows)]
        return answer(found if several else found[0], truncated=rows.truncated)

    @router.post("/rerank", responses={200: {"model": Ranks}, **refusals("tei")})
    async def rerank(body: RerankBody, request: Request) -> Response:
        """Texts by how well they fit the query, best first."""
        service.engine.reranker()
        rows = await _read(service, [(body.query, text) for text in body.texts], truncate=body.truncate)
        logits = np.concatenate(await service.results(request, rows)).astype(np.float64)
        scores = logits if body.raw_scores else np.exp(-np.logaddexp(0.0, -logits))
        order = np.argsort(-scores, kind="stable").tolist()
        ranks = [
            {"index": place, "score": float(scores[place])} | ({"text": body.texts[place]} if body.return_text else {})
            for place in order
        ]
        return answer(ranks, truncated=rows.truncated)

    return router


def _labelled(classifier: Classifier, logits: np.ndarray, *, raw: bool) -> list[dict[str, Any]]:
    if raw:
        scores: dict[str, float] = dict(zip(classifier.labels, logits.tolist(), strict=True))
    else:
        record = classifier.record_format(0.5)(logits)
        scores = record.get("scores") or {classifier.labels[0]: record["score"]}
    best = sorted(scores.items(), key=lambda each: -each[1])
    return [{"score": score, "label": label} for label, score in best]


async def _read(service: Service, texts: list[Text], *, truncate: bool | None, side: str = "Right") -> Rows:
    service.check_count(len(texts))
    characters = sum(len(text) if isinstance(text, str) else len(text[0]) + len(text[1] or "") for text in texts)
    cut = cuts(service, truncate)
    return await service.read(characters, lambda engine: text_rows(engine, texts, logits_of, truncate=cut, side=side))
