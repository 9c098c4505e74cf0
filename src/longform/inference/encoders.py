"""Text encoders with one interface: sentence-transformers folders, plain encoders and Longforms -> embeddings.

Axes: B texts in a batch, n tokens, D embedding size, N texts.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers.normalizers import Lowercase
from tokenizers.normalizers import Sequence as Normalizers
from torch import Tensor
from torch.nn.functional import normalize
from transformers import AutoModel
from transformers.utils import cached_file

from longform.choices import POOLINGS
from longform.data.batching import Batch
from longform.data.text import Document, Text, usable_texts
from longform.errors import CheckpointError, ConfigurationError
from longform.functional.pooling import pooled, pooled_width
from longform.inference.loading import load_limited, position_limit
from longform.inference.strategies import Outcome, TextModel
from longform.runs.files import reading

SAVED_POOLINGS = ("mean", "cls", "max")  # what a sentence-transformers folder may ask for
KINDS = (*POOLINGS, "max")
SETTINGS_OF = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")  # names of their files
_SUPPORTED_MODULES = ("Transformer", "Pooling", "Normalize")


@dataclass(frozen=True)
class TextEncoder(TextModel):
    """A model, its tokenizer, and how hidden states become one vector; ``normalise``: to length 1.

    ``prompt`` comes before each text (of a pair, before the first), as a sentence-transformers folder may ask.
    """

    pooling: str
    normalise: bool
    prompt: str = ""
    verb = "embed"

    def __post_init__(self) -> None:
        if self.pooling not in KINDS:
            raise ConfigurationError(f'pooling is "{self.pooling}"; it is one of {", ".join(KINDS)}')

    @property
    def features(self) -> int:
        """D, with "cls_mean" or "cls_lead" 2 D."""
        return pooled_width(self.pooling, self.model.config.hidden_size)

    def forward(self, batch: Batch) -> Tensor:
        """Pooled hidden states (B, D), with "cls_mean" or "cls_lead" (B, 2 D), not normalised."""
        inputs = batch.model_inputs(self.model.device)
        hidden = self.model(**inputs).last_hidden_state.float()  # a mean in bfloat16 would have three digits
        mask = inputs["attention_mask"].bool()
        if self.pooling in POOLINGS:
            return pooled(hidden, mask, kind=self.pooling)
        peaks = hidden.masked_fill(~mask[..., None], -torch.inf).amax(dim=1)
        return torch.where(mask.any(dim=1, keepdim=True), peaks, 0.0)

    def outcomes(self, texts: Text | Iterable[Text], **options: Any) -> Iterator[Outcome]:
        """Embeddings in order, streamed; ``options`` are those of ``run_texts``."""
        for outcome in super().outcomes(map(self._prompted, usable_texts(texts)) if self.prompt else texts, **options):
            if self.normalise:
                unit = normalize(torch.from_numpy(outcome.values), dim=0).numpy()
                outcome = outcome._replace(values=unit)
            yield outcome

    def _prompted(self, text: Text) -> Text:
        if isinstance(text, Document):
            return text._replace(text=self.prompt + text.text)
        return self.prompt + text if isinstance(text, str) else (self.prompt + text[0], text[1])

    def embed(self, texts: Text | Iterable[Text], *, progress: bool = False, **options: Any) -> np.ndarray:
        """Embeddings float32 (N, D) of ``texts``, (D,) of one string; ``options`` are those of ``run_texts``.

        Raises DataError for what is no text, such as a whole DataFrame.
        """
        return self.values(texts, progress=progress, **options)


def load_encoder(
    source: str | Path,
    *,
    pooling: str | None = None,
    normalise: bool | None = None,
    max_length: int | None = None,
    dtype: str = "float32",
    device: str = "auto",
    compile: bool = False,
) -> TextEncoder:
    """A TextEncoder of a folder or hub name.

    A sentence-transformers folder says ``pooling`` and ``normalise`` where they are None (another: "mean" and no), and
    has its default prompt, lower case and maximal length. ``max_length`` (tokens) may shorten the model's limit, not
    extend it. ``dtype``, ``device`` and ``compile`` as in ``load_pretrained``.

    Raises CheckpointError, ConfigurationError.
    """
    saved = _sentence_transformers_settings(source)
    options: Any = {"max_length": max_length, "dtype": dtype, "device": device, "compile": compile}
    model, tokenizer, limit = load_limited(AutoModel, source, **options)
    if max_length is None and saved.max_length is not None:
        limit = min(saved.max_length, position_limit(model.config))
    if saved.lower_case:
        _lower_case(tokenizer)
    normalise = saved.normalise if normalise is None else normalise
    return TextEncoder(model, tokenizer, limit, pooling or saved.pooling, normalise, saved.prompt)


def _lower_case(tokenizer: Any) -> None:
    if tokenizer.is_fast:
        rules = tokenizer.backend_tokenizer
        rules.normalizer = Normalizers([Lowercase(), *filter(None, [rules.normalizer])])
    else:
        tokenizer.do_lower_case = True


class _Saved(NamedTuple):
    """What a sentence-transformers folder asks for, and what other folders get; ``max_length`` in tokens."""

    pooling: str = "mean"
    normalise: bool = False
    prompt: str = ""
    lower_case: bool = False
    max_length: int | None = None


def _sentence_transformers_settings(source: str | Path) -> _Saved:
    modules = _read_json(source, "modules.json")
    if modules is None:
        return _Saved()
    kinds = [_module_kind(module, source) for module in modules] if isinstance(modules, list) else []
    unsupported = [kind for kind in kinds if kind not in _SUPPORTED_MODULES]
    if unsupported:
        raise CheckpointError(
            f'"{source}" is a sentence-transformers model of {", ".join(kinds)}; {", ".join(unsupported)} is not run '
            "here, only a Transformer, then Pooling, then Normalize. Its vectors come from sentence-transformers: "
            f'SentenceTransformer("{source}").encode(texts)'
        )
    if not kinds or kinds[0] != "Transformer" or modules[0]["path"]:
        raise CheckpointError(
            f'"{source}" is a sentence-transformers model of {", ".join(kinds)}, and its Transformer is not in the '
            "folder itself. Give pooling and the transformer's own folder instead; what longform convert makes of it "
            "has it there"
        )
    prompt = _default_prompt(source)
    pooling = "mean"
    if "Pooling" in kinds:
        settings = _read_json(source, f"{modules[kinds.index('Pooling')]['path']}/config.json") or {}
        pooling = _pooling_mode(settings, source)
        if prompt and not settings.get("include_prompt", True):
            raise CheckpointError(
                f'"{source}" pools without its prompt ("{prompt}"), which is not done here: its vectors come from '
                f'sentence-transformers, SentenceTransformer("{source}").encode(texts)'
            )
    encoder = next(filter(None, (_read_json(source, f"sentence_{kind}_config.json") for kind in SETTINGS_OF)), {})
    lower_case, max_length = bool(encoder.get("do_lower_case")), encoder.get("max_seq_length")
    return _Saved(pooling, "Normalize" in kinds, prompt, lower_case, max_length)


def _default_prompt(source: str | Path) -> str:
    settings = _read_json(source, "config_sentence_transformers.json") or {}
    name, prompts = settings.get("default_prompt_name"), settings.get("prompts") or {}
    if name is not None and name not in ("query", "document", *prompts):  # these two are there in any folder
        there = ", ".join(prompts) or "none"
        raise CheckpointError(f'"{source}" has no prompt "{name}", its default_prompt_name; its prompts: {there}')
    return prompts.get(name) or ""


def _module_kind(module: Any, source: str | Path) -> str:
    if not isinstance(module, dict) or not all(isinstance(module.get(name), str) for name in ("type", "path")):
        raise CheckpointError(f'"{source}": modules.json has a module without type or path: {module!r}')
    return module["type"].rsplit(".", 1)[-1]


def _pooling_mode(settings: Any, source: str | Path) -> str:
    if not isinstance(settings, dict):
        raise CheckpointError(f'"{source}": the settings of its Pooling are {type(settings).__name__}, not an object')
    legacy = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}
    on = [key for key, value in settings.items() if key.startswith("pooling_mode_") and value]
    mode: Any = settings.get("pooling_mode") or (legacy.get(on[0], on[0]) if len(on) == 1 else on)
    if mode not in SAVED_POOLINGS:
        raise CheckpointError(f'"{source}" pools by {mode}; supported are {", ".join(SAVED_POOLINGS)}')
    return str(mode)


def _read_json(source: str | Path, name: str) -> Any:
    options: dict[str, Any] = {
        "_raise_exceptions_for_missing_entries": False,
        "_raise_exceptions_for_connection_errors": False,
        "_raise_exceptions_for_gated_repo": False,
    }
    try:
        found = cached_file(str(source), name, **options)
    except (OSError, ValueError):  # a wrong name: loading the model says so
        return None
    if found is None:
        return None
    with reading(Path(found), way_out="save the model again"):
        return json.loads(Path(found).read_text(encoding="utf-8"))
