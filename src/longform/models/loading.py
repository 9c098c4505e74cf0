"""Loading and saving: a checkpoint's own architecture, weights in safetensors, and no bars of transformers."""

import contextlib
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

from transformers.configuration_utils import PreTrainedConfig
from transformers.utils import logging

from longform.errors import CheckpointError
from longform.models.configuration_linformer import LinformerConfig

HUB_OPTIONS = ("cache_dir", "force_download", "local_files_only", "token", "revision", "subfolder")
_one_thread = threading.RLock()


def refuse_foreign(source: Any, options: dict[str, Any]) -> None:
    """Raise CheckpointError where ``source``, a folder or hub name, is another architecture or holds only a pickle."""
    if source is None or options.get("config") is not None or options.get("gguf_file") is not None:
        return
    hub = {name: options[name] for name in HUB_OPTIONS if name in options}
    config = PreTrainedConfig.get_config_dict(source, **hub)[0]
    if not config or not isinstance(config, dict):
        raise CheckpointError(f'"{source}" has no configuration: config.json is missing, or holds no names and values')
    found = config.get("model_type")
    if found not in (None, LinformerConfig.model_type):
        raise CheckpointError(
            f'"{source}" holds a model of type {found!r}, not {LinformerConfig.model_type!r}: its weights would be '
            f'left out. Convert it first: longform.convert("{source}").save_pretrained(folder)'
        )
    folder = Path(source) / options.get("subfolder", "")
    if folder.is_dir() and any(folder.glob("*.bin")) and not any(folder.glob("*.safetensors")):
        raise CheckpointError(
            f'"{source}" holds its weights as a pickle, which can run code when it is read; '
            "save the model again with save_pretrained, which writes safetensors"
        )


@contextlib.contextmanager
def quiet_transformers() -> Generator[None]:
    """No bars of transformers for weights and files, no table of weights: what is missing is raised as an error.

    One thread at a time is inside: these are the whole process's, and so is what transformers switches while it loads.
    """
    with _one_thread:
        verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(verbosity)
            if bars:
                logging.enable_progress_bar()
