"""Steps of an alignment by their number: documents of one source with queries, and short texts, as batches of tokens.

Axes: Q queries, D documents, S short texts, in this order the texts of a step; V vectors, of which a text has one
or, in chunks, several.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from longform.data.batching import TokenizedText, batches_of, tokenize
from longform.data.spans import sentence_spans
from longform.data.special_tokens import content_ids, special_tokens
from longform.inference.encoders import Encoder
from longform.inference.strategies import chunks
from longform.training.alignment_settings import AlignmentSettings
from longform.training.alignment_sources import Example, PairSource

QUERY, DOCUMENT, PLAIN = "query", "document", "plain"  # what stands before a text: the prompt of its side
SHORT = (20, 300)  # characters of a sentence that is to keep its vector


class Reading(NamedTuple):
    """``batches``: keyword arguments of the encoder, and the ``side``. Of each of their vectors, in order (V):
    ``owner``, the text that it belongs to, and ``share``, its part of that text's vector. ``tokens``: without padding.
    """

    batches: list[dict[str, Any]]
    owner: Tensor
    share: Tensor
    tokens: int


def text_vectors(vectors: Sequence[Tensor], reading: Reading, texts: int) -> Tensor:
    """The vectors (texts, F), float32, of all texts that were read, from those of each batch (B, F)."""
    every = torch.cat(list(vectors)).float()
    owner, share = reading.owner.to(every.device), reading.share.to(every.device)
    return every.new_zeros(texts, every.shape[1]).index_add(0, owner, every * share[:, None])


class Step(NamedTuple):
    """``reading`` of Q + D + S texts. ``target`` long (Q): each query's document; ``excluded`` bool (Q, D): documents
    that are no wrong answers to it. ``short``: the S texts that are to keep their vectors.
    """

    reading: Reading
    target: Tensor
    excluded: Tensor
    short: list[str]

    @property
    def weight(self) -> float:
        """Queries in it."""
        return len(self.target)

    def parted(self, vectors: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """The vectors of queries (Q, F), documents (D, F) and short texts (S, F), from those of each batch."""
        sizes = [*self.excluded.shape, len(self.short)]
        queries, documents, short = text_vectors(vectors, self.reading, sum(sizes)).split(sizes)
        return queries, documents, short


class Reader:
    """Texts as batches. ``sides``: the encoder with the prompt of each side; ``limit``: tokens of a text, None: all."""

    def __init__(self, sides: dict[str, Encoder], settings: AlignmentSettings, limit: int | None) -> None:
        self.sides, self.settings, self.limit = sides, settings, limit
        self.special = special_tokens(sides[PLAIN].tokenizer)

    def read(self, texts: Sequence[tuple[str, str]]) -> Reading:
        """Texts with their sides."""
        batches: list[dict[str, Any]] = []
        owner: list[int] = []
        share: list[float] = []
        tokens = 0
        for side, encoder in self.sides.items():
            places = [place for place, text in enumerate(texts) if text[0] == side]
            pieces = self._pieces([encoder.prompt + texts[place][1] for place in places], encoder)
            flat = [(place, piece, part) for place, own in zip(places, pieces, strict=True) for piece, part in own]
            for batch in batches_of(
                [piece for _, piece, _ in flat], encoder.tokenizer, self.settings.tokens_per_forward
            ):
                batches.append({**batch.model_inputs(encoder.model.device), "side": side})
                owner += [flat[index][0] for index in batch.indices]
                share += [flat[index][2] for index in batch.indices]
                tokens += sum(batch.tokens)
        return Reading(batches, torch.tensor(owner), torch.tensor(share), tokens)

    def _pieces(self, texts: list[str], encoder: Encoder) -> list[list[tuple[TokenizedText, float]]]:
        """What the encoder reads of each text, with the share that each piece has in the text's vector."""
        if not texts:
            return []
        if self.settings.strategy == "whole":
            return [[(text, 1.0)] for text in tokenize(texts, encoder.tokenizer, max_length=self.limit)]
        found = []
        for ids in content_ids(encoder.tokenizer, texts):
            ids = ids if self.limit is None else ids[: self.limit - self.special.total]
            windows = chunks(ids, size=encoder.limit - self.special.total, overlap=0)
            found.append([(TokenizedText(self.special.around(w)), max(1, len(w)) / max(1, len(ids))) for w in windows])
        return found


class AlignmentSteps:
    """Each step's documents are of one source; sources take turns by ``weights``. ``keep``: short texts, or None."""

    def __init__(
        self, sources: Sequence[PairSource], weights: Sequence[float], reader: Reader, settings: AlignmentSettings,
        keep: Sequence[str] | None, *, rank: int, processes: int,
    ) -> None:  # fmt: skip
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
    queries = [
        (query, answers, place) for place, example in enumerate(examples)
        for query, answers in zip(example.queries, example.answers, strict=True)
    ]  # fmt: skip
    excluded = [
        [place != own and (example.place in answers or query in example.document)
         for place, example in enumerate(examples)]
        for query, answers, own in queries
    ]  # fmt: skip
    texts = [(QUERY, query) for query, _, _ in queries]
    texts += [(DOCUMENT, example.document) for example in examples]
    texts += [(PLAIN, text) for text in short]
    target = torch.tensor([own for _, _, own in queries])
    return Step(reader.read(texts), target, torch.tensor(excluded), list(short))
