"""Folders of sentence-transformers, whose encoder is converted while the modules after it are kept as they are.

They are those of a SentenceTransformer, CrossEncoder, SparseEncoder or MultiVectorEncoder.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longform.errors import ConversionError
from longform.pretrained.checkpoint_files import read_json

MODULES_FILE = "modules.json"
SETTINGS_FILE = "config_sentence_transformers.json"
ENCODER_FILE = "sentence_bert_config.json"
ENCODERS = {"Transformer": "feature-extraction", "MLMTransformer": "fill-mask"}  # the task where none is written down
TASKS = {
    "feature-extraction": "encoder",
    "fill-mask": "masked-lm",
    "sequence-classification": "sequence-classification",
}
KEPT = (
    "Pooling", "Normalize", "Dense", "LayerNorm", "Dropout", "WeightedLayerPooling", "WordWeights", "LSTM", "CNN",
    "SpladePooling", "SparseAutoEncoder", "MultiVectorMask", "HierarchicalTokenPooling", "SublinearTF",
)  # fmt: skip
SUBLINEAR_TF = "longform.conversion.sublinear_tf.SublinearTF"
# A MultiVectorEncoder reads PyLate's folders too.
PACKAGES = ("sentence_transformers.", "pylate.models.", "longform.conversion.")
LENGTHS = ("max_seq_length", "document_length")  # tokens at which texts are cut
LOADERS = {name: name for name in ("CrossEncoder", "SparseEncoder", "MultiVectorEncoder")}
LOADERS["ColBERT"] = "MultiVectorEncoder"  # PyLate's
REQUIREMENTS = {"longform": {"specifier": ">=0.1", "reason": "Its encoder is a Longform."}}
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")


@dataclass(frozen=True)
class SentenceFolder:
    """Content of a sentence-transformers folder beside its encoder.

    ``modules``: modules.json; ``encoder_path``: the encoder's folder inside the source ("" for the root);
    ``encoder_options``: its sentence_bert_config.json; ``settings``: its config_sentence_transformers.json (prompts,
    similarity, a CrossEncoder's activation); ``files``: the other modules' files, by their path inside. ``task``: what
    the encoder is loaded for, in the words of ``convert``.
    """

    modules: list[dict[str, Any]]
    encoder_path: str
    encoder_options: dict[str, Any]
    settings: dict[str, Any]
    files: dict[str, bytes] = field(default_factory=dict)
    task: str = "encoder"

    def write(self, folder: Path, *, max_length: int) -> None:
        """Write everything but the encoder and its tokenizer, which belong in ``folder`` itself, into ``folder``.

        Texts are cut at ``max_length``, and documents where they have a limit of their own. The encoder is at the root
        whatever it was in the source: transformers, and the commands that load with it, look nowhere else.
        """
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        modules = [self.modules[0] | {"path": ""}, *self.modules[1:]]
        options = _lengthened(self.encoder_options, max_length) | {"max_seq_length": max_length}
        required = self.settings.get("requirements", {}) | REQUIREMENTS
        settings = _lengthened(self.settings, max_length) | {"requirements": required}
        for name, content in ((MODULES_FILE, modules), (ENCODER_FILE, options), (SETTINGS_FILE, settings)):
            (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def loader_of(settings: Mapping[str, Any]) -> str:
    """The class of sentence-transformers that reads a folder of these ``settings``."""
    named = str(settings.get("model_type"))
    return LOADERS.get(named, "SentenceTransformer")


def read_sentence_folder(folder: Path) -> SentenceFolder | None:
    """Read ``folder``, or None where it has no modules.json.

    Raises ConversionError on modules that are not known to work on any encoder's output, and on pickled weights.
    """
    if not (folder / MODULES_FILE).is_file():
        return None
    modules = _modules(folder)
    files: dict[str, bytes] = {}
    for module in modules[1:]:
        files |= _module_files(folder, _inside(folder, module))
    encoder = _inside(folder, modules[0])
    settings = read_json(folder / SETTINGS_FILE) if (folder / SETTINGS_FILE).is_file() else {}
    if not isinstance(settings, dict):
        raise ConversionError(f"{folder / SETTINGS_FILE} does not hold an object")
    options = _encoder_options(folder / encoder)
    task = options.get("transformer_task", ENCODERS[kind_of(modules[0])])
    if task not in TASKS:
        raise ConversionError(
            f"the encoder of the sentence-transformers folder {folder} is for {task!r}; supported: {', '.join(TASKS)}"
        )
    return SentenceFolder(modules, encoder, options, settings, files, TASKS[task])


def _modules(folder: Path) -> list[dict[str, Any]]:
    modules = read_json(folder / MODULES_FILE)
    if not isinstance(modules, list) or not modules or not all(isinstance(m, dict) for m in modules):
        raise ConversionError(f"{folder / MODULES_FILE} does not list modules")
    kinds = [kind_of(module) for module in modules]
    if kinds[0] not in ENCODERS or any(kind not in KEPT for kind in kinds[1:]):
        raise ConversionError(
            f"the sentence-transformers folder {folder} has the modules {' -> '.join(kinds)}; supported are "
            f"{' or '.join(ENCODERS)}, then any of {', '.join(KEPT)}. Of a Router, save the modules of one route as a "
            "model of their own (SentenceTransformer(modules=[...]).save_pretrained), and convert that"
        )
    return modules


def _lengthened(options: dict[str, Any], max_length: int) -> dict[str, Any]:
    return options | {name: max_length for name in LENGTHS if options.get(name) is not None}


def kind_of(module: Mapping[str, Any]) -> str:
    """The class of a module of sentence-transformers, as modules.json names it; of any other with its package."""
    kind = str(module.get("type", ""))
    return kind.rsplit(".", 1)[-1] if kind.startswith(PACKAGES) else kind


def _inside(folder: Path, module: dict[str, Any]) -> str:
    path = str(module.get("path", ""))
    try:
        inside = (folder / path).resolve().is_relative_to(folder.resolve())
        (folder / path).exists()  # raises for what no file can be called
    except (OSError, ValueError) as error:
        raise ConversionError(f"{folder / MODULES_FILE} names a module that cannot be one: {error}") from error
    if not inside:
        raise ConversionError(f"{folder / MODULES_FILE} names a module outside the folder: {path!r}")
    return path


def _module_files(folder: Path, path: str) -> dict[str, bytes]:
    files = sorted(file for file in (folder / path).rglob("*") if file.is_file()) if path else []
    for file in files:
        if file.suffix in PICKLES:
            raise ConversionError(
                f"{file} is a pickle, which Longform does not read; load the model with sentence-transformers and save "
                "it again, which writes safetensors"
            )
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def _encoder_options(folder: Path) -> dict[str, Any]:
    for path in (folder / ENCODER_FILE, *sorted(folder.glob("sentence_*_config.json"))):
        if path.is_file():
            options = read_json(path)
            if not isinstance(options, dict):
                raise ConversionError(f"{path} holds {type(options).__name__}, not settings by name")
            return options
    return {"do_lower_case": False}


IDENTITY = "torch.nn.modules.linear.Identity"
FIELD, NAME = "sentence_transformers", "activation_fn"
OLDER = "sbert_ce_default_activation_function"  # before its version 4


def activation_of(config: Any, settings: Mapping[str, Any] | None = None) -> str | None:
    """The activation's class by its full name, None for the default: a sigmoid of one label, nothing of several.

    ``config``: the classifier's; ``settings``: the folder's config_sentence_transformers.json, which comes first.
    """
    theirs = getattr(config, FIELD, None) or {}
    return (settings or {}).get(NAME) or theirs.get(NAME) or getattr(config, OLDER, None)


def with_activation(config: Any, activation: str | None) -> dict[str, Any]:
    """Fields for a config like ``config`` with which a CrossEncoder takes this ``activation``, None for the default."""
    theirs = {name: value for name, value in (getattr(config, FIELD, None) or {}).items() if name != NAME}
    return {FIELD: theirs if activation is None else theirs | {NAME: activation}}
