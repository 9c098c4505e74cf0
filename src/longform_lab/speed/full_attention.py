"""Full attention as a competitor: Longform's code with nothing compressed (the twin), and BERT, fused and unfused."""

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import BertConfig, BertModel

from longform.layers.attention import LinformerAttention
from longform.layers.self_attention import Shared
from longform_lab.speed.competitor import Competitor, FromEmbeddings, common_settings
from longform_lab.speed.ours import linformer
from longform_lab.speed.shapes import Shape


class FusedAttention(nn.Module):
    """Full attention by torch's fused call, whatever is faster: ``inner`` takes a kernel of ours where it is."""

    def __init__(self, inner: LinformerAttention) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, hidden: Tensor, mask: Tensor | None, *, shared: Shared, output_attentions: bool = False) -> Any:
        """hidden (B, n, D) -> (B, n, D), and the weights where they are asked for; no mask."""
        assert mask is None
        layer = self.inner
        if output_attentions:
            return layer(hidden, output_attentions=True)
        sides = (side(hidden) for side in (layer.query, layer.key, layer.value))
        heads = (side.unflatten(2, (layer.num_heads, -1)).transpose(1, 2) for side in sides)
        return layer.output(scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))


def twin(shape: Shape) -> FromEmbeddings:
    """A window that reaches across the whole text: scaled_dot_product_attention over all tokens."""
    made = linformer(
        shape, projection="mean", projected_length=min(shape.slots, shape.length), attention_window=shape.length
    )
    for layer in made.model.encoder.layers:
        layer.attention = FusedAttention(layer.attention)
    return made


def bert(shape: Shape, implementation: str) -> FromEmbeddings:
    """A random BertModel of this shape, without dropout and pooler; ``implementation`` "sdpa" or "eager"."""
    settings: Any = {**common_settings(shape), "attn_implementation": implementation}
    return FromEmbeddings(BertModel(BertConfig(**settings), add_pooling_layer=False))


COMPETITORS = (
    Competitor(name="sdpa", label="full attention, SDPA", family="full", build=twin),
    Competitor(
        name="bert-sdpa",
        label="BERT, SDPA",
        family="full",
        build=partial(bert, implementation="sdpa"),
    ),
    Competitor(  # the paper's baseline
        name="unfused",
        label="BERT, unfused attention",
        family="full",
        build=partial(bert, implementation="eager"),
    ),
)
