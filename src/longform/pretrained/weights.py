"""A pretrained model with all its weights and adapters: which tensors a checkpoint may lack or have left over.

transformers gives what a checkpoint lacks random weights, and says so in a log that nobody reads.
"""

import os
import re
import warnings
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase
from transformers.configuration_utils import PreTrainedConfig
from transformers.utils import cached_file

from longform.errors import CheckpointError, require
from longform.files import check_utf_8
from longform.models.loading import quiet_transformers
from longform.pretrained.adapters import adapter_of, adapter_weights, add_adapter, labels_of
from longform.pretrained.checkpoint_files import read_weights
from longform.pretrained.tokenizers import fit_tokenizer

if TYPE_CHECKING:  # takes seconds to be imported
    from transformers import PreTrainedModel

WRAPPERS = re.compile(r"^(module\.|_orig_mod\.)+")  # before the names: DataParallel's, and torch.compile's
BUFFERS = ("position_ids", "token_type_ids", "inv_freq")  # older versions of transformers saved them
MISSING = " (there is no such folder)"
JOINED = " (of an adapter and its base, model.merge_and_unload().save_pretrained(FOLDER) makes one model)"
SHOWN = 6  # names of tensors in a message


def load_whole(
    auto_class: Any, source: str | Path, *, dtype: torch.dtype, new_head: bool = False, **config: Any
) -> "PreTrainedModel":
    """The model of a folder or hub name, from safetensors, with every weight from there.

    Of an adapter (PEFT) it is the model that it was trained on, and the adapter becomes part of the weights.
    ``new_head``: a head that the checkpoint lacks, or has for another number of labels, is a new one. ``config``:
    fields of its config. Names in the wrappers of DataParallel or torch.compile are taken without, with a warning.
    Raises CheckpointError for what cannot be read, and as ``check_weights`` does.
    """
    how: dict[str, Any] = {"output_loading_info": True, "ignore_mismatched_sizes": True, "dtype": dtype}
    with reading(source):
        adapter = adapter_of(source)
        learned = {} if adapter is None else adapter_weights(source)
    if adapter is not None:
        require("peft", extra="lora")
        base, new_head = adapter["base_model_name_or_path"], new_head or bool(adapter.get("modules_to_save"))
        config = labels_of(learned) | config
        model = load_whole(auto_class, base, dtype=dtype, new_head=new_head, **config)
        with reading(source):
            add_adapter(model, source, learned)
        return model
    with reading(source):
        model, found = auto_class.from_pretrained(source, use_safetensors=True, **how, **config)
        wrapped = [name for name in found["unexpected_keys"] if WRAPPERS.match(name)]
        if wrapped:
            weights = _without_wrappers(source, wrapped)
            model, found = type(model).from_pretrained(None, config=model.config, state_dict=weights, **how)
    check_weights(model, found, source, new_head=new_head)
    return model


def read_config(source: str | Path) -> Any:
    """The configuration of a folder or hub name, of an adapter its base's. Raises CheckpointError for none to read."""
    with reading(source):
        adapter = adapter_of(source)
        base = adapter["base_model_name_or_path"] if adapter else source
        config: Any = checked_config(AutoConfig.from_pretrained(base))
    if adapter and adapter.get("task_type") == "SEQ_CLS":
        config.architectures = ["ForSequenceClassification"]
    return config


def checked_config(config: PreTrainedConfig) -> PreTrainedConfig:
    """``config`` itself. Raises ValueError where ``architectures``, which transformers does not look at, is no list of
    names.
    """
    found = config.architectures
    if found is not None and not (isinstance(found, list) and all(isinstance(name, str) for name in found)):
        raise ValueError(f"architectures={found!r} must be a list of names of classes, or null")
    return config


