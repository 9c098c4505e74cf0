"""One case of sequence parallelism: a tiny model on a batch, by this process alone and by its group."""

import copy
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import model_kinds
import torch
from torch import Tensor

from longform import (
    LinformerForMaskedLM,
    LinformerForSequenceClassification,
    LinformerForTokenClassification,
    LinformerModel,
)
from longform.distributed import gather_tokens, sequence_parallel
from longform.layers import streaming

REFUSED = (
    "window over everything",
    "rotary",
    "rotary-window",
    "rotary-local",
    "weighted_mean-rotary",
    "wide rotary heads",
    "mean-window-selection",
    "rotary-window-selection",
    "latent",
    "latent-sinks",
    "latent-rotary",
)
KINDS = [kind for kind in model_kinds.KINDS if kind not in REFUSED]
OF_TEXTS = (LinformerModel, LinformerForSequenceClassification)
CLASSES = (*OF_TEXTS, LinformerForMaskedLM, LinformerForTokenClassification)


@dataclass(frozen=True)
class Case:
    """A model of ``kind`` and ``cls`` on texts under ``mask``, B rows of n."""

    kind: str
    cls: type
    mask: tuple[tuple[int, ...], ...]
    pooling: str = "cls"
    seed: int = 0
    dtype: torch.dtype = torch.float64

    def model(self) -> Any:
        torch.manual_seed(self.seed)
        options = {"num_labels": 3} | ({} if self.cls is LinformerForMaskedLM else {"classifier_pooling": self.pooling})
        return model_kinds.model(self.kind, self.cls, **options).to(self.dtype)

    def given(self) -> dict[str, Tensor]:
        mask = torch.tensor(self.mask)
        found = {"input_ids": torch.randint(5, 40, mask.shape), "attention_mask": mask}
        found["token_type_ids"] = torch.randint(0, 2, mask.shape)
        return found

    def differences(self) -> dict[str, float]:
        """The largest difference from one process in what is of tokens and of texts.

        Each relative to the largest value, if that is above 1.
        """
        alone, given = self.model(), self.given()
        together = sequence_parallel(copy.deepcopy(alone))
        found = [self._outcome(model, given) | self._read(model, given) for model in (alone, together)]
        with patch.object(streaming, "LONG", 1), patch.object(streaming, "CPU_ROWS", 3):
            streamed = self._read(together, given)["read"]
        found = [found[0] | {"streamed": found[0]["read"]}, found[1] | {"streamed": streamed}]
        return {name: max(map(_difference, found[0][name], found[1][name]), default=0.0) for name in found[0]}

    @torch.no_grad()
    def _read(self, model: Any, given: dict[str, Tensor]) -> dict[str, list[Tensor]]:
        """What is read without gradients, for which there are other kernels."""
        out = model(**given)
        if self.cls is LinformerForSequenceClassification:
            return {"read": [out.logits[given["attention_mask"].any(dim=1)]]}
        tokens = out.last_hidden_state if self.cls is LinformerModel else out.logits
        whole = gather_tokens(model, tokens) if hasattr(model, "sequence_group") else tokens
        return {"read": [whole[given["attention_mask"].bool()]]}

    def _outcome(self, model: Any, given: dict[str, Tensor]) -> dict[str, list[Tensor]]:
        """Results with gradients, for which there are other kernels."""
        text, shared = given["attention_mask"].bool(), hasattr(model, "sequence_group")
        out = model(**given)
        if self.cls is LinformerForSequenceClassification:
            return {"tokens": [], "texts": [out.logits[text.any(dim=1)]]}
        tokens = out.last_hidden_state if self.cls is LinformerModel else out.logits
        of_tokens = [(gather_tokens(model, tokens) if shared else tokens)[text]]
        of_texts = [out.pooler_output[text.any(dim=1)]] if self.cls is LinformerModel else []
        return {"tokens": of_tokens, "texts": of_texts}


def _difference(first: Tensor, second: Tensor) -> float:
    if first.numel() == 0:
        return 0.0
    return float((first - second).detach().abs().max() / first.detach().abs().max().clamp(min=1.0))
