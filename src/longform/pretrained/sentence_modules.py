"""Sentence-transformers folders: the modules after the encoder are run by that package itself, on our hidden states.

A pooling that ``Encoder`` has is left to it, and a mean with weights of tokens is computed here: importing that package
takes longer than importing torch.

Axes: B texts in a batch, n tokens, D embedding size.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from longform.errors import CheckpointError, ConfigurationError, require
from longform.models.loading import quiet_transformers
from longform.pretrained.sentence_folder import (
    ENCODERS,
    SUBLINEAR_TF,
    encoder_options,
    folder_file,
    kind_of,
    listed_modules,
    loader_of,
    settings_of,
)
from longform.pretrained.weighted_mean import WeightedMean
from longform.pretrained.weights import reading
from longform.runs import files

OURS = ("cls", "max", "mean")  # poolings that Encoder has under the same names
WORDS = "WordWeights"
WEIGHTED = {"Pooling", WORDS, "SublinearTF"}  # modules that are one WeightedMean
OTHER_KINDS = {  # of sentence-transformers, with what a text gets from each
    "CrossEncoder": "scores of pairs of texts: .predict(pairs), or longform predict",
    "SparseEncoder": "a sparse vector: .encode(texts)",
    "MultiVectorEncoder": "a vector for each of its tokens: .encode_document(texts)",
}


class SentenceModules(NamedTuple):
    """Modules and settings of a sentence-transformers folder beside its encoder.

    ``modules``: those between the encoder and a ``Normalize`` at the end, for which ``normalise`` stands; none where
    they are a ``pooling`` that ``Encoder`` has. ``dimensions``: D that they give. ``encoder``: the encoder's own
    folder, where it is not the folder itself. ``prompts`` by name, ``prompt``: the default one's name. ``max_length``:
    tokens that are taken of a text. ``similarity``: how its vectors are compared, in sentence-transformers' words.
    """

    modules: Sequence[nn.Module] = ()
    pooling: str | None = None
    normalise: bool = False
    dimensions: int = 0
    encoder: Path | None = None
    prompts: Mapping[str, str] = {}
    prompt: str | None = None
    truncate_dim: int | None = None
    max_length: int | None = None
    lower_case: bool = False
    similarity: str = "cosine"

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
        """Vectors (B, D) that the modules make of hidden states float32 (B, n, hidden)."""
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
    listed = listed_modules(source)
    if listed is None:
        return PLAIN
    kind = loader_of(settings_of(source))
    if kind in OTHER_KINDS:
        raise CheckpointError(
            f'"{source}" gives no vectors of texts: sentence_transformers.{kind}("{source}") gives {OTHER_KINDS[kind]}'
        )
    first, *rest = listed
    if kind_of(first) not in ENCODERS:
        raise CheckpointError(
            f'"{source}" begins with {kind_of(first)}, not with a transformer: its vectors come from '
            f'sentence-transformers, SentenceTransformer("{source}").encode(texts)'
        )
    settings, options = settings_of(source), encoder_options(source, first["path"])
    with reading(f'"{source}"', source):
        given = dict(settings.get("prompts", {}))
    prompts = {"query": "", "document": ""} | {name: said or "" for name, said in given.items()}
    default = settings.get("default_prompt_name")
    _check_default(default, prompts, source)
    ends_unit = bool(rest) and kind_of(rest[-1]) == "Normalize"
    between = rest[:-1] if ends_unit else rest
    with reading(f'"{source}"', source):
        pooling, modules = _own_modules(source, between)
    if pooling is None and not modules:
        modules = _loaded(source, between)
    return SentenceModules(
        modules=modules,
        pooling=pooling,
        normalise=ends_unit,
        dimensions=_dimensions(modules),
        encoder=_encoder(source, listed),
        prompts=prompts,
        prompt=default,
        truncate_dim=settings.get("truncate_dim"),
        max_length=_most_tokens(options),
        lower_case=bool(options.get("do_lower_case")),
        similarity=settings.get("similarity_fn_name") or "cosine",
    )


def _own_modules(source: str | Path, between: Sequence[Mapping[str, Any]]) -> tuple[str | None, list[nn.Module]]:
    """The pooling of ``Encoder`` that the modules are, or their WeightedMean; (None, []) where they are neither."""
    listed = {kind_of(module): module for module in between}
    if [*listed][-1:] != ["Pooling"] or len(listed) < len(between) or not listed.keys() <= WEIGHTED:
        return None, []
    options = _module_options(source, listed.pop("Pooling"))
    mode, width = _own_mode(options), options.get("embedding_dimension") or options.get("word_embedding_dimension")
    if not listed:
        return mode, []
    if mode != "mean" or width is None:
        return None, []
    weights = _word_weights(_module_options(source, listed[WORDS])) if WORDS in listed else None
    return None, [WeightedMean(weights, sublinear="SublinearTF" in listed, width=width)]


def _own_mode(options: Mapping[str, Any]) -> str | None:
    """The mode of a Pooling with these options, where it is one that ``Encoder`` has."""
    asked = options.get("pooling_mode", _older_modes(options) or "mean")
    modes = [asked] if isinstance(asked, str) else asked
    return modes[0] if len(modes) == 1 and modes[0] in OURS and options.get("include_prompt", True) else None


def _module_options(source: str | Path, module: Mapping[str, Any]) -> dict[str, Any]:
    found = folder_file(source, (Path(module["path"]) / "config.json").as_posix())
    return {} if found is None else files.read_json(found, way_out="save the model again")


def _word_weights(options: Mapping[str, Any]) -> Tensor:
    """Weights float32 (vocabulary,) by the options of a WordWeights: of the word, else of it in lower case."""
    weights, unknown = options["word_weights"], options.get("unknown_word_weight", 1)
    return torch.tensor([weights.get(word, weights.get(word.lower(), unknown)) for word in options["vocab"]]).float()


def _older_modes(options: Mapping[str, Any]) -> list[str]:
    """Modes as older versions of sentence-transformers wrote them: ``pooling_mode_mean_tokens`` is true."""
    older = [key for key, on in options.items() if on and key.startswith("pooling_mode_")]
    return [re.sub("^pooling_mode_|_tokens?$", "", key) for key in older]


def _loaded(source: str | Path, listed: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The modules that a folder lists, from sentence-transformers or ours. Raises CheckpointError for any other."""
    package = require("sentence_transformers.util", extra="embed")
    modules: list[Any] = []
    for each in listed:
        kind = each["type"]
        if kind != SUBLINEAR_TF and not kind.startswith("sentence_transformers."):
            raise CheckpointError(f'"{source}" has the module {kind}, which is not of sentence-transformers')
        with quiet_transformers(), reading(f'"{source}"', source):
            modules.append(package.import_from_string(kind).load(str(source), subfolder=each["path"]))
    _check_routes(modules, source)
    return modules


