"""Models to train: opening them (from memory, a conversion or a folder), what of them learns, saving them."""

import contextlib
import copy
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from longform.conversion.local import local_source
from longform.conversion.report import OWN_FILE
from longform.errors import ConfigurationError
from longform.files import copy_anew
from longform.models.configuration_linformer import LinformerConfig
from longform.models.loading import quiet_transformers
from longform.pretrained.adapters import join_adapters
from longform.pretrained.sentence_folder import (
    ENCODER_FILE,
    MODULES_FILE,
    SETTINGS_FILE,
    activation_of,
    listed_modules,
    settings_of,
)
from longform.pretrained.sentence_modules import is_encoder_alone
from longform.pretrained.tokenizers import fit_tokenizer
from longform.pretrained.weights import load_tokenizer, load_whole, read_config

CLASSIFIER, TOKEN_CLASSIFIER = "ForSequenceClassification", "ForTokenClassification"
HEADS = ("ForMaskedLM", CLASSIFIER, TOKEN_CLASSIFIER, "ForQuestionAnswering")
KEPT_FILES = (MODULES_FILE, SETTINGS_FILE, ENCODER_FILE, OWN_FILE)


class Student(NamedTuple):
    """A model with its tokenizer, and where it came from: a folder, a ConversionResult, a PeftModel, or None."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    origin: Any = None

    def save(self, folder: Path) -> None:
        """Save model and tokenizer; the files that make its origin a sentence-transformers folder are copied."""
        (self.origin if hasattr(self.origin, "save_pretrained") else self.model).save_pretrained(folder)
        if hasattr(self.origin, "tokenizer"):
            return
        self.tokenizer.save_pretrained(folder)
        if isinstance(self.origin, Path):
            _copy_other_files(self.origin, folder)


def _copy_other_files(source: Path, folder: Path) -> None:
    """Copy what neither model nor tokenizer saves: sentence-transformers' files and modules, the conversion report."""
    modules = [module["path"] for module in (listed_modules(source) or [])[1:]]
    for name in (*KEPT_FILES, *filter(None, modules)):
        if (source / name).exists():
            copy_anew(source / name, folder / name)


def open_student(student: Any, tokenizer: PreTrainedTokenizerBase | None) -> Student:
    """A loaded model, a ConversionResult (model, tokenizer, save_pretrained) or a folder."""
    if isinstance(student, str | Path):
        folder = Path(local_source(student))
        if not folder.is_dir():
            raise ConfigurationError(f'the student "{student}" is not a folder; longform convert makes one')
        return _student(load_encoder(folder), tokenizer or load_tokenizer(folder), folder)
    bare = isinstance(student, PreTrainedModel)
    model = student if bare else getattr(student, "model", None)
    if not isinstance(model, PreTrainedModel):
        raise ConfigurationError(f"a student is a model, a ConversionResult or a folder, not {type(student).__name__}")
    tokenizer = tokenizer or getattr(student, "tokenizer", None)
    if tokenizer is None:
        raise ConfigurationError("a model in memory needs its tokenizer: tokenizer=...")
    return _student(model, tokenizer, None if bare else student)


def _student(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, origin: Any = None) -> Student:
    return Student(model, fit_tokenizer(tokenizer, model.config, name=f"the {type(model).__name__}"), origin)


def load_encoder(source: PreTrainedModel | str | Path) -> PreTrainedModel:
    """A model with the head that its configuration names, in float32; a loaded one as it is.

    sentence-transformers saves an encoder alone under the name of the language model that it came from: it is read as
    an encoder. Raises CheckpointError when it cannot be read, and for weights that are missing or left over
    (``check_weights``).
    """
    if isinstance(source, PreTrainedModel):
        return source
    source = local_source(source)
    named = (read_config(source).architectures or [""])[0]
    head = "" if is_encoder_alone(source) else next((head for head in HEADS if named.endswith(head)), "")
    return load_whole(getattr(transformers, f"AutoModel{head}"), source, dtype=torch.float32)


