"""The Linformer encoder as a Hugging Face model: files, initial weights, resizing."""

from json import JSONDecodeError
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import PreTrainedModel

from longform.files import reading, share
from longform.functional.positions.tables import sinusoidal_positions
from longform.layers.attention import LinformerAttention
from longform.layers.embeddings import PositionEmbedding
from longform.layers.sequence_projection import Learned, PlacedMeanProjection, SequenceProjection
from longform.layers.short_convolution import ShortConvolution
from longform.models.configuration_linformer import LinformerConfig
from longform.models.loading import refuse_foreign
from longform.models.resizing import Lengths, resize_sequence_length
from longform.models.text_reader import ModelLayer, TextReader


class LinformerPreTrainedModel(PreTrainedModel):
    """Base of all Linformer models: configuration class, initial weights, resizing."""

    config_class = LinformerConfig
    config: LinformerConfig
    base_model_prefix = "linformer"
    supports_gradient_checkpointing = True
    _no_split_modules = ["LinformerLayer", "Embeddings"]  # noqa: RUF012
    _supports_sdpa = True
    _can_compile_fullgraph = True
    accepts_loss_kwargs = False  # losses are means: the Trainer divides them by its accumulation steps

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """Hugging Face's from_pretrained, for Linformer checkpoints in safetensors only.

        Raises CheckpointError for a model of another architecture (convert it first), for a pickle and for weights
        that are cut short.
        """
        refuse_foreign(pretrained_model_name_or_path, kwargs)
        options: dict[str, Any] = {"use_safetensors": True, **kwargs}
        not_whole = (SafetensorError, FileNotFoundError, JSONDecodeError)
        with reading(pretrained_model_name_or_path, way_out="copy or download its weights again", errors=not_whole):
            loaded = super().from_pretrained(pretrained_model_name_or_path, *args, **options)
        model = loaded[0] if isinstance(loaded, tuple) else loaded  # with output_loading_info
        if model.config.freeze_projection:  # loading makes new parameters
            for part in model.modules():
                if isinstance(part, SequenceProjection):
                    part.requires_grad_(False)
        return loaded

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        """Hugging Face's save_pretrained; the weights are as readable as the configuration beside them.

        A table of positions that was taken out (``embeddings.position_embeddings = None``) stays out.
        """
        base = self.base_model
        taken = isinstance(base, LinformerModel) and base.embeddings.position_embeddings is None
        if taken and self.config.rope_parameters is None:
            self.config.position_init = "none"
        super().save_pretrained(save_directory, *args, **kwargs)
        for config in Path(save_directory).glob("*config.json"):
            for path in config.parent.glob("*.safetensors"):
                share(path, config)

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = "AutoModel") -> None:
        """Nothing, as for LinformerConfig: a folder's code is written by its ``write_code``."""

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, Learned):
            init.copy_(module(), module.initial())
        elif isinstance(module, PositionEmbedding) and self.config.position_init == "sinusoidal":
            rows, features = module.weight.shape
            places = torch.arange(rows) - self.config.position_offset
            table = sinusoidal_positions(places, features, deviation=self.config.initializer_range)
            init.copy_(module.weight, table)
        elif isinstance(module, ShortConvolution):
            init.zeros_(module.weight)
        elif isinstance(module, PlacedMeanProjection):
            init.zeros_(module.place_share)
        elif isinstance(module, LinformerAttention) and module.memory_bias is not None:
            init.zeros_(module.memory_bias)

    def resize_sequence_length(
        self, length: int, *, projected_length: Lengths | None = None, positions: str = "tile"
    ) -> None:
        """Make the model take ``length`` tokens, in place: position table, E, F and configuration.

        Only the model: ``longform.convert`` changes what else knows its length, the tokenizer first of all. Pooling and
        convolution keep the tokens that a slot covers, so k grows in proportion; a dense E keeps k and is stretched;
        ``projected_length`` sets k instead. ``positions``: "tile" or "interpolate". Raises ConfigurationError where the
        new length does not fit the other options.
        """
        resize_sequence_length(self, length, projected_length=projected_length, positions=positions)


class LinformerLayer(GradientCheckpointingLayer, ModelLayer):
    """A Transformer block of a configuration; gradients may be formed by computing it again."""


class LinformerModel(TextReader, LinformerPreTrainedModel):
    """The bare encoder: last_hidden_state (B, n, D), and with ``config.use_pooler`` pooler_output.

    pooler_output (B, D): BERT's pooler with ``classifier_pooling="cls"``, else that pooling of the hidden states, which
    has no weights; (B, 2 D) with "cls_mean" or "cls_lead". None where a cache holds the beginning of the texts: a
    pooling of one piece is not that of the text.
    """

    # Older checkpoints have a pooler's weights whatever the pooling.
    _keys_to_ignore_on_load_unexpected = [r"^(linformer\.)?pooler\."]  # noqa: RUF012

    layer_class = LinformerLayer

    def __init__(self, config: LinformerConfig, add_pooling_layer: bool = True) -> None:
        LinformerPreTrainedModel.__init__(self, config)
        self.build(config, add_pooling_layer)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """The word embeddings."""
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the word embeddings."""
        self.embeddings.word_embeddings = value  # ty: ignore[invalid-assignment]  Hugging Face says Module
