"""How well an encoder finds documents that were held out by their queries, and how near short texts stayed.

Axes: S short texts, F features.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from longform.evaluation.embeddings import cosines
from longform.evaluation.retrieval import retrieval_scores
from longform.training.alignment_reading import Reader
from longform.training.alignment_sources import PairSource
from longform.training.alignment_steps import Step, make_step, sentences_of

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
        self, sources: Sequence[PairSource], reader: Reader, keep: Sequence[str] | None, seed: int,
        before: Callable[[list[str]], np.ndarray],
    ) -> None:  # fmt: skip
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
