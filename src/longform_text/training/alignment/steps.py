"""Steps of an alignment by their number: documents of one source with queries, and short texts, as batches of tokens.

Axes: Q queries, D documents, P their passages (one of each, where it has one vector), S short texts, F features.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from longform_text.data.batching import TokenizedText, batches_of, tokenize
from longform_text.data.spans import sentence_spans
from longform_text.evaluation.embeddings import cosines
from longform_text.evaluation.retrieval import cosine_ranker, ranking_scores
from longform_text.inference.chunks import beginning, chunk_plan, tokens_around
from longform_text.inference.encoders import Encoder
from longform_text.training.alignment.settings import AlignmentSettings
from longform_text.training.alignment.similar import similar_batches
from longform_text.training.alignment.sources import Example, PairSource

SHORT = (20, 300)  # characters of a sentence that is to keep its vector
QUERY, DOCUMENT, PLAIN = "query", "document", "plain"  # what stands before a text: the prompt of its side
PARTS = "parts"  # of a batch: row and tokens from-to of each vector, where it is not one a row


# Tokens of a text, and from-to of those that each of its vectors is made of; nothing: one vector of all.
Tokens = tuple[TokenizedText, list[tuple[int, int]]]


@dataclass(frozen=True)
class Step:
    """``batches``: keyword arguments of the encoder, the ``side``, and perhaps ``parts``. ``order`` (Q + P + S): where
    the vector of each query, passage and short text stands among those of all batches. ``owners`` long (P): the
    document of each passage. ``answers`` long (Q): the document of each query; ``right`` bool (Q, P): the passages of
    it that answer; ``excluded`` bool (Q, D): these are neither right nor wrong. ``short``: the S texts that are to keep
    their vectors. ``tokens``: without padding.
    """

    batches: list[dict[str, Any]]
    order: Tensor
    owners: Tensor
    answers: Tensor
    right: Tensor
    excluded: Tensor
    short: list[str]
    tokens: int

    def parted(self, vectors: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """The vectors of queries (Q, F), passages (P, F) and short texts (S, F), from those of each batch."""
        every = torch.cat(list(vectors)).float()
        sizes = [len(self.answers), len(self.owners), len(self.short)]
        queries, passages, short = every[self.order.to(every.device)].split(sizes)
        return queries, passages, short


@dataclass
class Reader:
    """Texts as batches of tokens; ``sides``: the encoder with the prompt of each side, ``limit``: tokens of a text.

    ``passage_tokens``: of each passage of a document, pooled from the reading of the whole, begun at ``boundaries``;
    None: it is one.
    """

    sides: dict[str, Encoder]
    limit: int
    tokens_per_forward: int
    passage_tokens: int | None = None
    boundaries: str = "tokens"

    def __post_init__(self) -> None:
        self.documents = replace(self.sides[DOCUMENT], limit=self.limit)

    def step(self, examples: Sequence[Example], short: Sequence[str]) -> Step:
        """One step of documents with queries, and short texts."""
        queries = [query for example in examples for query in example.queries]
        asking = torch.tensor([len(example.queries) for example in examples])
        answers = torch.arange(len(examples)).repeat_interleave(asking)
        read = [self._passages(example.document) for example in examples]
        documents, passages = [tokens for tokens, _ in read], [spans for _, spans in read]
        sides: dict[str, list[Tokens]] = {
            QUERY: [(self._tokens(query, QUERY), []) for query in queries],
            DOCUMENT: documents,
            PLAIN: [(self._tokens(text, PLAIN), []) for text in short],
        }
        batches: list[dict[str, Any]] = []
        places: list[int] = []
        for side, texts in sides.items():
            batches += self._batches(side, texts, places)
        return Step(
            batches,
            torch.tensor(places).argsort(),
            torch.arange(len(examples)).repeat_interleave(torch.tensor([*map(len, passages)])),
            answers,
            _right(examples, passages),
            _excluded(examples),
            list(short),
            sum(len(text.input_ids) for texts in sides.values() for text, _ in texts),
        )

    def _batches(self, side: str, texts: Sequence[Tokens], places: list[int]) -> Iterator[dict[str, Any]]:
        """Batches of one side, to which the ``places`` of their vectors among all texts' are added."""
        encoder = self.sides[side]
        firsts = list(accumulate((max(1, len(parts)) for _, parts in texts), initial=len(places)))
        for batch in batches_of([text for text, _ in texts], encoder.tokenizer, self.tokens_per_forward):
            for index in batch.indices:
                places += range(firsts[index], firsts[index + 1])
            parts = [(row, *part) for row, index in enumerate(batch.indices) for part in texts[index][1]]
            inputs = {**batch.model_inputs(encoder.model.device), "side": side}
            yield {**inputs, PARTS: parts} if parts else inputs

    def _tokens(self, text: str, side: str) -> TokenizedText:
        encoder = self.sides[side]
        return tokenize([encoder.prompt + text], encoder.tokenizer, max_length=self.limit)[0]

    def _passages(self, text: str) -> tuple[Tokens, np.ndarray]:
        """Tokens of a document with those of each passage, and the characters from-to of these (m, 2)."""
        if self.passage_tokens is None:
            return (self._tokens(text, DOCUMENT), []), np.array([(0, len(text))])
        special, read = tokens_around(self.documents), beginning(self.documents, text)
        how: Any = {"chunk_tokens": self.passage_tokens, "boundaries": self.boundaries}
        plan = chunk_plan(self.documents, special, read, **how)
        (reading,) = plan.readings
        return (reading.tokens, [(place.start, place.stop) for place in reading.places.values()]), plan.spans


