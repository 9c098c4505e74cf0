"""A low-rank adapter (LoRA) that learns in place of an encoder's weights."""

import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from longform.conversion.adapter import WEIGHTS, write_account
from longform.errors import require
from longform.pretrained.checkpoint_files import model_key

FOLDER = "adapter"


class LowRankAdapter:
    """Put into ``encoder``, in place, on every linear layer but a pooler; ``rank``: of the two thin matrices.

    ``seed``: of the first of them; the second begins as zeros. Raises MissingDependencyError without PEFT.
    """

    def __init__(self, encoder: PreTrainedModel, rank: int, *, seed: int) -> None:
        peft = require("peft", extra="lora")
        self.learned = [name for name, parameter in encoder.named_parameters() if parameter.requires_grad]
        self.encoder, self.state = encoder, partial(peft.get_peft_model_state_dict, save_embedding_layers=False)
        self.changes = model_key(encoder)
        layers = [
            name
            for name, module in encoder.named_modules()
            if isinstance(module, nn.Linear) and "pooler" not in name.split(".")
        ]
        config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules=layers)
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())), warnings.catch_warnings():
            torch.manual_seed(seed)
            warnings.simplefilter("ignore", FutureWarning)  # PEFT asks transformers by a name of before
            self.wrapped: Any = peft.get_peft_model(encoder, config)
        self.saved: dict[str, Tensor] = {}

    def merge(self) -> None:
        """Add it, rounded to float16, to the weights; the encoder then is as it was built."""
        for parameter in self.wrapped.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.half().float()
        self.saved = {name: value.half().contiguous() for name, value in self.state(self.wrapped).items()}
        self.wrapped.merge_and_unload()
        for name, parameter in self.encoder.named_parameters():
            parameter.requires_grad_(name in self.learned)

    def save(self, folder: Path, *, report: Mapping[str, Any] | None, **pooling: Any) -> None:
        """PEFT's two files in a folder of their own; of a conversion, with its ``report``, what ``convert`` needs.

        ``pooling``: ``token_weights`` and ``sublinear_tf``, as ``write_account`` takes them.
        """
        place = folder / FOLDER
        place.mkdir()
        config = self.wrapped.peft_config["default"]
        config.inference_mode, config.base_model_name_or_path = True, None  # a path of this machine
        config.save_pretrained(str(place))
        save_file(self.saved, place / WEIGHTS)
        if report is not None:
            write_account(place, report=report, key=self.changes, **pooling)
