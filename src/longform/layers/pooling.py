"""Pooling as a module, so that what looks at more than one token is a part that can be found and replaced."""

from torch import Tensor, nn

from longform.functional.pooling import pooled


class Pooling(nn.Module):
    """One vector of the hidden states of all tokens, of a ``kind`` of longform.functional.pooling; no parameters."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """hidden (B, n, D), bool mask (B, n) or None -> (B, D), or (B, 2 D) where the kind names two."""
        return pooled(hidden, mask, kind=self.kind)

    def extra_repr(self) -> str:
        """The kind, for print(model)."""
        return self.kind
