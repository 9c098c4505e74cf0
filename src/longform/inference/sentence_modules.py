"""Sentence-transformers folders: the modules after the encoder are run by that package itself, on our hidden states.

Axes: B texts in a batch, n tokens, D embedding size.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers.utils import cached_file

from longform.conversion.sentence_transformers_folder import (
    ENCODER_FILE,
    ENCODERS,
    SUBLINEAR_TF,
    kind_of,
    loader_of,
)
from longform.errors import CheckpointError, ConfigurationError, require
from longform.inference.weights import quiet_transformers, reading
from longform.runs import files

MODULES, SETTINGS = "modules.json", "config_sentence_transformers.json"
OTHER_KINDS = {  # of sentence-transformers, with what a text gets from each
    "CrossEncoder": "scores of pairs of texts: .predict(pairs), or longform predict",
    "SparseEncoder": "a sparse vector: .encode(texts)",
    "MultiVectorEncoder": "a vector for each of its tokens: .encode_document(texts)",
}


class SentenceModules(NamedTuple):
    """What a sentence-transformers folder has beside its encoder.

    ``modules``: those between the encoder and a ``Normalize`` at the end, for which ``normalise`` stands.
    ``dimensions``: D. ``encoder``: the encoder's own folder, where it is not the folder itself. ``prompts`` by name,
    ``prompt``: the default one's name. ``max_length``: tokens that are taken of a text.
    """

    modules: Sequence[nn.Module] = ()
    normalise: bool = False
    dimensions: int = 0
    encoder: Path | None = None
    prompts: Mapping[str, str] = {}
    prompt: str | None = None
    truncate_dim: int | None = None
    max_length: int | None = None
    lower_case: bool = False

    def to(self, device: torch.device) -> "SentenceModules":
        """Itself, its modules on a device and in eval mode."""
        for module in self.modules:
            module.to(device).eval()
        return self

    def vectors(
        self,
        hidden: Tensor,
        inputs: Mapping[str, Tensor],
        layers: Sequence[Tensor] | None,
        *,
        prompt_length: int | None,
    ) -> Tensor:
        """What the modules make of hidden states float32 (B, n, hidden): vectors (B, D)."""
        features: dict[str, Any] = {**inputs, "token_embeddings": hidden}
        if layers is not None:
            features["all_layer_embeddings"] = tuple(layer.float() for layer in layers)
        if prompt_length is not None:
            features["prompt_length"] = prompt_length
        for module in self.modules:
            features = module(features)
        return features["sentence_embedding"]

    def prompt_for(self, name: str | None, prompt: str | None, source: str | Path) -> str:
        """The ``prompt`` given, that of ``name``, or the default one. Raises ConfigurationError for another name."""
        if prompt is not None:
            if name is not None:
                raise ConfigurationError(f'give prompt ("{prompt}") or prompt_name ("{name}"), not both')
            return prompt
        if name is not None and name not in self.prompts:
            there = ", ".join(self.prompts) or "none"
            raise ConfigurationError(f'"{source}" has no prompt "{name}"; its prompts: {there}. prompt takes any text')
        return self.prompts.get(name or self.prompt or "") or ""


PLAIN = SentenceModules()


def sentence_modules(source: str | Path) -> SentenceModules:
    """The modules of a folder or hub name, on the CPU; PLAIN for what is no sentence-transformers folder.

    Raises CheckpointError where it cannot be read, or does not begin with a transformer; MissingDependencyError.
    """
    listed = _listed(source)
    if listed is None:
        return PLAIN
    kind = loader_of(settings_of(source))
    if kind in OTHER_KINDS:
        raise CheckpointError(
            f'"{source}" gives no vectors of texts: sentence_transformers.{kind}("{source}") gives {OTHER_KINDS[kind]}'
        )
    with quiet_transformers(), reading(f'"{source}"', source):
        loaded = load_sentence_transformer(source, device="cpu")
    first, *rest = loaded
    if not hasattr(first, "auto_model"):
        raise CheckpointError(
            f'"{source}" begins with {type(first).__name__}, not with a transformer: its vectors come from '
            f'sentence-transformers, SentenceTransformer("{source}").encode(texts)'
        )
    _check_routes(rest, source)
    _check_default(loaded, source)
    ends_unit = bool(rest) and type(rest[-1]).__name__ == "Normalize"
    return SentenceModules(
        modules=tuple(rest[:-1] if ends_unit else rest), normalise=ends_unit,
        dimensions=loaded.get_embedding_dimension(), encoder=_encoder(source, listed), prompts=dict(loaded.prompts),
        prompt=loaded.default_prompt_name, truncate_dim=loaded.truncate_dim, max_length=loaded.max_seq_length,
        lower_case=bool(getattr(first, "do_lower_case", False)),
    )  # fmt: skip


def load_sentence_transformer(source: str | Path, **options: Any) -> Any:
    """The SentenceTransformer of a folder or hub name; our own module is known to it, and no other foreign code is.

    Raises MissingDependencyError, and what sentence-transformers raises.
    """
    package = require("sentence_transformers", extra="embed")
    from longform.conversion.sublinear_tf import SublinearTF

    return package.SentenceTransformer._load_with_module_classes(str(source), {SUBLINEAR_TF: SublinearTF}, **options)


def _check_routes(modules: Sequence[Any], source: str | Path) -> None:
    """Raise CheckpointError for modules that do one thing with queries and another with documents."""
    routed = [type(module).__name__ for module in modules if "task" in getattr(module, "forward_kwargs", ())]
    if routed:
        raise CheckpointError(
            f'"{source}" has a {routed[0]}, one way for queries and another for documents: its vectors come from '
            f'sentence-transformers, SentenceTransformer("{source}").encode_query(texts) and .encode_document(texts)'
        )


def encoder_folder(source: str | Path) -> Path:
    """Where the encoder of a folder is: in a sentence-transformers folder its first module's, else the folder itself.

    Raises CheckpointError where the list of modules cannot be read.
    """
    listed = _listed(source)
    return (None if listed is None else _encoder(source, listed)) or Path(source)


def _check_default(loaded: Any, source: str | Path) -> None:
    name = loaded.default_prompt_name
    if name is not None and name not in loaded.prompts:
        there = ", ".join(loaded.prompts) or "none"
        raise CheckpointError(f'"{source}" has no prompt "{name}", its default_prompt_name; its prompts: {there}')


def _encoder(source: str | Path, listed: Sequence[Mapping[str, Any]]) -> Path | None:
    """The folder of the encoder, None for the folder itself. Raises CheckpointError for one inside a hub's."""
    path = listed[0]["path"]
    if not path:
        return None
    if not Path(source).is_dir():
        raise CheckpointError(f'"{source}" has its encoder in "{path}": download it, and name the folder')
    return Path(source) / path


