"""Stand-ins for torch's nn.MultiheadAttention and nn.TransformerEncoderLayer: their calls, names and conventions.

Axes: B batch, n queries, m keys, D width, h heads, k slots.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from longform.errors import ConfigurationError, InputError
from longform.functional.masks import check_pair_mask, check_tensors, mask_of_text
from longform.layers.attention import LinformerAttention
from longform.layers.linear import Weights
from longform.layers.names import named
from longform.layers.options import AttentionOptions
from longform.layers.self_attention import NOTHING_SHARED, Shared

OF_TORCH = ("in_proj_", "q_proj_", "k_proj_", "v_proj_", "out_proj.")  # parameters of nn.MultiheadAttention


def _check_axes(query: Tensor, key: Tensor, value: Tensor) -> None:
    check_tensors(query=query, key=key, value=value)
    if not query.dim() == key.dim() == value.dim() or query.dim() not in (2, 3):
        raise InputError(
            f"query, key and value have shapes {tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}, "
            "expected three axes each (a batch) or two"
        )


def _averaged(weights: Tensor | None) -> Tensor | None:
    """The mean over heads."""
    return None if weights is None else weights.mean(dim=1)


def _of_one_text(out: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor | None]:
    return out[0], None if weights is None else weights[0]


def _pair(found: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor | None]:
    """An output and its weights, None where there are none."""
    return found if isinstance(found, tuple) else (found, None)


class LinformerMultiheadAttention(LinformerAttention):
    """LinformerAttention with the call, the weights' names and the conventions of nn.MultiheadAttention.

    ``embed_dim`` to ``dtype`` are torch's; a state_dict of an nn.MultiheadAttention loads, whatever ``projection`` is,
    and what shortens keys and values keeps its weights then, or is missing on the device "meta". The output is torch's
    only where every query sees every token (``projected_length=max_length``, or a text of two windows): else it is
    another function (with a slot for 4 of 256 random tokens it was off by 0.65 of its norm). ``attention``: max_length,
    projected_length, projection, attention_window, causal, ..., see LinformerAttention.

    Raises ConfigurationError for add_bias_kv, add_zero_attn and share_kv, and for options that do not go together.
    """

    @named(LinformerAttention.__init__)
    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        short_convolution: int | None = 0,  # keys may be of another text, whose neighbours no query has
        **attention: Any,
    ) -> None:
        if add_bias_kv or add_zero_attn:
            raise ConfigurationError("add_bias_kv and add_zero_attn add keys that are no tokens: leave them at False")
        if attention.get("share_kv"):
            raise ConfigurationError("share_kv has no place among torch's weights: use LinformerAttention")
        super().__init__(
            embed_dim,
            num_heads,
            dropout=dropout,
            bias=bias,
            context_size=kdim,
            short_convolution=short_convolution,
            **attention,
        )
        self.embed_dim, self.batch_first = embed_dim, batch_first
        self.kdim, self.vdim = self.context_size, vdim or embed_dim
        self.bias_k = self.bias_v = None
        self.add_zero_attn = False
        self._qkv_same_embed_dim = self.kdim == self.vdim == embed_dim
        self.of_one_text = self.window is not None or (self.convolution is not None and self._qkv_same_embed_dim)
        if self._qkv_same_embed_dim:
            self.in_proj_weight = nn.Parameter(torch.empty(3 * embed_dim, embed_dim))
            widths: tuple[int, ...] = ()
        else:
            self.register_parameter("in_proj_weight", None)
            widths = (embed_dim, self.kdim, self.vdim)
        for name, width in zip("qkv", widths or (0, 0, 0), strict=True):
            self.register_parameter(
                f"{name}_proj_weight", nn.Parameter(torch.empty(embed_dim, width)) if widths else None
            )
        self.register_parameter("in_proj_bias", nn.Parameter(torch.empty(3 * embed_dim)) if bias else None)
        self.reset_parameters()
        self.to(device=device, dtype=dtype)

    def make_features(self, *, bias: bool) -> None:
        """Make the output; the other three are parts of the parameters that torch has."""
        if self.head_dim * self.num_heads != self.hidden_size or self.num_key_value_heads != self.num_heads:
            raise ConfigurationError(
                "head_dim and num_key_value_heads change the shapes of torch's weights: use LinformerAttention"
            )
        self.out_proj = nn.Linear(self.hidden_size, self.hidden_size, bias=bias)

    def reset_parameters(self) -> None:
        """Begin its parameters anew, and the bias of the output, as torch's module does."""
        super().reset_parameters()
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if getattr(self, name) is not None:
                nn.init.xavier_uniform_(getattr(self, name))
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if isinstance(bias, Tensor):
                nn.init.zeros_(bias)

    def _part(self, index: int) -> Weights:
        weight, size, bias = self.in_proj_weight, self.hidden_size, cast("Tensor | None", self.in_proj_bias)
        rows = slice(index * size, (index + 1) * size)
        own = getattr(self, f"{'qkv'[index]}_proj_weight") if weight is None else weight[rows]
        return Weights(own, None if bias is None else bias[rows])

    @property
    def query(self) -> Weights:
        """Part for queries: weight (D, D) and bias."""
        return self._part(0)

    @property
    def key(self) -> Weights:
        """Part for keys."""
        return self._part(1)

    @property
    def value(self) -> Weights:
        """Part for values."""
        return self._part(2)

    @property
    def output(self) -> nn.Module:
        """The output projection."""
        return self.out_proj

    def forward(  # ty: ignore[incompatible-method-override]  torch's call
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend, in torch's shapes: query (n, B, D), or (B, n, D) with ``batch_first``, or (n, D); key and value
        likewise, of m tokens and kdim and vdim features; ``key_padding_mask`` (B, m), True for padding.

        ``attn_mask``: None, or where the module was made with causal=True a causal mask, which changes nothing.
        Returns the output in the query's shape, and with ``need_weights`` the weights on slots (B, n, k), or
        (B, h, n, k) without ``average_attn_weights``; see LinformerAttention for those of a window.
        Raises InputError on other masks and shapes. A window, ``causal`` and, without kdim and vdim, a short
        convolution are of self-attention: query, key and value are of one shape then, and may differ (DETR).
        """
        _check_axes(query, key, value)
        one_text, one_input, one_memory = query.dim() == 2, query is key is value, key is value
        batch_axis = 0 if one_text or self.batch_first else 1
        if one_text:
            query, key, value = query[None], key[None], value[None]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        query, key, value = query.transpose(0, batch_axis), key.transpose(0, batch_axis), value.transpose(0, batch_axis)
        check_pair_mask(attn_mask, query, is_causal=is_causal, causal=self.causal)
        mask = mask_of_text(None, key_padding_mask)
        if not self.of_one_text:
            own = None if one_memory and self.kdim == self.vdim else value
            shared = Shared(value=own, context=key, context_mask=mask)
            out, weights = _pair(super().forward(query, shared=shared, output_attentions=need_weights))
        elif query.shape == key.shape == value.shape:
            shared = NOTHING_SHARED if one_input else Shared(query=query, value=value)
            out, weights = _pair(super().forward(key, mask, shared=shared, output_attentions=need_weights))
        else:
            raise InputError(
                f"query, key and value have shapes {tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}: "
                "a module with attention_window, causal or short_convolution is for the tokens of one text; for others "
                "make it without them"
            )
        out = out.transpose(0, batch_axis)
        weights = _averaged(weights) if average_attn_weights else weights
        return _of_one_text(out, weights) if one_text else (out, weights)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any, **kwargs: Any) -> None:
        """Torch's own; a state_dict of an nn.MultiheadAttention leaves what it knows nothing of as it is.

        Of that, what has no data yet, on the device "meta", is missing.
        """
        own = self.state_dict(prefix=prefix)
        kept = {name: x for name, x in own.items() if not name.removeprefix(prefix).startswith(OF_TORCH)}
        if not kept.keys() & state_dict.keys():
            state_dict.update({name: x for name, x in kept.items() if not x.is_meta})
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


class LinformerEncoderLayer(nn.TransformerEncoderLayer):
    """nn.TransformerEncoderLayer, with its names and its call, whose ``self_attn`` is a LinformerMultiheadAttention.

    ``nn.TransformerEncoder(LinformerEncoderLayer(...), num_layers, enable_nested_tensor=False)`` is a stack of it.
    ``attention``: what LinformerMultiheadAttention takes besides (max_length, projected_length, causal, ...).
    """

    @named(LinformerMultiheadAttention.__init__)
    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        short_convolution: int | None = AttentionOptions.short_convolution,
        **attention: Any,
    ) -> None:
        attention["short_convolution"] = short_convolution
        shape: Any = {"bias": bias, "batch_first": batch_first, "device": device, "dtype": dtype, "dropout": dropout}
        super().__init__(
            d_model,
            nhead,
            dim_feedforward,
            activation=activation,
            layer_norm_eps=layer_norm_eps,
            norm_first=norm_first,
            **shape,
        )
        self.self_attn = LinformerMultiheadAttention(d_model, nhead, **shape, **attention)
        self.activation_relu_or_gelu = 0  # torch's fused layer, which reads the weights itself, would be full attention

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Encode src (n, B, D), or (B, n, D) with ``batch_first``, as torch's layer does; raises InputError as
        LinformerMultiheadAttention does.
        """
        check_tensors(src=src, src_mask=src_mask, src_key_padding_mask=src_key_padding_mask)
        return super().forward(src, src_mask, src_key_padding_mask, is_causal)
