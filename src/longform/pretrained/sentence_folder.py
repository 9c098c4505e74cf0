"""Folders of sentence-transformers, read without that package: modules, settings, and what a conversion keeps of them.

They are those of a SentenceTransformer, CrossEncoder, SparseEncoder or MultiVectorEncoder.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers.utils import cached_file

from longform.errors import ConversionError
from longform.files import read_json, reading
from longform.pretrained.checkpoint_files import PICKLES

MODULES_FILE = "modules.json"
SETTINGS_FILE = "config_sentence_transformers.json"
ENCODER_FILE = "sentence_bert_config.json"
FAMILIES = ("roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
ENCODER_FILES = (ENCODER_FILE, *(f"sentence_{family}_config.json" for family in FAMILIES))  # others are older
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
        for name, content in ((MODULES_FILE, modules), (ENCODER_FILE, options)):
            (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        write_settings(folder, _lengthened(self.settings, max_length))


def write_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write ``settings`` of a folder, with the requirement of Longform."""
    required = {**settings, "requirements": settings.get("requirements", {}) | REQUIREMENTS}
    (folder / SETTINGS_FILE).write_text(json.dumps(required, indent=2) + "\n", encoding="utf-8")


def loader_of(settings: Mapping[str, Any]) -> str:
    """The class of sentence-transformers that reads a folder of these ``settings``."""
    named = str(settings.get("model_type"))
    return LOADERS.get(named, "SentenceTransformer")


def _lengthened(options: dict[str, Any], max_length: int) -> dict[str, Any]:
    return options | {name: max_length for name in LENGTHS if options.get(name) is not None}


def kind_of(module: Mapping[str, Any]) -> str:
    """The class of a module of sentence-transformers, as modules.json names it; of any other with its package."""
    kind = str(module.get("type", ""))
    return kind.rsplit(".", 1)[-1] if kind.startswith(PACKAGES) else kind


def read_sentence_folder(folder: Path) -> SentenceFolder | None:
    """Read ``folder`` for a conversion, or None where it has no modules.json.

    Raises ConversionError on modules that are not known to work on any encoder's output, and on pickled weights;
    CheckpointError where the folder cannot be read.
    """
    modules = listed_modules(folder)
    if modules is None:
        return None
    kinds = [kind_of(module) for module in modules]
    if kinds[0] not in ENCODERS or any(kind not in KEPT for kind in kinds[1:]):
        raise ConversionError(
            f"the sentence-transformers folder {folder} has the modules {' -> '.join(kinds)}; supported are "
            f"{' or '.join(ENCODERS)}, then any of {', '.join(KEPT)}. Of a Router, save the modules of one route as a "
            "model of their own (SentenceTransformer(modules=[...]).save_pretrained), and convert that"
        )
    files: dict[str, bytes] = {}
    for module in modules[1:]:
        files |= _module_files(folder, module["path"])
    encoder = modules[0]["path"]
    options = encoder_options(folder, encoder) or {"do_lower_case": False}
    task = options.get("transformer_task", ENCODERS[kinds[0]])
    if task not in TASKS:
        raise ConversionError(
            f"the encoder of the sentence-transformers folder {folder} is for {task!r}; supported: {', '.join(TASKS)}"
        )
    return SentenceFolder(modules, encoder, options, settings_of(folder), files, TASKS[task])


def _module_files(folder: Path, path: str) -> dict[str, bytes]:
    files = sorted(file for file in (folder / path).rglob("*") if file.is_file()) if path else []
    for file in files:
        if file.suffix in PICKLES:
            raise ConversionError(
                f"{file} is a pickle, which Longform does not read; load the model with sentence-transformers and save "
                "it again, which writes safetensors"
            )
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def listed_modules(source: str | Path) -> list[dict[str, Any]] | None:
    """The modules that a folder or hub name lists, None where it lists none.

    Raises CheckpointError where the list cannot be read, or names a folder outside.
    """
    found = folder_file(source, MODULES_FILE)
    if found is None:
        return None
    with reading(found, way_out="save the model again"):
        listed = json.loads(found.read_text(encoding="utf-8"))
        if not listed or not all(isinstance(module, dict) and _is_named(module) for module in listed):
            raise ValueError("it does not list modules, each with a type and a path")
        if outside := [module["path"] for module in listed if not _is_inside(source, module["path"])]:
            raise ValueError(f"it names a module outside the folder: {outside[0]!r}")
    return listed


def _is_named(module: Mapping[str, Any]) -> bool:
    return isinstance(module.get("type"), str) and isinstance(module.get("path"), str)


def _is_inside(source: str | Path, path: str) -> bool:
    """Whether a module's folder stays in that of all, links followed; raises OSError, ValueError for no such name."""
    folder = Path(source).resolve()
    place = (folder / path).resolve()
    place.exists()  # raises for a name that is too long
    return place.is_relative_to(folder)


def pooling_modes(options: Mapping[str, Any]) -> list[Any]:
    """Modes of a Pooling by its config.json; older versions wrote each as ``pooling_mode_mean_tokens`` is true."""
    older = [key for key, on in options.items() if on and key.startswith("pooling_mode_")]
    asked = options.get("pooling_mode", [re.sub("^pooling_mode_|_tokens?$", "", key) for key in older] or "mean")
    return asked if isinstance(asked, list) and asked else [asked]


def settings_of(source: str | Path) -> dict[str, Any]:
    """The settings of a folder or hub name, {} where it has none."""
    found = folder_file(source, SETTINGS_FILE)
    return {} if found is None else read_json(found, way_out="save the model again")


def encoder_options(source: str | Path, path: str) -> dict[str, Any]:
    """How sentence-transformers loads the encoder, {} where the folder does not say."""
    found = (folder_file(source, (Path(path) / name).as_posix()) for name in ENCODER_FILES)
    there = next((file for file in found if file is not None), None)
    return {} if there is None else read_json(there, way_out="save the model again")


def folder_file(source: str | Path, name: str) -> Path | None:
    """Where a file of a folder or hub name is, None where there is none."""
    absent: dict[str, Any] = {
        f"_raise_exceptions_for_{what}": False for what in ("missing_entries", "connection_errors", "gated_repo")
    }
    try:
        found = cached_file(str(source), name, **absent)
    except (OSError, ValueError):  # a wrong name: loading the model says so
        return None
    return None if found is None else Path(found)


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
