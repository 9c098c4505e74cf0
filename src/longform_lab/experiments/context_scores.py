"""Scores of chunks that know their document and of their rivals on the tasks of ``context_tasks``.

    python -m longform_lab.experiments.context_scores --data ../shared/data
    python -m longform_lab.experiments.context_scores --data ../shared/data --alone runs/alone --whole runs/whole

Chunks are read alone by one encoder, the documents whole by another: the original and ``minilm-16k``, or two that the
same steps have trained. A line of ``CONTENDERS`` is a way to make the vectors of chunks; what is found by it goes to
the records, a query a number. "whole, another's context" reads each right chunk among the chunks of another document.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from longform_lab.evaluation.retrieval_comparison import bm25_ranker
from longform_lab.experiments.context_tasks import QUERIES, TASKS, Passages, make_task, tested
from longform_lab.experiments.passages import PASSAGE
from longform_lab.experiments.rival_scores import steps_of
from longform_lab.experiments.weights import NAME
from longform_lab.records import RECORDS, Record, append_records
from longform_text.evaluation.retrieval import Ranker, cosine_ranker, ranking_scores
from longform_text.inference.chunks import encode_chunks
from longform_text.inference.encoders import Encoder
from longform_text.inference.loading import token_limit

BEFORE = 2  # chunks that are read with one
Vectors = list[np.ndarray]  # of the chunks of each document, (m, D) of length 1


class Readings:
    """A task and the encoders ``alone`` and ``whole``; what several contenders are made of is read once."""

    def __init__(self, task: Passages, alone: Encoder, whole: Encoder) -> None:
        self.task, self.encoders = task, {"alone": alone, "whole": whole}

    @cached_property
    def chunks(self) -> list[list[str]]:
        """Texts of the chunks of each document."""
        documents = zip(self.task.texts, self.task.spans, strict=True)
        return [[text[start:stop] for start, stop in spans] for text, spans in documents]

    @cached_property
    def alone(self) -> Vectors:
        """Each chunk read by itself."""
        return self.behind([[""] * len(chunks) for chunks in self.chunks])

    @cached_property
    def whole(self) -> Vectors:
        """Chunks of the whole reading."""
        return self._pooled("whole", self.task.texts, self.task.spans)

    def titles(self, kind: str) -> np.ndarray:
        """The vector of each document's title."""
        return self.encoders[kind].collect(self.task.titles).values

    def behind(self, fronts: list[list[str]]) -> Vectors:
        """Each chunk read behind a text of its own."""
        pairs = [pair for own in zip(fronts, self.chunks, strict=True) for pair in zip(*own, strict=True)]
        texts = [front + chunk for front, chunk in pairs]
        return self._by_document(self.encoders["alone"].collect(texts).values)

    def after_two(self) -> Vectors:
        """Each chunk read with the two before it, and pooled by itself."""
        texts, spans = [], []
        for text, own in zip(self.task.texts, self.task.spans, strict=True):
            for place, (start, stop) in enumerate(own):
                begin = own[max(0, place - BEFORE)][0]
                texts.append(text[begin:stop])
                spans.append([(start - begin, stop - begin)])
        return self._by_document(np.concatenate(self._pooled("alone", texts, spans)))

    def elsewhere(self) -> Vectors:
        """``whole``, but right chunks are read in their places of the next document, whose other chunks are around."""
        right, first, mixed = set().union(*self.task.right), 0, [vectors.copy() for vectors in self.whole]
        for number, own in enumerate(self.chunks):
            places = [place for place in range(len(own)) if first + place in right]
            first += len(own)
            if places:
                around = self.chunks[(number + 1) % len(self.chunks)]
                text, spans = among(own, around, places)
                [mixed[number][places]] = self._pooled("whole", [text], [spans])
        return mixed

    def _pooled(self, kind: str, texts: list[str], spans: list[list[tuple[int, int]]]) -> Vectors:
        return [each.vectors for each in encode_chunks(self.encoders[kind], texts, boundaries=spans)]

    def _by_document(self, vectors: np.ndarray) -> Vectors:
        return np.split(vectors, np.cumsum([len(chunks) for chunks in self.chunks])[:-1])


def among(own: list[str], others: list[str], places: list[int]) -> tuple[str, list[tuple[int, int]]]:
    """A text of as many chunks as are ``own``: at ``places`` these, else ``others``; and where the former are in it."""
    pieces = [others[place % len(others)] for place in range(len(own))]
    for place in places:
        pieces[place] = own[place]
    starts = np.cumsum([0, *(len(piece) + 1 for piece in pieces)]).tolist()
    return "\n".join(pieces), [(starts[place], starts[place] + len(pieces[place])) for place in places]


def with_mean(own: Vectors, *_: Any) -> Vectors:
    """The mean of its document added to each."""
    return [vectors + vectors.mean(axis=0) for vectors in own]


