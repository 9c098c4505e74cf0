"""A classifier that reads a long text in chunks of what its encoder takes: what people do without a long encoder.

It is a Hugging Face model that takes whole texts, so that ``longform finetune`` and ``Classifier`` train and run it as
they do a Longform. ``average``: "states", all chunks' states in a row go to one head, or "logits", the head reads each
chunk and the logits are averaged, weighted by tokens.

Axes: B texts, n tokens of a text, C chunks of all texts, m tokens of a chunk, D hidden size, L labels.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_outputs import SequenceClassifierOutput

from longform.inference.strategies import chunks
from longform.models.configuration_linformer import LinformerConfig
from longform.models.modeling_linformer import LinformerModel
from longform.models.task_heads import ClassificationHead, LinformerForSequenceClassification

AVERAGES = ("states", "logits")


class ChunkedConfig(PreTrainedConfig):
    """``original``: the LinformerConfig of an encoder of short texts, as a dictionary; ``average``: one of AVERAGES.

    ``max_position_embeddings``: tokens of a whole text at most.
    """

    model_type = "chunked"
    original: dict[str, Any] | None = None
    average: str = "states"
    max_position_embeddings: int = 4096
    pad_token_id: int | None = 0


class ChunkedForSequenceClassification(PreTrainedModel):
    """The encoder and the head of a ``LinformerForSequenceClassification`` of short texts, over chunks."""

    config_class = ChunkedConfig
    config: ChunkedConfig
    base_model_prefix = "encoder"
    supports_gradient_checkpointing = False

    def __init__(self, config: ChunkedConfig) -> None:
        super().__init__(config)
        inner = LinformerConfig(**(config.original or {}))
        self.encoder = LinformerModel(inner, add_pooling_layer=False)
        self.classifier = ClassificationHead(inner, int(config.num_labels or 0))
        self.chunk_tokens = inner.max_position_embeddings
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        self.encoder._init_weights(module)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None,
        **_: object,
    ) -> SequenceClassifierOutput:  # fmt: skip
        """input_ids (B, n), whole texts with a special token at each end -> logits (B, L)."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        texts = [row[kept.bool()].tolist() for row, kept in zip(input_ids, mask, strict=True)]
        ids, inside, counts = self._chunks(texts, input_ids.device)
        states = self.encoder(ids, inside).last_hidden_state
        average = self._over_states if self.config.average == "states" else self._over_logits
        return SequenceClassifierOutput(logits=average(states, inside.bool(), counts))

    def _chunks(self, texts: list[list[int]], device: torch.device) -> tuple[Tensor, Tensor, list[int]]:
        """Ids and mask (C, m) of the chunks of all texts in order, and how many each text has."""
        cut = [
            [[text[0], *chunk, text[-1]] for chunk in chunks(text[1:-1], size=self.chunk_tokens - 2, overlap=0)]
            for text in texts
        ]
        rows = [torch.tensor(chunk, device=device) for several in cut for chunk in several]
        ids = pad_sequence(rows, batch_first=True, padding_value=self.config.pad_token_id or 0)
        lengths = torch.tensor([len(row) for row in rows], device=device)
        inside = torch.arange(ids.shape[1], device=device) < lengths[:, None]
        return ids, inside.long(), [len(several) for several in cut]

    def _over_states(self, states: Tensor, inside: Tensor, counts: list[int]) -> Tensor:
        """states (C, m, D) -> logits (B, L) of the head that sees those of a text in a row."""
        tokens = [int(several.sum()) for several in inside.split(counts)]
        rows = states[inside].split(tokens)
        hidden = pad_sequence(list(rows), batch_first=True)
        places = torch.arange(hidden.shape[1], device=states.device)
        return self.classifier(hidden, places < torch.tensor(tokens, device=states.device)[:, None])

    def _over_logits(self, states: Tensor, inside: Tensor, counts: list[int]) -> Tensor:
        """states (C, m, D) -> logits (B, L), the mean of the chunks' weighted by their tokens."""
        logits = self.classifier(states, inside)
        weights = (inside.sum(dim=1, keepdim=True) - 2).clamp(min=1).to(logits.dtype)  # special tokens do not count
        sums = [torch.stack([each.sum(dim=0) for each in part.split(counts)]) for part in (logits * weights, weights)]
        return sums[0] / sums[1]


def save_chunked(short: LinformerForSequenceClassification, folder: Path, *, average: str, max_length: int) -> None:
    """A chunked classifier with the weights of ``short``, into ``folder`` (without a tokenizer)."""
    own = short.config
    labels: Any = {"id2label": own.id2label, "label2id": own.label2id}
    config = ChunkedConfig(
        original=own.to_dict(), average=average, max_position_embeddings=max_length, pad_token_id=own.pad_token_id,
        **labels,
    )  # fmt: skip
    made = ChunkedForSequenceClassification(config)
    made.encoder.load_state_dict(short.linformer.state_dict())
    made.classifier.load_state_dict(short.classifier.state_dict())
    made.save_pretrained(folder)


AutoConfig.register(ChunkedConfig.model_type, ChunkedConfig, exist_ok=True)
AutoModelForSequenceClassification.register(ChunkedConfig, ChunkedForSequenceClassification, exist_ok=True)
