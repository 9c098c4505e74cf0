"""Sentence-transformers folders: the modules after the encoder are run by that package itself, on our hidden states.

A pooling that ``Encoder`` has is left to it, and a mean with weights of tokens is computed here: importing that package
takes longer than importing torch.

Axes: B texts in a batch, n tokens, D embedding size.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from longform import files
from longform.errors import CheckpointError, ConfigurationError, require
from longform.functional.pooling import sublinear_weights
from longform.pretrained.sentence_folder import (
    ENCODERS,
    SUBLINEAR_TF,
    encoder_options,
    folder_file,
    kind_of,
    listed_modules,
    loader_of,
    pooling_modes,
    settings_of,
)
from longform.pretrained.weights import reading

OURS = ("cls", "max", "mean")  # poolings that Encoder has under the same names
WORDS = "WordWeights"
WEIGHTED = {"Pooling", WORDS, "SublinearTF"}  # modules that are one WeightedMean
ROUTERS = {"Router", "Asym"}  # one way for queries and another for documents
OTHER_KINDS = {  # of sentence-transformers, with what a text gets from each
    "CrossEncoder": "scores of pairs of texts: .predict(pairs), or longform predict",
    "SparseEncoder": "a sparse vector: .encode(texts)",
    "MultiVectorEncoder": "a vector for each of its tokens: .encode_document(texts)",
}


class SentenceModules(NamedTuple):
    """Modules and settings of a sentence-transformers folder beside its encoder.

    ``modules``: those between the encoder and a ``Normalize`` at the end, for which ``normalise`` stands; none where
    they are a ``pooling`` that ``Encoder`` has. ``dimensions``: D that they give. ``prompts`` by name, ``prompt``: the
    default one's name. ``max_length``: tokens that are taken of a text. ``similarity``: how its vectors are compared,
    in sentence-transformers' words.
    """

    modules: Sequence[nn.Module] = ()
    pooling: str | None = None
    normalise: bool = False
    dimensions: int = 0
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
        name = self.prompt if name is None else name
        if name is not None and name not in self.prompts:
            there = ", ".join(self.prompts) or "none"
            raise ConfigurationError(f'"{source}" has no prompt "{name}"; its prompts: {there}. prompt takes any text')
        return "" if name is None else self.prompts[name]


PLAIN = SentenceModules()


def sentence_modules(source: str | Path) -> SentenceModules:
    """The modules of a folder or hub name, on the CPU; PLAIN for what is no sentence-transformers folder.

    Raises CheckpointError where it cannot be read, does not begin with a transformer, or does one thing with queries
    and another with documents; MissingDependencyError.
    """
    listed = listed_modules(source)
    if listed is None:
        return PLAIN
    settings, options = settings_of(source), encoder_options(source, listed[0]["path"])
    _check_kinds(source, loader_of(settings), [kind_of(module) for module in listed])
    ends_unit = kind_of(listed[-1]) == "Normalize"
    between = listed[1:-1] if ends_unit else listed[1:]
    with reading(source):
        prompts = {name: said or "" for name, said in settings.get("prompts", {}).items()}
        pooling, modules = _own_modules(source, between)
    if pooling is None and not modules:
        modules = _loaded(source, between)
    return SentenceModules(
        modules=modules,
        pooling=pooling,
        normalise=ends_unit,
        dimensions=_dimensions(modules),
        prompts={"query": "", "document": ""} | prompts,
        prompt=settings.get("default_prompt_name"),
        truncate_dim=settings.get("truncate_dim"),
        max_length=_most_tokens(options),
        lower_case=bool(options.get("do_lower_case")),
        similarity=settings.get("similarity_fn_name") or "cosine",
    )


def _check_kinds(source: str | Path, loader: str, kinds: Sequence[str]) -> None:
    """Raise CheckpointError for a folder that gives no vectors of texts, or that only its own package can run."""
    if loader in OTHER_KINDS:
        raise CheckpointError(
            f'"{source}" gives no vectors of texts: sentence_transformers.{loader}("{source}") gives '
            f"{OTHER_KINDS[loader]}"
        )
    theirs = f'its vectors come from sentence-transformers, SentenceTransformer("{source}")'
    if routed := ROUTERS.intersection(kinds):
        raise CheckpointError(
            f'"{source}" has a {routed.pop()}, one way for queries and another for documents: '
            f"{theirs}.encode_query(texts) and .encode_document(texts)"
        )
    if kinds[0] not in ENCODERS:
        raise CheckpointError(f'"{source}" begins with {kinds[0]}, not with a transformer: {theirs}.encode(texts)')


def _own_modules(source: str | Path, between: Sequence[Mapping[str, Any]]) -> tuple[str | None, list[nn.Module]]:
    """The pooling of ``Encoder`` that the modules are, or their WeightedMean; (None, []) where they are neither."""
    listed = {kind_of(module): module for module in between}
    if [*listed][-1:] != ["Pooling"] or len(listed) < len(between) or not listed.keys() <= WEIGHTED:
        return None, []
    options = _module_options(source, listed.pop("Pooling"))
    modes, width = pooling_modes(options), options.get("embedding_dimension", options.get("word_embedding_dimension"))
    if len(modes) > 1 or modes[0] not in OURS or not options.get("include_prompt", True):
        return None, []
    if not listed:
        return modes[0], []
    if modes != ["mean"] or width is None:
        return None, []
    weights = _word_weights(_module_options(source, listed[WORDS])) if WORDS in listed else None
    return None, [WeightedMean(weights, sublinear="SublinearTF" in listed, width=width)]


def _module_options(source: str | Path, module: Mapping[str, Any]) -> dict[str, Any]:
    found = folder_file(source, (Path(module["path"]) / "config.json").as_posix())
    return {} if found is None else files.read_json(found, way_out="save the model again")


def _word_weights(options: Mapping[str, Any]) -> Tensor:
    """Weights float32 (vocabulary,) by the options of a WordWeights: of the word, else of it in lower case."""
    weights, unknown = options["word_weights"], options.get("unknown_word_weight", 1)
    return torch.tensor([weights.get(word, weights.get(word.lower(), unknown)) for word in options["vocab"]]).float()


def _loaded(source: str | Path, listed: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The modules that a folder lists, from sentence-transformers or ours. Raises CheckpointError for any other."""
    package = require("sentence_transformers.util", extra="embed")
    modules: list[Any] = []
    for each in listed:
        kind = each["type"]
        if kind != SUBLINEAR_TF and not kind.startswith("sentence_transformers."):
            raise CheckpointError(f'"{source}" has the module {kind}, which is not of sentence-transformers')
        with reading(source):
            modules.append(package.import_from_string(kind).load(str(source), subfolder=each["path"]))
    return modules


