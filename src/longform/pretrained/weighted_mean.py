"""The modules WordWeights, SublinearTF and Pooling of a sentence-transformers folder as one: a weighted mean of tokens.

Axes: B texts in a batch, n tokens, D embedding size.
"""

from torch import Tensor, nn

from longform.functional.pooling import sublinear_weights


class WeightedMean(nn.Module):
    """Mean of a text's hidden states, each with the weight of its token.

    ``weights`` float32 (vocabulary,), None: all weigh the same; ``sublinear``: as in SublinearTF. ``width``: D.
    """

    def __init__(self, weights: Tensor | None, *, sublinear: bool, width: int) -> None:
        super().__init__()
        self.weights = None if weights is None else nn.Parameter(weights, requires_grad=False)
        self.sublinear, self.width = sublinear, width

    def get_embedding_dimension(self) -> int:
        """D."""
        return self.width

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """``token_embeddings`` (B, n, D), ``input_ids``, ``attention_mask`` (B, n) -> ``sentence_embedding`` (B, D)."""
        ids, mask = features["input_ids"], features["attention_mask"]
        weights = mask.float() if self.weights is None else self.weights[ids] * mask
        shares = weights * sublinear_weights(ids, mask.bool()) if self.sublinear else weights
        total = (features["token_embeddings"] * shares[..., None]).sum(dim=1)
        return {**features, "sentence_embedding": total / weights.sum(dim=1, keepdim=True).clamp(min=1e-9)}
