"""How well a student imitates its teacher: the loss, and the same measured on documents kept apart.

Axes: B batch, n tokens, D hidden, m masked tokens, V vocabulary.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, kl_div, log_softmax

from longform.functional.masks import masked_mean
from longform.training.crops import Crops
from longform.training.teacher import Encoded


class Agreement(NamedTuple):
    """``cosine``: mean over documents of the cosine of mean-pooled last states. ``layer_errors``: of each layer,
    the squared error of the hidden states over their squared size. ``documents``, ``tokens``: how many were measured.
    """

    cosine: float
    layer_errors: tuple[float, ...]
    documents: int
    tokens: int

    def summary(self) -> dict[str, float]:
        """The cosine, and the mean over layers of their errors."""
        return {"cosine": self.cosine, "layer_error": sum(self.layer_errors) / len(self.layer_errors)}


def squared_parts(student: Tensor, teacher: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Squared error and squared size of the teacher's states (B, n, D) over valid tokens, mask bool (B, n)."""
    error = student - teacher
    if mask is not None:
        error, teacher = (torch.where(mask[..., None], x, 0) for x in (error, teacher))
    norm = torch.linalg.vector_norm
    return norm(error, dtype=torch.float32).square(), norm(teacher, dtype=torch.float32).square()


def relative_error(student: tuple[Tensor, ...], teacher: tuple[Tensor, ...], mask: Tensor | None) -> Tensor:
    """Mean over layers of the relative squared error."""
    parts = [squared_parts(s, t, mask) for s, t in zip(student, teacher, strict=True)]
    return torch.stack([error / size.clamp_min(1e-12) for error, size in parts]).mean()


def pooled_cosine(student: Tensor, teacher: Tensor, mask: Tensor | None) -> Tensor:
    """Cosine of the mean-pooled states (B, n, D), float32 (B)."""
    return cosine_similarity(masked_mean(student.float(), mask), masked_mean(teacher.float(), mask), dim=-1)


def divergence(student: Tensor, teacher: Tensor) -> Tensor:
    """KL(teacher || student) in nats, mean over tokens, from logits (m, V)."""
    return kl_div(
        log_softmax(student.float(), -1), log_softmax(teacher.float(), -1), reduction="batchmean", log_target=True
    )


def bool_mask(crops: Crops) -> Tensor | None:
    """The attention mask as bool, None without padding."""
    return None if crops.attention_mask is None else crops.attention_mask.bool()


@torch.no_grad()
def measure(read_both: Callable[[Crops], tuple[Encoded, Encoded]], batches: Iterable[Crops]) -> Agreement:
    """Agreement over all batches; ``read_both`` gives what the student and the teacher say."""
    errors: Tensor | None = None
    cosine, documents, tokens = 0.0, 0, 0
    for crops in batches:
        mask = bool_mask(crops)
        own, target = (said.states for said in read_both(crops))
        parts = torch.tensor([squared_parts(s, t, mask) for s, t in zip(own, target, strict=True)], dtype=torch.float64)
        errors = parts if errors is None else errors + parts
        cosine += float(pooled_cosine(own[-1], target[-1], mask).sum())
        documents += len(crops.lengths)
        tokens += crops.tokens
    assert errors is not None, "no batches"
    return Agreement(cosine / documents, tuple((errors[:, 0] / errors[:, 1]).tolist()), documents, tokens)