def _dimensions(modules: Sequence[Any]) -> int:
    """D of what modules give, as the last that knows says; 0 where none does."""
    known = (each.get_embedding_dimension() for each in reversed(modules) if hasattr(each, "get_embedding_dimension"))
    return next((width for width in known if width is not None), 0)


def _most_tokens(options: Mapping[str, Any]) -> int | None:
    """Tokens that are taken of a text, None where the encoder's options do not say."""
    processor = options.get("processor_kwargs") or options.get("tokenizer_args") or {}
    return processor.get("model_max_length", options.get("max_seq_length"))


def encoder_folder(source: str | Path) -> str | Path:
    """Where the encoder of a folder or hub name is: in the folder of its first module, where it lists modules.

    Raises CheckpointError where the list of modules cannot be read, and for a folder inside a hub's.
    """
    listed = listed_modules(source)
    path = listed[0]["path"] if listed else ""
    if not path:
        return source
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


class WeightedMean(nn.Module):
    """The modules WordWeights, SublinearTF and Pooling as one: a mean of hidden states with weights of tokens.

    ``weights`` float32 (vocabulary,), None: all weigh the same; ``sublinear``: as in SublinearTF. ``width``: D.
    """

    def __init__(self, weights: Tensor | None, *, sublinear: bool, width: int) -> None:
        super().__init__()
        self.weights = None if weights is None else nn.Parameter(weights, requires_grad=False)
        self.sublinear, self.width = sublinear, width

    def get_embedding_dimension(self) -> int:
        """D."""
        return self.width

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """``token_embeddings`` (B, n, D), ``input_ids``, ``attention_mask`` (B, n) -> ``sentence_embedding`` (B, D)."""
        ids, mask = features["input_ids"], features["attention_mask"]
        weights = mask.float() if self.weights is None else self.weights[ids] * mask
        shares = weights * sublinear_weights(ids, mask.bool()) if self.sublinear else weights
        total = (features["token_embeddings"] * shares[..., None]).sum(dim=1)
        return {**features, "sentence_embedding": total / weights.sum(dim=1, keepdim=True).clamp(min=1e-9)}