def right_passages(spans: Sequence[tuple[int, int]], passages: np.ndarray) -> np.ndarray:
    """Bool (m,): of ``passages`` (m, 2) those that share half of the shorter of both with one of ``spans``.

    All where no span is known, or none of them is in a passage: any of the document's may be right.
    """
    found = np.zeros(len(passages), dtype=bool)
    starts, stops = passages.T
    for start, stop in spans:
        shared = np.minimum(stops, stop) - np.maximum(starts, start)
        found |= (shared > 0) & (2 * shared >= np.minimum(stops - starts, stop - start))
    return found if found.any() else ~found


def _right(examples: Sequence[Example], passages: Sequence[np.ndarray]) -> Tensor:
    """Bool (Q, P): the passages of its document that each query asks for; ``passages``: spans in each document."""
    blocks = [
        np.stack([right_passages(spans, own) for spans in example.spans or [[]] * len(example.queries)])
        for example, own in zip(examples, passages, strict=True)
    ]
    return torch.block_diag(*map(torch.from_numpy, blocks))


def _excluded(examples: Sequence[Example]) -> Tensor:
    """Bool (Q, D): other documents that answer a query too, or hold it word for word."""
    rows = []
    for number, example in enumerate(examples):
        for query, places in zip(example.queries, example.answers, strict=True):
            found = [other.place in places or query in other.document for other in examples]
            found[number] = False
            rows.append(found)
    return torch.tensor(rows)