def load_tokenizer(source: str | Path, config: Any = None) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder or hub name, for the model of ``config`` (None: for any).

    An adapter without one has its base's. Raises CheckpointError when it cannot be read, ConfigurationError where it is
    larger than the model.
    """
    with reading(source, "the tokenizer of "):
        adapter = adapter_of(source)
        absent: Any = {"_raise_exceptions_for_missing_entries": False}
        own = adapter is None or cached_file(str(source), "tokenizer_config.json", **absent)
        tokenizer = AutoTokenizer.from_pretrained(source if own else adapter["base_model_name_or_path"])
    return fit_tokenizer(tokenizer, config, name=f'"{source}"')


def _without_wrappers(source: str | Path, wrapped: list[str]) -> dict[str, Any]:
    config = cached_file(str(source), "config.json")
    assert config is not None
    tensors = read_weights(Path(config).parent)
    bare = {WRAPPERS.sub("", name): tensor for name, tensor in tensors.items()}
    if len(bare) < len(tensors):
        raise CheckpointError(f'"{source}" has weights twice, with and without a wrapper\'s name: {listed(wrapped)}')
    warnings.warn(f'the weights of "{source}" are read without the wrapper in front of {listed(wrapped)}', stacklevel=4)
    return bare


def _name_of(key: Any) -> str:
    """The name of a tensor, of which transformers may give the sizes too."""
    return key if isinstance(key, str) else key[0]


def check_weights(
    model: "PreTrainedModel", found: Mapping[str, Collection[Any]], source: str | Path, *, new_head: bool = False
) -> None:
    """Raise CheckpointError, with their names, for tensors that a checkpoint lacks, has in another size, or in excess.

    ``found``: "missing_keys", "mismatched_keys" and "unexpected_keys", as transformers reports them. No error are:

    * a pooler is left over, missing where nothing uses it, and new with ``new_head``;
    * another head is left over; with ``new_head`` a part of the head is new that is missing as a whole, and so is what
      has another size in it, such as the last layer for another number of labels;
    * buffers of older versions are left over.
    """
    named, parts = type(model).__name__, _Parts(model)
    other_size = list(map(_name_of, found["mismatched_keys"]))
    new = parts.new(found["missing_keys"], other_size) if new_head else set()
    if missing := [name for name in found["missing_keys"] if name not in new and not parts.unused(name)]:
        raise CheckpointError(
            f'"{source}" lacks the weights {listed(missing)} that {named} needs{_why(model, parts, missing, found)}'
        )
    if wrong := [name for name in other_size if name not in new]:
        raise CheckpointError(
            f'"{source}" cannot be loaded: its weights {listed(wrong)} have other sizes than its config.json says'
        )
    if excess := [name for name in found["unexpected_keys"] if parts.in_encoder(name)]:
        raise CheckpointError(
            f'"{source}" has the weights {listed(excess)}, for which its config.json has no place in a {named}: '
            "without them it would be another model; put its own config.json there"
        )


class _Parts:
    """Which part of ``model`` a tensor belongs to: its encoder, a pooler on it, or a head."""

    def __init__(self, model: "PreTrainedModel") -> None:
        base: Any = model.base_model
        self.bare, self.prefix = base is model, f"{model.base_model_prefix}."
        self.encoder = {name for name, _ in base.named_children()} - {"pooler"}
        self.names = list(model.state_dict())

    def of(self, name: str) -> str:
        return name.removeprefix(self.prefix).split(".")[0]

    def in_encoder(self, name: str) -> bool:
        return self.of(name) in self.encoder and not name.endswith(BUFFERS)

    def unused(self, name: str) -> bool:
        return self.bare and self.of(name) == "pooler"

    def new(self, missing: Collection[str], other_size: Collection[str]) -> set[str]:
        """Tensors that are not of the encoder: of ``other_size``, or in a part of which the checkpoint has nothing."""
        found = {self.of(name) for name in self.names if name not in missing}
        whole = {name for name in missing if self.of(name) not in found}
        return {name for name in (*whole, *other_size) if not self.in_encoder(name)}


def _why(model: "PreTrainedModel", parts: _Parts, missing: Iterable[str], found: Mapping[str, Collection[Any]]) -> str:
    if not any(map(parts.in_encoder, missing)):
        return (
            f"; it was saved as {model.config.architectures}. A head must be trained (longform finetune) before it "
            "is used"
        )
    left = f"; what it has instead: {listed(found['unexpected_keys'])}" if found["unexpected_keys"] else ""
    return f": the checkpoint is not whole, or of another model{left}"


def listed(names: Iterable[str]) -> str:
    """Names of tensors for a message, of many the first."""
    every = sorted(names)
    return ", ".join(every[:SHOWN]) + (f" and {len(every) - SHOWN} more" if len(every) > SHOWN else "")


@contextmanager
def reading(source: str | Path, part: str = "") -> Generator[None]:
    """Raise CheckpointError for what goes wrong while a folder or hub name is read; ``part`` of it: "the ... of ".

    Raises ConfigurationError as ``check_utf_8`` does.
    """
    check_utf_8(source)
    try:
        with quiet_transformers():
            yield
    except Exception as error:  # OSError, ValueError, KeyError, SafetensorError, RuntimeError: one for each fault
        said, hint = " ".join(str(error).split())[:300], _hint(source)
        if hint == MISSING and not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", str(source)):
            said, hint = "there is no such folder", ""  # and no hub name either
        raise CheckpointError(f'{part}"{source}" cannot be loaded: {said}{hint}') from error


def _hint(source: str | Path) -> str:
    if not os.path.isdir(source):  # pathlib raises for names that no file system takes
        return "" if os.path.exists(source) else MISSING
    names = set(os.listdir(source))
    if "adapter_config.json" in names:
        return JOINED
    if any(name.endswith(".bin") for name in names) and not any(name.endswith(".safetensors") for name in names):
        return " (its weights are a pickle, which is never read: save the model with safetensors)"
    return ""
