"""Our own routes that give scores: /predict of a classifier, /v1/rerank, in the usual form, of a CrossEncoder."""

from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, Field, RootModel
from starlette.requests import Request
from starlette.responses import Response

from longform_text.inference.classifiers import Classifier
from longform_text.serving.errors import Body, NonEmpty, StrictRoute, Whole, answer, refusals
from longform_text.serving.reading import check_pairs, logits_of
from longform_text.serving.service import Service

One = Annotated[list[NonEmpty], Field(min_length=1, max_length=2)]  # [text], or [first, second] of a pair


class PredictBody(Body):
    """Body of ``/predict``; a list of strings is one text, or one pair."""

    inputs: NonEmpty | One | Annotated[list[One], Field(min_length=1)] = Field(
        description="a text, a pair [first, second], or a list of [text] or [first, second]"
    )
    raw_scores: bool = Field(False, description="the logits themselves")


class RerankBody(Body):
    """Body of ``/v1/rerank``."""

    query: NonEmpty
    documents: Annotated[list[NonEmpty], Field(min_length=1)]
    model: str | None = Field(None, description="ignored: the server has one model")
    top_n: Annotated[Whole, Field(ge=1)] | None = Field(None, description="the best ones alone")


class Prediction(BaseModel):
    """A label and its score."""

    score: float
    label: str


class Predictions(RootModel[list[Prediction] | list[list[Prediction]]]):
    """The labels of a text, best first, or a list of these."""


class Rank(BaseModel):
    """The score of one document, 0 to 1: ``index`` is its place in the request."""

    index: int
    relevance_score: float


class Ranks(BaseModel):
    """Best first."""

    model: str
    results: list[Rank]


def score_routes(service: Service) -> APIRouter:
    """The routes over a service."""
    router = APIRouter(route_class=StrictRoute, tags=["scores"])

    @router.post("/predict", responses={200: {"model": Predictions}, **refusals()})
    async def predict(body: PredictBody, request: Request) -> Response:
        """Labels and scores, as ``longform predict`` gives them: best first."""
        classifier = service.engine.classifier()
        several = isinstance(body.inputs, list) and isinstance(body.inputs[0], list)
        given: list[Any] = list(body.inputs) if several else [body.inputs]
        texts = [each if isinstance(each, str) else each[0] if len(each) == 1 else tuple(each) for each in given]
        check_pairs(classifier, texts)
        rows = await service.text_rows(texts, logits_of)
        found = [_labelled(classifier, logits, raw=body.raw_scores) for logits in await service.results(request, rows)]
        return answer(found if several else found[0], truncated=rows.truncated)

    @router.post("/v1/rerank", responses={200: {"model": Ranks}, **refusals()})
    async def rerank(body: RerankBody, request: Request) -> Response:
        """Documents by how well they fit the query, best first."""
        service.engine.reranker()
        rows = await service.text_rows([(body.query, text) for text in body.documents], logits_of)
        logits = np.concatenate(await service.results(request, rows)).astype(np.float64)
        scores, order = np.exp(-np.logaddexp(0.0, -logits)), np.argsort(-logits, kind="stable")[: body.top_n].tolist()
        results = [{"index": place, "relevance_score": float(scores[place])} for place in order]
        return answer({"model": service.engine.name, "results": results}, truncated=rows.truncated)

    return router


def _labelled(classifier: Classifier, logits: np.ndarray, *, raw: bool) -> list[dict[str, Any]]:
    if raw:
        scores: dict[str, float] = dict(zip(classifier.labels, logits.tolist(), strict=True))
    else:
        record = classifier.record_format(0.5)(logits)
        scores = record.get("scores") or {classifier.labels[0]: record["score"]}
    best = sorted(scores.items(), key=lambda each: -each[1])
    return [{"score": score, "label": label} for label, score in best]