class AlignmentSteps(Dataset):
    """Each step's documents are of one source; sources take turns by ``weights``. Of several ``processes`` each has a
    step of its own, one after the other.
    """

    def __init__(
        self,
        sources: Sequence[PairSource],
        weights: Sequence[float],
        reader: Reader,
        settings: AlignmentSettings,
        *,
        steps: int,
        processes: int = 1,
    ) -> None:
        self.sources, self.weights, self.reader, self.settings = sources, weights, reader, settings
        self.processes, self.planned = processes, list(islice(self._plan(), steps * processes))

    def __len__(self) -> int:
        return len(self.planned)

    def __getitem__(self, index: int) -> Step:
        """One step: examples of the documents of one batch, and short texts."""
        source, places = self.planned[index]
        draw = random.Random(f"step {index} {self.settings.seed}")
        most = self.settings.queries_per_document
        chosen = [self.sources[source].example(place, draw, most=most) for place in places]
        documents = [example.document for example in chosen] if self.settings.keep_weight else []
        return self.reader.step(chosen, sentences_of(documents, self.settings.keep_texts, draw))

    def documents(self, steps: int) -> int:
        """How many are read in so many steps, by all processes; one that comes again counts again."""
        return sum(len(places) for _, places in self.planned[: steps * self.processes])

    def _plan(self) -> Iterator[tuple[int, list[int]]]:
        """Source and documents of each step, as evenly as the weights allow, without end."""
        batches, visits = [self._batches(source) for source in range(len(self.sources))], [0] * len(self.sources)
        while True:
            source = min(range(len(visits)), key=lambda place: (visits[place] + 0.5) / self.weights[place])
            visits[source] += 1
            yield source, next(batches[source])

    def _batches(self, source: int) -> Iterator[list[int]]:
        """Batches of a source's documents, each pass in a new order; what is left over of a pass is not read in it."""
        size = self.settings.documents_per_step
        for passed in count():
            order = list(self.sources[source].taught)
            random.Random(f"order {source} {passed} {self.settings.seed}").shuffle(order)
            groups = [range(first, first + size) for first in range(0, len(order), size)]
            if self.settings.similar_documents:
                groups = similar_batches([self.sources[source].documents[place] for place in order], size)
            for group in groups[: max(1, len(order) // size)]:
                yield [order[place] for place in group if place < len(order)]


def sentences_of(documents: Sequence[str], most: int, draw: random.Random) -> list[str]:
    """Up to ``most`` sentences, about as many of each document."""
    found = []
    for document in documents:
        spans = [span for span in sentence_spans(document) if SHORT[0] <= span[1] - span[0] <= SHORT[1]]
        some = draw.sample(spans, min(len(spans), -(-most // len(documents))))
        found += [document[slice(*span)] for span in some]
    return found[:most]


SHORT_TEXTS = 64


class Heldout:
    """Held-out documents of each source with all their queries, and sentences of them; ``before``: what gave these
    vectors before the training, (S, F).
    """

    def __init__(
        self,
        sources: Sequence[PairSource],
        reader: Reader,
        seed: int,
        before: Callable[[list[str]], np.ndarray],
    ) -> None:
        draw = random.Random(f"measured {seed}")
        every = [
            [source.example(place, draw, most=None) for place in source.heldout] for source in sources if source.heldout
        ]
        documents = [example.document for examples in every for example in examples]
        short = sentences_of(documents, SHORT_TEXTS, draw)
        self.steps: list[Step] = [
            reader.step(examples, short if number == 0 else []) for number, examples in enumerate(every)
        ]
        self.before = before(short) if short and self.steps else None

    def measure(self, read: Callable[[dict[str, Any]], Tensor]) -> dict[str, Any]:
        """A measurement; ``read``: vectors (B, F) of a batch.

        ``ndcg``: mean over queries of nDCG@10 among the documents of their source that were held out. ``passages`` and
        ``same_document``: that of the right passages among all of these and among those of their document, where spans
        say which are right. ``short_cosine``: mean cosine between the vectors of short texts now and before the
        training. ``queries``, ``documents``: how many.
        """
        scores: dict[str, list[float]] = {"ndcg": [], "passages": [], "same_document": []}
        cosine = 1.0
        for step in self.steps:
            with torch.no_grad():
                vectors = [read(dict(batch)) for batch in step.batches]
            queries, given, short = (part.cpu().numpy() for part in step.parted(vectors))
            for name, each in _rankings(step, queries, given):
                scores[name] += each
            if len(short) and self.before is not None:
                cosine = float(cosines(short, self.before).mean())
        means = {name: float(np.mean(each)) for name, each in scores.items() if each}
        documents = sum(step.excluded.shape[1] for step in self.steps)
        return {**means, "short_cosine": cosine, "queries": len(scores["ndcg"]), "documents": documents}


def _rankings(step: Step, queries: np.ndarray, given: np.ndarray) -> Iterator[tuple[str, list[float]]]:
    """nDCG@10 of each query's documents, each as near as its nearest passage ("ndcg"), and of the right passages, among
    all ("passages") and those of their document ("same_document"), for queries that not every passage of it answers.
    """
    own, others = step.answers[:, None] == step.owners, step.excluded[:, step.owners].numpy()
    right = step.excluded.clone()
    right[torch.arange(len(right)), step.answers] = True
    starts = torch.searchsorted(step.owners, torch.arange(right.shape[1])).numpy()
    every, known = slice(0, len(queries)), (own & ~step.right).any(dim=1).numpy()
    yield "ndcg", _ndcg(cosine_ranker(queries, given, starts)(every), right.numpy())
    if known.any():
        near = cosine_ranker(queries, given)(every)
        for name, left_out in (("passages", others), ("same_document", ~own.numpy())):
            yield name, _ndcg(np.where(left_out, -np.inf, near)[known], step.right.numpy()[known])


def _ndcg(scores: np.ndarray, right: np.ndarray) -> list[float]:
    """nDCG@10 of each row of ``scores`` (Q, N), where ``right``, bool (Q, N), are to be first."""
    relevant = [set(np.flatnonzero(row).tolist()) for row in right]
    return ranking_scores(lambda some: scores[some], relevant, documents=right.shape[1]).each.tolist()