def activation_for(source: Any, labels: int) -> str | None:
    """The activation with which sentence-transformers' CrossEncoder runs the classifier ``source``, its class's name.

    None for the default, for what is no classifier, and where it has another number of ``labels``. ``source``: as in
    ``with_labels``.
    """
    if isinstance(source, str | Path):
        source = local_source(source)
        config, settings = read_config(source), settings_of(source)
        named = (config.architectures or [""])[0]
    else:
        model = getattr(source, "model", source)
        config, settings, named = model.config, {}, type(model).__name__
    return activation_of(config, settings) if named.endswith(CLASSIFIER) and config.num_labels == labels else None


def with_labels(
    source: Any,
    labels: int,
    tokenizer: PreTrainedTokenizerBase | None,
    *,
    head: str = CLASSIFIER,
    pooling: str | None = None,
    **config: Any,
) -> Student:
    """An encoder with a head for ``labels`` values, of a text or (``head``) of each token: the one it has where that
    fits, else a new one.

    ``source``: a loaded model, whose frozen parameters stay frozen, a ConversionResult, a folder or a hub name, of
    whose files for sentence-transformers none is saved with the classifier. ``pooling``: what a Longform's new head
    sees, None for what its config says. ``config``: more fields of its config. Raises ConfigurationError where the
    model has a head of another pooling, or is no Longform.
    """
    if isinstance(source, str | Path):
        source = local_source(source)
        made = _with_labels(source, labels, head, pooling, config, name=f'"{source}"')
        return _student(made, tokenizer or load_tokenizer(source))
    opened = open_student(source, tokenizer)
    whole = opened.model
    if hasattr(whole, "peft_config"):
        whole = copy.deepcopy(whole)
        join_adapters(whole)
    with tempfile.TemporaryDirectory(prefix="longform-") as folder:
        with quiet_transformers():
            whole.save_pretrained(folder)
        made = _with_labels(folder, labels, head, pooling, config, name=f"the {type(whole).__name__}")
    frozen = {name for name, p in whole.base_model.named_parameters() if not p.requires_grad}
    for name, parameter in made.base_model.named_parameters():
        parameter.requires_grad_(name not in frozen and parameter.requires_grad)
    return _student(made, opened.tokenizer)


def _with_labels(
    source: str, labels: int, head: str, pooling: str | None, config: dict[str, Any], *, name: str
) -> PreTrainedModel:
    if pooling is not None:
        _check_pooling(read_config(source), pooling, name)
        config = config | {"classifier_pooling": pooling}
    auto = getattr(transformers, f"AutoModel{head}")
    return load_whole(auto, source, dtype=torch.float32, new_head=True, num_labels=labels, **config)


def _check_pooling(config: Any, pooling: str, model: str) -> None:
    """Raise ConfigurationError where a model of ``config`` has no choice of a pooling, or has chosen another."""
    own = getattr(config, "classifier_pooling", None)
    if config.model_type != LinformerConfig.model_type:
        raise ConfigurationError(
            f'classifier_pooling="{pooling}" is for Longforms, and {model} is a model of type {config.model_type!r}: '
            "leave it out, or convert the model first (longform convert)"
        )
    if (config.architectures or [""])[0].endswith(CLASSIFIER) and own != pooling:
        raise ConfigurationError(
            f'classifier_pooling="{pooling}", but {model} has a classifier already, which sees "{own}": leave it out, '
            "or give the encoder without a classifier"
        )


@contextlib.contextmanager
def learning(model: PreTrainedModel, *, dropout: float | None = None, word_embeddings: bool = True) -> Generator[None]:
    """For the time being: dropout of one probability (None: as it is), and what stays as it is: a pooler, which no loss
    sees, and word vectors unless they are to learn. In evaluation mode at the end.
    """
    words: Any = model.get_input_embeddings()
    frozen = [p for name, p in model.named_parameters() if "pooler" in name.split(".")]
    frozen += [] if word_embeddings else [words.weight]
    kept: list[tuple[Any, str, Any]] = [(parameter, "requires_grad", parameter.requires_grad) for parameter in frozen]
    for module in model.modules() if dropout is not None else ():
        name = "p" if isinstance(module, nn.Dropout) else "dropout"
        if isinstance(value := getattr(module, name, None), float):
            kept.append((module, name, value))
            setattr(module, name, dropout)
    for parameter in frozen:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for owner, name, value in kept:
            setattr(owner, name, value)
        model.eval()