def with_opening(own: Vectors, *_: Any) -> Vectors:
    """The first chunk of its document added to each."""
    return [vectors + vectors[:1] for vectors in own]


def with_title(own: Vectors, titles: np.ndarray) -> Vectors:
    """The title's vector added to each."""
    return [vectors + title for vectors, title in zip(own, titles, strict=True)]


def in_front(read: Readings, *, headings: bool) -> list[list[str]]:
    """The title, and with ``headings`` that of its section, as text in front of every chunk."""
    of_documents = zip(read.task.titles, read.task.paths, strict=True)
    return [
        [f"{title}: {path}. " if headings and path else f"{title}. " for path in paths] for title, paths in of_documents
    ]


CONTENDERS: dict[str, Callable[[Readings], Vectors]] = {
    "alone": lambda read: read.alone,
    "alone + mean": lambda read: with_mean(read.alone),
    "alone + opening": lambda read: with_opening(read.alone),
    "alone + vector of the title": lambda read: with_title(read.alone, read.titles("alone")),
    "whole": lambda read: read.whole,
    "whole + mean": lambda read: with_mean(read.whole),
    "whole + opening": lambda read: with_opening(read.whole),
    "whole + vector of the title": lambda read: with_title(read.whole, read.titles("whole")),
    "alone, title in front": lambda read: read.behind(in_front(read, headings=False)),
    "alone, title and heading in front": lambda read: read.behind(in_front(read, headings=True)),
    "whole, another's context": lambda read: read.elsewhere(),
    "alone, read with two before": lambda read: read.after_two(),
}


def measured(task: Passages, alone: Encoder, whole: Encoder, names: list[str]) -> Iterator[tuple[str, np.ndarray]]:
    """nDCG@10 of each query, from 0 to 100, by BM25 and by each of the contenders with ``names``."""
    read = Readings(task, alone, whole)
    count = sum(map(len, read.chunks))

    def each(ranker: Ranker) -> np.ndarray:
        return 100 * ranking_scores(ranker, task.right, documents=count, depth=10).each

    yield "BM25", each(bm25_ranker(task.queries, [chunk for chunks in read.chunks for chunk in chunks]))
    asked = {kind: encoder.collect(task.queries).values for kind, encoder in read.encoders.items()}
    for name in names:
        yield name, each(cosine_ranker(asked[name[:5]], np.concatenate(CONTENDERS[name](read))))


def encoder_of(kind: str, folder: Path | None, dtype: str) -> tuple[Encoder, int]:
    """The encoder of a ``kind`` in a ``folder`` of a training, or the published one, and the steps that trained it."""
    encoder = Encoder.from_pretrained(folder or {"alone": "bundled", "whole": NAME}[kind], dtype=dtype)
    encoder.max_seq_length = token_limit(encoder.model, encoder.tokenizer)
    return encoder, 0 if folder is None else steps_of(folder)


def main() -> None:
    """Measure, print and append records."""
    parser = argparse.ArgumentParser(description="Score chunks that know their document, and their rivals.")
    parser.add_argument("tasks", nargs="*", default=TASKS, help=f"of {', '.join(TASKS)}")
    parser.add_argument("--data", type=Path, required=True, help="folder of the parquet files")
    parser.add_argument("--alone", type=Path, help="the encoder that reads chunks alone; default: the original")
    parser.add_argument("--whole", type=Path, help=f"the one that reads documents whole; default: {NAME}")
    parser.add_argument("--name", default="untrained", help="of the training, in the records")
    parser.add_argument("--length", type=int, default=2048, help="tokens of a document")
    parser.add_argument("--queries", type=int, default=QUERIES)
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS), choices=CONTENDERS)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--records", type=Path, default=RECORDS / "context.jsonl")
    given = parser.parse_args()
    alone, _ = encoder_of("alone", given.alone, given.dtype)
    whole, steps = encoder_of("whole", given.whole, given.dtype)
    every = tested(given.data)
    for name in given.tasks:
        task = make_task(name, every, alone.tokenizer, given.length, queries=given.queries)
        for contender, scores in measured(task, alone, whole, given.contenders):
            settings = {
                "data": name, "contender": contender, "training": given.name, "steps": steps,
                "queries": len(task.queries), "documents": len(task.texts), "chunk_tokens": PASSAGE,
                "length": given.length, "dtype": given.dtype,
            }  # fmt: skip
            metrics = {
                "ndcg_at_10": float(scores.mean()),
                "per_query": [np.round(scores, 1).tolist()],
                "distances": [float(distance) for distance in task.distances],
            }
            append_records(given.records, [Record(name="context", settings=settings, metrics=metrics)])
            print(f"{name}, {given.length}, {contender}: nDCG@10 {scores.mean():.1f}", flush=True)


if __name__ == "__main__":
    main()