def _dimensions(modules: Sequence[Any]) -> int:
    """D of what modules give, as the last that knows says; 0 where none does."""
    known = (each.get_embedding_dimension() for each in reversed(modules) if hasattr(each, "get_embedding_dimension"))
    return next((width for width in known if width is not None), 0)


def _most_tokens(options: Mapping[str, Any]) -> int | None:
    """Tokens that are taken of a text, None where the encoder's options do not say."""
    processor = options.get("processor_kwargs") or options.get("tokenizer_args") or {}
    return processor.get("model_max_length", options.get("max_seq_length"))


def load_sentence_transformer(source: str | Path, **options: Any) -> Any:
    """The SentenceTransformer of a folder or hub name; our own module is known to it, and no other foreign code is.

    Raises MissingDependencyError, and what sentence-transformers raises.
    """
    package = require("sentence_transformers", extra="embed")
    return package.SentenceTransformer(str(source), **options)


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
    listed = listed_modules(source)
    return (None if listed is None else _encoder(source, listed)) or Path(source)


def _check_default(name: str | None, prompts: Mapping[str, str], source: str | Path) -> None:
    if name is not None and name not in prompts:
        there = ", ".join(prompts) or "none"
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
    listed = listed_modules(source)
    if listed is None:
        return False
    options = encoder_options(source, listed[0]["path"])
    return options.get("transformer_task", ENCODERS.get(kind_of(listed[0]))) == "feature-extraction"
