"""The loss of an alignment, by sentence-transformers' gradient cache: one batch's activations in memory at a time.

Imported where sentence-transformers is known to be installed (``longform.training.alignment_model``).
Axes: Q queries, P documents or passages, S short texts, F features.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from sentence_transformers.base.losses.gradcache import CachedLossMixin
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy, normalize

from longform.training.alignment_steps import Step


def ranking_loss(queries: Tensor, given: Tensor, answers: Tensor, excluded: Tensor, temperature: float) -> Tensor:
    """Cross-entropy of each query's answer among all that are given (InfoNCE), by cosine; mean over queries.

    ``queries`` (Q, F), ``given`` (P, F), ``answers`` bool (Q, P): of these the nearest is the answer, and the others do
    not count; ``excluded`` bool (Q, P): nor do these. With one answer of its own for each query this is
    sentence-transformers' MultipleNegativesRankingLoss.
    """
    scores = normalize(queries, dim=-1) @ normalize(given, dim=-1).T / temperature
    target = scores.detach().masked_fill(~answers, -torch.inf).argmax(dim=1)
    left_out = (answers | excluded).scatter(1, target[:, None], False)
    return cross_entropy(scores.masked_fill(left_out, -torch.inf), target)


class Wanted(NamedTuple):
    """A step, and the vectors (S, F) that its short texts are to keep."""

    step: Step
    kept: Tensor


class AlignmentLoss(CachedLossMixin, nn.Module):
    """Ranking loss of the queries, and 1 - cosine of the short texts to the vectors that they had, by its weight.

    ``model``: what maps a batch to vectors; ``autocast``: in which dtype. ``cached``: each batch is read twice, so that
    the activations of one alone are kept; numbers that dropout draws are the same both times. ``last``: the parts.
    """

    mini_batch_size = 2**40  # a batch is one already: it is not parted again

    def __init__(
        self,
        model: nn.Module,
        *,
        temperature: float,
        keep_weight: float,
        cached: bool,
        autocast: Callable[[], torch.autocast],
    ) -> None:
        super().__init__()
        self.model, self.autocast, self.cached = model, autocast, cached
        self.temperature, self.keep_weight = temperature, keep_weight
        self.last: dict[str, float] = {}

    def forward(self, wanted: Wanted) -> Tensor:
        """The loss, a scalar; of a cached one backward() reads all again."""
        batches: Any = wanted.step.reading.batches
        if self.cached:
            return self.forward_cached(batches, wanted)  # ty: ignore[invalid-argument-type]
        with self.autocast():
            vectors = [[self.model(dict(batch))["sentence_embedding"]] for batch in batches]
        return self.calculate_loss(vectors, wanted)

    def embed_minibatch(self, *args: Any, **options: Any) -> tuple[Tensor, Any]:
        """As the mixin does, in the dtype of ``autocast``: the second time it is called from backward()."""
        with self.autocast():
            return super().embed_minibatch(*args, **options)

    def calculate_loss(self, reps: list[list[Tensor]], labels: Any = None, *, with_backward: bool = False) -> Tensor:
        """The loss of all vectors of a step, ``reps`` of its batches; ``labels``: what is Wanted."""
        step, kept = labels
        vectors = [batch for column in reps for batch in column]
        device = vectors[0].device
        with torch.autocast(device.type, enabled=False):
            queries, given, short = step.parted(vectors)
            answers, excluded = step.answers.to(device), step.excluded.to(device)
            loss = ranking = ranking_loss(queries, given, answers, excluded, self.temperature)
            self.last = {"ranking": float(ranking.detach())}
            if len(step.short):
                moved = (1 - cosine_similarity(short, kept, dim=-1)).mean()
                loss = ranking + self.keep_weight * moved
                self.last["keep"] = float(moved.detach())
        if with_backward:
            loss.backward()
            return loss.detach()
        return loss
