"""Retrieval side by side: a Longform, its original cut and in chunks, BM25, and each of these fused with it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tqdm import tqdm

from longform.choices import RETRIEVAL_SCORES
from longform.errors import ConfigurationError, DataError, require
from longform.pretrained.tokenizers import content_ids, special_tokens
from longform_lab.evaluation.comparison import (
    Contender,
    RunSettings,
    bootstrap,
    encoder_of,
    run_options,
    seen,
    side_by_side,
)
from longform_text.data.progress import hidden
from longform_text.data.text import Document
from longform_text.evaluation.retrieval import Ranker, RetrievalScores, best_first, cosine_ranker, ranking_scores
from longform_text.evaluation.retrieval_data import RetrievalData, read_retrieval
from longform_text.inference.chunks import beginning, encode_chunks
from longform_text.inference.encoders import Encoder
from longform_text.inference.strategies import Collected

BM25 = Contender("BM25", "bm25s", "whole")


def compare_retrieval(
    models: Sequence[Contender],
    queries: Any,
    documents: Any,
    settings: RunSettings,
    *,
    query_field: str = "query",
    relevant_field: str = "relevant",
    id_field: str = "id",
    text_field: str = "text",
    depth: int = 10,
    score: str = "document",
    chunk_tokens: int = 256,
    bm25: bool = False,
) -> list[dict[str, Any]]:
    """nDCG and recall x 100; ``relevant_field``: the id, or list of ids, of a query's documents.

    A sentence-transformers folder's prompts for queries and for documents come before them. ``score``: a document is
    as good as its one vector ("document"), or as its best chunk of ``chunk_tokens`` ("best-chunk"). Chunks of a
    Longform, and of the beginning that the original takes, are pooled from the reading of the whole; those of the
    original in chunks are read one by one. ``bm25``: a row of BM25, and one of each model fused with it by reciprocal
    ranks.

    Beside nDCG are the ends of its 95 % ``interval`` over queries, and the ``difference`` (mean, low, high) from the
    row that it is ``compared_with``, paired by query: the first row, of fused ones BM25's. ``per_query``: every nDCG.
    """
    if score not in RETRIEVAL_SCORES:
        raise ConfigurationError(f'score is "{score}"; it is one of {", ".join(RETRIEVAL_SCORES)}')
    data = read_retrieval(
        queries,
        documents,
        query_field=query_field,
        relevant_field=relevant_field,
        id_field=id_field,
        text_field=text_field,
    )
    rankers: dict[str, Ranker] = {}

    def scores(name: str) -> dict[str, Any]:
        return _scores(ranking_scores(rankers[name], data.relevant, documents=len(data.documents), depth=depth))

    def dense(model: Contender) -> dict[str, Any]:
        rankers[model.name], about = _read(model, data, settings, score, chunk_tokens)
        return {**scores(model.name), **about}

    def lexical(model: Contender) -> dict[str, Any]:
        rankers[model.name] = bm25_ranker(data.questions, [document.text for document in data.documents])
        return {**scores(model.name), "reads": "all words", "tokens": 0, "truncated": 0}

    def fused(record: dict[str, Any], words: dict[str, Any]) -> dict[str, Any]:
        name, seconds = f"{record['name']} + BM25", record["seconds"] + words["seconds"]
        rankers[name] = fused_ranker(rankers[record["name"]], rankers[BM25.name])
        return record | {"name": name, **scores(name), "seconds": seconds, "compared_with": BM25.name}

    if score == "best-chunk":
        models = [replace(each, name=each.name.replace("chunks averaged", "chunks cut first")) for each in models]
    records = side_by_side(models, "retrieval", len(data.questions), dense)
    if bm25:
        (words,) = side_by_side([BM25], "retrieval", len(data.questions), lexical)
        records = [*records, words, *(fused(record, words) for record in records)]
    return [_with_intervals(record, records) for record in records]


def _read(
    model: Contender, data: RetrievalData, settings: RunSettings, score: str, chunk_tokens: int
) -> tuple[Ranker, dict[str, Any]]:
    """Ranking of the documents by a contender's vectors, and what it saw of the documents (``seen``)."""
    encoder, options = encoder_of(model, settings), run_options(model, settings)
    wanted = encoder.for_queries().collect(data.questions, **options)
    if score == "document":
        read, starts = encoder.for_documents().collect(data.documents, **options), None
        about = seen(model, encoder, read)
    else:
        read, starts = _chunked(encoder.for_documents(), model, data.documents, chunk_tokens, options)
        about = seen(model, encoder, read)
        about["reads"] = _chunks_read(encoder, model, chunk_tokens, about["reads"])
    return cosine_ranker(wanted.values, read.values, starts), about


