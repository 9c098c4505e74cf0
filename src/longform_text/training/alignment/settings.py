"""Settings of an alignment: where pairs come from, and how an encoder learns from them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from longform.choices import BOUNDARIES, PAIR_KINDS, did_you_mean
from longform.errors import ConfigurationError
from longform_text.settings import check_between, check_least, check_positive, one_of
from longform_text.training.settings import TrainingSettings


@dataclass(frozen=True)
class AlignmentSource:
    """Where queries with their documents come from: pairs, queries beside documents, or texts without queries.

    Args:
        pairs: a file, rows or a table with a query and its document in each; equal documents are one document.
        queries: a file, rows or a table of queries with the ids of their documents.
        documents: a file, rows or a table of the documents that ``queries`` name, with their ids.
        texts: documents without queries, of which pairs are made.
        make: what is made of ``texts``, in turn: "sentence" or "passage" (a sentence, or some up to 100 words, asks for
            the text without them), "title" (the first line, or ``title_field``, asks for the rest), "halves" (the first
            half asks for the second).
        query_field: field of a record with its query.
        document_field: field of a record with the query's document.
        relevant_field: field with the id, or list of ids, of a query's documents.
        id_field: field with the id of one of ``documents``.
        text_field: field with the text of one of ``documents`` or ``texts``.
        title_field: field with the title of one of ``texts``.
        spans_field: field of ``pairs`` with the characters from-to of the document that answer the query, a list of
            them, or null where nobody knows: with ``passage_tokens``, which passages are right.
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
    spans_field: str | None = None
    first: int | None = None
    weight: float = 1.0

    def reads(self) -> list[tuple[Any, tuple[str, ...]]]:
        """Sources that are read, each with the fields that its records have."""
        every = [
            (self.pairs, tuple(filter(None, (self.query_field, self.document_field, self.spans_field)))),
            (self.queries, (self.query_field, self.relevant_field)),
            (self.documents, (self.id_field, self.text_field)),
            (self.texts, (self.text_field,)),
        ]
        return [(given, fields) for given, fields in every if given is not None]

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


@dataclass(frozen=True, init=False)
class AlignmentSettings(TrainingSettings):
    """How an encoder learns that a query's vector is near its document's, and far from other documents';
    beside the settings of every training.

    The recipe: 200 steps, a rate that rises for a tenth of them to 1e-4 and falls linearly, measured before, after and
    twice between.

    Args:
        max_length: tokens that are read of a document, special ones included; default: all that the model takes.
        passage_tokens: tokens of a passage, where a query is to find passages of its document, pooled from the reading
            of the whole, in place of the one vector of the whole: those of its spans, or any where none are known.
            Default: one vector a document.
        passage_boundaries: where a passage may begin.
        same_document_negatives: share of the loss (0 to 1) in which a query tells its passages from the others of
            their document; the rest tells them from those of other documents.
        similar_documents: whether the documents of a step are alike (TF-IDF of their beginnings), so that a query's
            document is told from its neighbours, not from documents about something else.
        documents_per_step: documents of one optimiser step, of each process: a query's other documents are what it must
            tell its own from.
        queries_per_document: queries of a document in one step at most.
        tokens_per_forward: tokens, padding included, that pass through the model at once; a step is read twice, first
            without gradients, so that only so many keep their activations at a time.
        temperature: cosines are divided by it.
        keep_weight: weight of the loss that keeps vectors of short texts where they were before the training (1 -
            cosine between both); 0: none.
        keep_texts: short texts of one step for that: sentences of its documents.
        train_word_embeddings: whether word vectors move too.
        lora_rank: rank of an adapter (LoRA) on the linear layers that learns in place of the weights; default: none,
            the weights learn.
        dropout: probability (0 to 1) while training.
        heldout_documents: documents of each source that are kept for measuring with their queries, at most a fifth of
            them; 0: nothing is measured.

    Raises ConfigurationError for a value that cannot be.
    """

    recipe: ClassVar[Mapping[str, Any]] = {
        "max_steps": 200,
        "learning_rate": 1e-4,
        "per_device_train_batch_size": 1,  # an item is a step
        "train_sampling_strategy": "sequential",
        "eval_strategy": "steps",
        "eval_steps": 1 / 3,
        "eval_on_start": True,
    }

    max_length: int | None = None
    passage_tokens: int | None = None
    passage_boundaries: str = one_of(BOUNDARIES, "tokens")
    same_document_negatives: float = 0.0
    similar_documents: bool = False
    documents_per_step: int = 8
    queries_per_document: int = 4
    temperature: float = 0.05
    keep_weight: float = 1.0
    keep_texts: int = 16
    train_word_embeddings: bool = False
    lora_rank: int | None = None
    dropout: float = 0.0
    heldout_documents: int = 16

    def check(self) -> None:
        """See TrainingSettings."""
        super().check()
        check_positive(
            self, "max_length", "passage_tokens", "temperature", "queries_per_document", "keep_texts", "lora_rank"
        )
        check_least(self, documents_per_step=2, heldout_documents=0)
        check_between(self, 0, 1, "dropout", "same_document_negatives")
        if self.same_document_negatives and self.passage_tokens is None:
            raise ConfigurationError("same_document_negatives are passages: give passage_tokens")
        if not 0 <= self.keep_weight < math.inf:
            raise ConfigurationError(f"keep_weight={self.keep_weight} must be 0 or more, and finite")
