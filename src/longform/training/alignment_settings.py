"""Settings of an alignment: where pairs come from, and how an encoder learns from them."""

import math
from dataclasses import dataclass
from typing import Any

from longform.choices import DTYPES, PAIR_KINDS, SCHEDULES, STRATEGIES, did_you_mean
from longform.errors import ConfigurationError
from longform.runs.settings import Settings, check_between, check_choices, check_least, check_positive
from longform.training.settings import check_training, one_of

DEFAULT_STEPS = 200


@dataclass(frozen=True)
class AlignmentSource:
    """Where queries with their documents come from: pairs, queries beside documents, or texts without queries.

    Args:
        pairs: a file, rows or a table with a query and its document in each; equal documents are one document.
        queries: a file, rows or a table of queries with the ids of their documents.
        documents: that of ``queries``: documents with ids.
        texts: documents without queries, of which pairs are made.
        make: what is made of ``texts``, in turn: "sentence" or "passage" (a sentence, or some up to 100 words, asks for
            the text without them), "title" (the first line, or ``title_field``, for the rest), "halves" (the first half
            for the second).
        query_field: field of a record with its query.
        document_field: field of a record with the query's document.
        relevant_field: field with the id, or list of ids, of a query's documents.
        id_field: field with the id of one of ``documents``.
        text_field: field with the text of one of ``documents`` or ``texts``.
        title_field: field with the title of one of ``texts``.
        first: documents that are taken, from the beginning; null: all.
        weight: how often steps are made of this source, relative to the other sources' weights.

    Raises ConfigurationError for a value that cannot be.
    """

    pairs: Any = None
    queries: Any = None
    documents: Any = None
    texts: Any = None
    make: tuple[str, ...] | list[str] = ("passage", "sentence")
    query_field: str = "query"
    document_field: str = "document"
    relevant_field: str = "relevant"
    id_field: str = "id"
    text_field: str = "text"
    title_field: str | None = None
    first: int | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        given = [name for name in ("pairs", "queries", "texts") if getattr(self, name) is not None]
        if len(given) != 1:
            there = ", ".join(given) or "none of them"
            raise ConfigurationError(f"a source has one of pairs, queries (with documents) and texts; given: {there}")
        if (self.queries is None) != (self.documents is None):
            raise ConfigurationError("a source of queries needs documents beside them, and documents need queries")
        if not self.make:
            raise ConfigurationError(f"make names nothing to make of texts; it is of {', '.join(PAIR_KINDS)}")
        for kind in self.make:
            if kind not in PAIR_KINDS:
                near = did_you_mean(kind, PAIR_KINDS)
                raise ConfigurationError(f'make="{kind}"; it is of {", ".join(PAIR_KINDS)}{near}')
        check_positive(self, "weight", "first")


@dataclass(frozen=True)
class AlignmentSettings(Settings):
    """How an encoder learns that a query's vector is near its document's, and far from other documents'.

    Args:
        max_length: tokens that are read of a document, special ones included; default: all that the model takes, or
            the whole document in chunks.
        strategy: how a document is read: "whole" (in one pass), or "chunk-average" (windows of what the model takes,
            their vectors averaged, as ``longform embed --strategy chunk-average`` does).
        passage_tokens: tokens of a passage, where a query is to find the passages of its document in place of the one
            vector of the whole: pooled from the whole reading ("whole"), or each read alone ("chunk-average"). The
            answer is the passage that a made query was taken from, else the nearest one of the document. Default: one
            vector a document.
        documents_per_step: documents of one optimiser step, of each process: a query's other documents are what it must
            tell its own from.
        queries_per_document: queries of a document in one step at most.
        tokens_per_forward: tokens, padding included, that pass through the model at once.
        gradient_cache: read each step twice, first without gradients, so that only ``tokens_per_forward`` tokens keep
            their activations at a time; else all of a step do: a quarter faster, many times the memory.
        max_steps: optimiser steps. Of several budgets the smallest holds; without any, 200 steps.
        max_minutes: wall-clock minutes; the first steps are timed, and the number of steps that fit is then fixed.
        temperature: cosines are divided by it.
        keep_weight: weight of 1 - cosine between the vectors that short texts have and had; 0: they may go anywhere.
        keep_texts: short texts of one step for that: sentences of its documents, or texts that are given.
        learning_rate: highest learning rate of AdamW.
        warmup: part of the steps (0 to 1) in which the learning rate rises from 0.
        schedule: how the learning rate falls after that: "cosine" or "linear" to 0, or "constant".
        weight_decay: of AdamW, on matrices only.
        max_grad_norm: gradients are scaled down to this norm.
        train_word_embeddings: whether word vectors move too.
        lora_rank: rank of an adapter (LoRA) on the linear layers that learns in place of the weights; default: they do.
        gradient_checkpointing: recompute activations in the backward pass: less memory, a third more time.
        dropout: probability (0 to 1) while training.
        heldout_documents: documents of each source that are kept for measuring with their queries, at most a fifth of
            them; 0: nothing is measured.
        evaluations: how often is measured while training, at even distances (before and after come on top).
        save_every_steps: steps between two checkpoints; default: a tenth of the run.
        seed: of the order of documents, the choice of queries, the pairs that are made, and dropout.
        dtype: of the matrix products: "auto" (bfloat16 where CPU or GPU has it natively), "bfloat16" or "float32".
        device: where it is trained: "auto" (the first GPU of CUDA, else the CPU), "cpu", "cuda", "mps", "xpu"; an
            interrupted run may go on elsewhere.

    Raises ConfigurationError for a value that cannot be.
    """

    max_length: int | None = None
    strategy: str = one_of(STRATEGIES, "whole")
    passage_tokens: int | None = None
    documents_per_step: int = 8
    queries_per_document: int = 4
    tokens_per_forward: int = 8192
    gradient_cache: bool = True
    max_steps: int | None = None
    max_minutes: float | None = None
    temperature: float = 0.05
    keep_weight: float = 1.0
    keep_texts: int = 16
    learning_rate: float = 1e-4
    warmup: float = 0.1
    schedule: str = one_of(SCHEDULES, "linear")
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    train_word_embeddings: bool = False
    lora_rank: int | None = None
    gradient_checkpointing: bool = False
    dropout: float = 0.0
    heldout_documents: int = 16
    evaluations: int = 2
    save_every_steps: int | None = None
    seed: int = 0
    dtype: str = one_of(DTYPES, "auto")
    device: str = "auto"

    def __post_init__(self) -> None:
        check_training(self)
        check_choices(self)
        check_positive(
            self, "max_length", "passage_tokens", "temperature", "queries_per_document", "keep_texts", "lora_rank"
        )
        check_least(self, documents_per_step=2, heldout_documents=0, evaluations=0)
        check_between(self, 0, 1, "dropout")
        if not 0 <= self.keep_weight < math.inf:
            raise ConfigurationError(f"keep_weight={self.keep_weight} must be 0 or more, and finite")