def _chunks_read(encoder: Encoder, model: Contender, size: int, reads: str) -> str:
    """How a contender that ``reads`` so much of a text comes to the vectors of its chunks, in words."""
    if model.strategy == "chunk-average":
        size = min(size, encoder.limit - special_tokens(encoder.tokenizer).total)
    how = {"chunk-average": ", each read alone", "cut": f" of the {reads}"}
    return f"chunks of {size:,} tokens" + how.get(model.strategy, f", {encoder.limit:,} tokens read together")


def _scores(found: RetrievalScores) -> dict[str, Any]:
    recall = {f"recall@{at}": 100 * value for at, value in found.recall.items()}
    return {f"ndcg@{found.depth}": 100 * found.ndcg, **recall, "per_query": (100 * found.each).tolist()}


def _with_intervals(record: dict[str, Any], records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The record, its 95 % interval, and how much better it is than the one that it is compared with."""
    other = next((each for each in records if each["name"] == record.get("compared_with")), records[0])
    own, others = (np.array(each["per_query"]) for each in (record, other))
    return record | {
        "interval": bootstrap(own)[1:],
        "compared_with": other["name"],
        "difference": tuple(bootstrap(own - others)),
    }


def _chunked(
    encoder: Encoder, model: Contender, corpus: Sequence[Document], size: int, options: dict[str, Any]
) -> tuple[Collected, np.ndarray]:
    """Vectors of the chunks of all documents, and where those of each document begin."""
    texts = [beginning(encoder, each.text) if model.strategy == "cut" else each.text for each in corpus]
    batch, alone = options["max_tokens_per_batch"], model.strategy == "chunk-average"
    found = encode_chunks(encoder, texts, chunk_tokens=size, max_tokens_per_batch=batch, alone=alone)
    bar = tqdm(found, total=len(texts), desc="chunks of", unit="text", disable=hidden(options["progress"]))
    vectors = [each.vectors for each in bar]
    shorter = sum(len(text) < len(each.text) for text, each in zip(texts, corpus, strict=True))
    tokens = sum(map(len, content_ids(encoder.tokenizer, texts)))
    return Collected(np.concatenate(vectors), tokens, shorter), np.cumsum([0, *map(len, vectors)])[:-1]


FUSION = 60  # of reciprocal ranks (Cormack, Clarke and Buettcher 2009): what the first rank is worth beside later ones


def fused_ranker(*rankers: Ranker) -> Ranker:
    """Reciprocal rank fusion: the sum over ``rankers`` of 1 / (60 + rank); not found by one is worth nothing there."""

    def scores(some: slice) -> np.ndarray:
        return np.sum([_reciprocal_ranks(ranker(some)) for ranker in rankers], axis=0)

    return scores


def _reciprocal_ranks(scores: np.ndarray) -> np.ndarray:
    """1 / (60 + rank), ranks from 1, of the columns of ``scores`` (q, N) in each row; 0 for -inf."""
    ranks = np.empty(scores.shape)
    np.put_along_axis(ranks, best_first(scores), np.arange(1.0, scores.shape[1] + 1)[None], axis=1)
    return np.where(np.isneginf(scores), 0.0, 1 / (FUSION + ranks))


STOP_WORDS = "en"


def bm25_ranker(questions: Sequence[str], documents: Sequence[str]) -> Ranker:
    """BM25 of whole ``documents``, as package bm25s has it (k1 1.5, b 0.75, no stemming), without English stop words.

    A document that shares no word with a query is not found by it. Raises DataError where no document has a word.
    """
    package = require("bm25s", extra="bm25")
    words = package.tokenize(list(documents), stopwords=STOP_WORDS, show_progress=False)
    if not words.vocab:
        raise DataError(f"no word to search for in the {len(documents)} documents: BM25 leaves out English stop words")
    index = package.BM25()
    index.index(words, show_progress=False)
    asked = package.tokenize(list(questions), stopwords=STOP_WORDS, return_ids=False, show_progress=False)

    def scores(some: slice) -> np.ndarray:
        return np.stack([_word_scores(index, each, len(documents)) for each in asked[some]])

    return scores


def _word_scores(index: Any, words: list[str], documents: int) -> np.ndarray:
    """Scores of one query: float32 (N,), -inf for a document that has none of its ``words``."""
    found = index.get_scores(words) if words else np.zeros(documents, np.float32)
    return np.where(found > 0, found, -np.inf)
