"""The Hugging Face contract: configuration, models with heads; to import any of it makes them known to Auto classes."""

import transformers

from longform.models import task_heads
from longform.models.configuration_linformer import AUTO_MODELS

for auto, name in AUTO_MODELS.items():
    getattr(transformers, auto).register(task_heads.LinformerConfig, getattr(task_heads, name))
