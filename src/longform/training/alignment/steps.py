"""Steps of an alignment by their number: documents of one source with queries, and short texts, as batches of tokens.

Axes: Q queries, D documents, P what answers a query (a document, or its passages), S short texts, F features.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from longform.data.spans import sentence_spans
from longform.evaluation.embeddings import cosines
from longform.evaluation.retrieval import retrieval_scores
from longform.training.alignment.reading import DOCUMENT, PLAIN, QUERY, Reader, Reading
from longform.training.alignment.settings import AlignmentSettings
from longform.training.alignment.sources import Example, PairSource

SHORT = (20, 300)  # characters of a sentence that is to keep its vector


class Step(NamedTuple):
    """``reading`` of queries, documents and short texts. ``answers`` bool (Q, P): one of these is the answer, the
    nearest; ``excluded`` bool (Q, P): these are neither right nor wrong. ``starts`` (D): where each document's begin.
    ``short``: the S texts that are to keep their vectors.
    """

    reading: Reading
    answers: Tensor
    excluded: Tensor
    starts: list[int]
    short: list[str]

    @property
    def weight(self) -> float:
        """Queries in it."""
        return len(self.answers)

    def parted(self, vectors: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """The vectors of queries (Q, F), answers (P, F) and short texts (S, F), from those of each batch."""
        queries, answers, short = self.reading.vectors(vectors).split([*self.answers.shape, len(self.short)])
        return queries, answers, short


class AlignmentSteps:
    """Each step's documents are of one source; sources take turns by ``weights``. ``keep``: short texts, or None."""

    def __init__(
        self,
        sources: Sequence[PairSource],
        weights: Sequence[float],
        reader: Reader,
        settings: AlignmentSettings,
        keep: Sequence[str] | None,
        *,
        rank: int,
        processes: int,
    ) -> None:
        self.sources, self.weights, self.reader, self.settings = sources, weights, reader, settings
        self.keep, self.rank, self.processes = keep, rank, processes

    def steps(self, start: int = 0) -> Iterator[list[Step]]:
        """From step ``start`` on, without end."""
        for number, (source, visit) in enumerate(self._turns()):
            if number >= start:
                yield [self._step(number, source, visit * self.processes + self.rank)]

    def documents(self, steps: int) -> int:
        """How many are read in so many steps, by all processes; one that comes again counts again."""
        size, sources = self.settings.documents_per_step, [source for source, _ in islice(self._turns(), steps)]
        return self.processes * sum(min(size, len(self.sources[source].taught)) for source in sources)

    def _turns(self) -> Iterator[tuple[int, int]]:
        """The source of each step, and how often it had a turn before: as evenly as the weights allow."""
        credit, visits = [0.0] * len(self.weights), [0] * len(self.weights)
        while True:
            credit = [have + weight for have, weight in zip(credit, self.weights, strict=True)]
            chosen = max(range(len(credit)), key=lambda place: (credit[place], -place))
            credit[chosen] -= sum(self.weights)
            yield chosen, visits[chosen]
            visits[chosen] += 1

    def _step(self, number: int, source: int, visit: int) -> Step:
        """Documents in a new order in each pass over the source; what is left over of a pass is not read in it."""
        places, size = self.sources[source].taught, self.settings.documents_per_step
        passed, batch = divmod(visit, max(1, len(places) // size))
        order = list(places)
        random.Random(f"order {source} {passed} {self.settings.seed}").shuffle(order)
        draw = random.Random(f"step {number} {self.rank} {self.settings.seed}")
        most = self.settings.queries_per_document
        chosen = [
            self.sources[source].example(place, draw, most=most) for place in order[batch * size : (batch + 1) * size]
        ]
        short = self._short(chosen, draw) if self.settings.keep_weight else []
        return make_step(chosen, short, self.reader)

    def _short(self, examples: Sequence[Example], draw: random.Random) -> list[str]:
        """Given texts, or sentences of the documents."""
        wanted = self.settings.keep_texts
        if self.keep is not None:
            return draw.sample(self.keep, min(wanted, len(self.keep)))
        return sentences_of([example.document for example in examples], wanted, draw)


def sentences_of(documents: Sequence[str], most: int, draw: random.Random) -> list[str]:
    """Up to ``most`` sentences, about as many of each document."""
    found = []
    for document in documents:
        spans = [span for span in sentence_spans(document) if SHORT[0] <= span[1] - span[0] <= SHORT[1]]
        some = draw.sample(spans, min(len(spans), -(-most // len(documents))))
        found += [document[slice(*span)] for span in some]
    return found[:most]


def make_step(examples: Sequence[Example], short: Sequence[str], reader: Reader) -> Step:
    """One step of these examples. A document that holds a query word for word is no wrong answer to it either."""
    asked = [
        (number, query, answers)
        for number, example in enumerate(examples)
        for query, answers in zip(example.queries, example.answers, strict=True)
    ]
    texts = [(QUERY, query) for _, query, _ in asked]
    texts += [(DOCUMENT, example.document) for example in examples]
    reading = reader.read([*texts, *((PLAIN, text) for text in short)])
    counts = reading.counts[len(asked) : len(texts)]
    starts = [sum(counts[:number]) for number in range(len(counts))]
    answers = torch.zeros(len(asked), sum(counts), dtype=torch.bool)
    excluded = answers.clone()
    for row, (own, query, places) in enumerate(asked):
        for number, example in enumerate(examples):
            here = slice(starts[number], starts[number] + counts[number])
            if number == own:
                answers[row, _answer(example, here, reader)] = True
            elif example.place in places or query in example.document:
                excluded[row, here] = True
    return Step(reading, answers, excluded, starts, list(short))


def _answer(example: Example, here: slice, reader: Reader) -> slice | int:
    """Places of a document, which has ``here``, that may be the answer: all, or the passage that is known."""
    if example.at is None or reader.settings.passage_tokens is None:
        return here
    return min(here.stop - 1, here.start + reader.passage_of(example.document, example.at))


SHORT_TEXTS = 64


class Found(NamedTuple):
    """``ndcg``: mean over queries of nDCG@10 among the documents of their source that were held out. ``short_cosine``:
    mean cosine between the vectors of short texts now and before the training. ``queries``, ``documents``: how many.
    """

    ndcg: float
    short_cosine: float
    queries: int
    documents: int

    def summary(self) -> dict[str, float]:
        """The two scores."""
        return {"ndcg": self.ndcg, "short_cosine": self.short_cosine}


class Heldout:
    """Held-out documents of each source with all their queries, and short texts. ``keep``: such texts, or None for
    sentences of the documents; ``before``: what gave them vectors before the training, (S, F).
    """

    def __init__(
        self,
        sources: Sequence[PairSource],
        reader: Reader,
        keep: Sequence[str] | None,
        seed: int,
        before: Callable[[list[str]], np.ndarray],
    ) -> None:
        draw = random.Random(f"measured {seed}")
        every = [
            [source.example(place, draw, most=None) for place in source.heldout] for source in sources if source.heldout
        ]
        documents = [example.document for examples in every for example in examples]
        short = sentences_of(documents, SHORT_TEXTS, draw) if keep is None else list(keep)[:SHORT_TEXTS]
        self.steps: list[Step] = [
            make_step(examples, short if number == 0 else [], reader) for number, examples in enumerate(every)
        ]
        self.before = before(short) if short and self.steps else None

    def measure(self, read: Callable[[dict[str, Any]], Tensor]) -> Found:
        """``read``: vectors (B, F) of a batch."""
        scores: list[tuple[float, int]] = []
        cosine = 1.0
        for step in self.steps:
            with torch.no_grad():
                vectors = [read(dict(batch)) for batch in step.reading.batches]
            queries, given, short = (part.cpu().numpy() for part in step.parted(vectors))
            counts = (step.answers | step.excluded).numpy()
            per_document = np.maximum.reduceat(counts, step.starts, axis=1)
            relevant = [set(np.flatnonzero(row).tolist()) for row in per_document]
            found = retrieval_scores(queries, given, relevant, starts=np.array(step.starts))
            scores.append((found.ndcg, len(queries)))
            if len(short) and self.before is not None:
                cosine = float(cosines(short, self.before).mean())
        asked = sum(count for _, count in scores)
        ndcg = sum(score * count for score, count in scores) / asked
        return Found(ndcg, cosine, asked, sum(len(step.starts) for step in self.steps))