def is_encoder_alone(source: str | Path) -> bool:
    """Whether sentence-transformers loads the model of a folder or hub name without a head, whatever its config says.

    Raises CheckpointError where the folder's modules cannot be read.
    """
    listed = _listed(source)
    if listed is None:
        return False
    found = _file(source, (Path(listed[0]["path"]) / ENCODER_FILE).as_posix())
    options = {} if found is None else files.read_json(found, way_out="save the model again")
    return options.get("transformer_task", ENCODERS.get(kind_of(listed[0]))) == "feature-extraction"


def settings_of(source: str | Path) -> dict[str, Any]:
    """The settings of a folder or hub name, {} where it has none."""
    found = _file(source, SETTINGS)
    return {} if found is None else files.read_json(found, way_out="save the model again")


def _listed(source: str | Path) -> list[dict[str, Any]] | None:
    """The modules that a folder names, None where it names none."""
    found = _file(source, MODULES)
    if found is None:
        return None
    with files.reading(found, way_out="save the model again"):
        listed = json.loads(found.read_text(encoding="utf-8"))
        if not listed or not all(
            isinstance(module["type"], str) and isinstance(module["path"], str) for module in listed
        ):
            raise ValueError("it does not list modules, each with a type and a path")
    return listed


def _file(source: str | Path, name: str) -> Path | None:
    """Where a file of a folder or hub name is, None where there is none."""
    absent: dict[str, Any] = {
        f"_raise_exceptions_for_{what}": False for what in ("missing_entries", "connection_errors", "gated_repo")
    }
    try:
        found = cached_file(str(source), name, **absent)
    except (OSError, ValueError):  # a wrong name: loading the model says so
        return None
    return None if found is None else Path(found)
