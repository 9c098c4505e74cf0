"""Conversion of a pretrained encoder to a Longform: its weights, a longer position table, other attention."""

import inspect
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers.modeling_utils import PreTrainedModel

from longform.choices import AUTO_MODELS, DEFAULT_PROJECTION, EXTENSIONS
from longform.conversion import defaults
from longform.conversion.adapter import adapter_folder, read_adapter
from longform.conversion.families.family import Family
from longform.conversion.families.registry import family_of
from longform.conversion.lengthening import lengthen, lengthened_tokenizer
from longform.conversion.pooling_modules import idf_pooled, with_sublinear_tf
from longform.conversion.report import OWN_FILE, ConversionReport, NewTensor, TensorRecord, conversion_folder
from longform.conversion.shipped import BUNDLED, HUB_NAME, adapted_encoder, named_folder
from longform.conversion.source import Source, open_source
from longform.conversion.tasks import MODELS, HeadPlan, check_task, plan_head
from longform.conversion.weights import Placement, fill_model, place_tensors, settle_tied_decoder
from longform.digests import digests
from longform.errors import ConfigurationError, ConversionError, LongformError
from longform.files import atomic_folder, locked
from longform.layers.names import named
from longform.layers.options import OPTIONS, RUN, AttentionOptions
from longform.models.configuration_linformer import LinformerConfig
from longform.models.loading import quiet_transformers
from longform.models.modeling_linformer import LinformerPreTrainedModel
from longform.models.resizing import check_extension
from longform.pretrained.sentence_folder import SentenceFolder, loader_of

Slots = int | list[int] | list[list[int]]
Auto = Literal["auto"]
SHORTEST, LONGEST = 3, 2**24  # tokens: two special ones and one of text; a position table of some gigabytes


@dataclass
class ConversionResult:
    """A Longform, the tokenizer set to its length (None where the source has none), and the account of the weights.

    ``sentence_folder``: the modules after the encoder, where the source was a sentence-transformers folder and the
    result is a model for the same task.
    """

    model: LinformerPreTrainedModel
    tokenizer: Any
    report: ConversionReport
    sentence_folder: SentenceFolder | None = None
    source_folder: Path | None = None

    def save_pretrained(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write model, tokenizer, model card and report; a sentence-transformers folder where the source was one.

        The folder appears whole or not at all. Raises ConfigurationError where it is not empty (``overwrite`` replaces
        an earlier conversion in which nothing was changed or added since), where it is or holds the source or is inside
        it, and where another process writes it; ConversionError where it cannot be written.
        """
        path = Path(folder).expanduser()
        try:
            chosen = conversion_folder(path, self.source_folder, overwrite=overwrite)
            with chosen as place, atomic_folder(place) as unfinished:
                self._write(unfinished)
        except (OSError, SafetensorError) as error:
            raise ConversionError(f"{path} could not be written ({error}); nothing there was changed") from error
        return path

    def _write(self, folder: Path) -> None:
        with quiet_transformers():
            self.model.save_pretrained(folder)
        if self.tokenizer is not None:
            self.tokenizer.save_pretrained(folder)
        if self.sentence_folder is not None:
            self.sentence_folder.write(folder, max_length=self.report.max_length)
        (folder / "README.md").write_text(self._card(), encoding="utf-8")
        (folder / OWN_FILE).write_text(self.report.to_json(digests(folder)), encoding="utf-8")

    def _card(self) -> str:
        auto = next(auto for auto, name in AUTO_MODELS.items() if type(self.model).__name__ == name)
        loader = None if self.sentence_folder is None else loader_of(self.sentence_folder.settings)
        return self.report.card(self.model.config.to_dict(), auto=auto, loader=loader)


@named()
def convert(
    source: str | Path | PreTrainedModel,
    *,
    max_length: int = defaults.MAX_LENGTH,
    projected_length: Slots | Auto | None = "auto",
    tokens_per_slot: int | None = AttentionOptions.tokens_per_slot,
    projection: str = DEFAULT_PROJECTION,
    projection_sharing: str = AttentionOptions.projection_sharing,
    projection_init: str = AttentionOptions.projection_init,
    freeze_projection: bool = AttentionOptions.freeze_projection,
    attention_window: int | Auto | None = "auto",
    selected_slots: int | Auto = "auto",
    memory_budget: float | Auto | None = "auto",
    sink_tokens: int = defaults.SINKS,
    short_convolution: int = defaults.TAPS,
    positions: str = defaults.POSITIONS,
    task: str | None = None,
    num_labels: int | None = None,
    id2label: dict[int, str] | None = None,
    classifier_pooling: str | None = None,
    tokenizer: Any = None,
    idf: Any = None,
    sublinear_tf: bool = False,
    adapter: str | Path | None = None,
) -> ConversionResult:
    """Convert a BERT, RoBERTa, XLM-RoBERTa, CamemBERT, DistilBERT, ELECTRA, MPNet, ModernBERT, EuroBERT, NomicBERT, GTE
    or Jina embeddings v3 into a Longform.

    Or a Longform into one of another length, with its tokenizer and the settings of sentence-transformers:
    ``max_length``, ``positions`` and ``projected_length`` count then ("auto": see ``resize_sequence_length``), and the
    rest stays as it is.

    ``source``: a folder, a hub name, a sentence-transformers folder, a name of ``longform.conversion.shipped``
    ("bundled"), or a loaded model (with its ``tokenizer``).
    ``max_length``: the most tokens, special ones included; positions past the source's are made by ``positions``,
    "tile" or "interpolate". ``projected_length`` (k slots; or ``tokens_per_slot``), ``projection``,
    ``projection_sharing``, ``projection_init``, ``freeze_projection``, ``attention_window`` (tokens on each side),
    ``selected_slots`` (seen token by token), ``memory_budget`` (tokens), ``sink_tokens`` (leading tokens seen exactly)
    and ``short_convolution`` are LinformerConfig's, and their defaults but these: no taps, a sink, and "auto", which is
    where the projection allows a window one of 64 (128 for MPNet), a budget of the source's own length and, in a model
    for no more tokens than that, up to 10 selected slots of 16 tokens or more; about 256 slots at most.
    ``task``: "encoder", "masked-lm", "sequence-classification", "token-classification", "question-answering", or
    None for what the source is. A head is carried over where the source has that task's (with as many labels, and not
    with another ``classifier_pooling`` than "cls"), else it is new.
    ``idf``: texts, strings in which tokens are counted: the result is a sentence-transformers
    folder whose mean weights each token by its inverse document frequency there.

    ``sublinear_tf``: the mean weights a token that a text has c times as sqrt(c) tokens: of a long text, what it says
    once is not drowned by what it says all the time. Texts without repetition keep their vectors.
    ``adapter``: the folder that ``longform align --lora-rank`` wrote, or a name of ``longform.conversion.shipped``: the
    encoder that it was trained on is converted as it was then, and the adapter becomes part of its weights.

    A text that the window reaches across, or without more tokens than there are slots of means or maxima, gives the
    source's own result. Weights keep the source's dtype.
    Raises ConversionError on a source that cannot be converted and ConfigurationError on options that do not go
    together.
    """
    given = dict(locals())
    if adapter is not None:
        return _adapted(source, adapter, given)
    _check_options(max_length, positions, task)
    named = named_folder(source) if isinstance(source, str) else None
    if named is not None:
        make_shipped(str(source), named)
    opened = open_source(named or source, tokenizer=tokenizer)
    if source in (BUNDLED, HUB_NAME):  # not where its package happens to be
        opened = replace(opened, name=HUB_NAME)
    attention = {name: given[name] for name in OPTIONS}
    chosen = {"task": task, "num_labels": num_labels, "id2label": id2label, "classifier_pooling": classifier_pooling}
    how: Any = {"max_length": max_length, "positions": positions}
    if opened.config.model_type == "linformer":
        made = _lengthened(opened, attention | chosen, **how)
    else:
        made = _converted(opened, chosen, attention=attention, **how)
    made = made if idf is None else _with_idf(made, idf)
    return _with_sublinear_tf(made) if sublinear_tf else made


def make_shipped(name: str, folder: Path) -> None:
    """Write the encoder of a name of ``longform.conversion.shipped`` into ``folder``, unless it is there."""
    if folder.is_dir():
        return
    with locked(folder.with_name(f".{name}.lock"), wait=True):
        if not folder.is_dir():
            convert(adapted_encoder(), adapter=name).save_pretrained(folder)


def _adapted(source: Any, adapter: str | Path, given: dict[str, Any]) -> ConversionResult:
    """``given``: all arguments of ``convert``."""
    read = read_adapter(adapter_folder(adapter))
    options = {name: value for name, value in given.items() if name not in ("source", "adapter")}
    return read.add_to(convert(source, **read.options_beside(options, defaults_of_convert())))


def defaults_of_convert() -> dict[str, Any]:
    """The defaults of ``convert``, by the names of its options."""
    return {name: each.default for name, each in inspect.signature(convert).parameters.items()}


def _converted(source: Source, chosen: dict[str, Any], **how: Any) -> ConversionResult:
    family, pooling = family_of(source.config), chosen["classifier_pooling"]
    head = plan_head(source, family, **chosen)
    bare = not any(key.startswith(family.base_name) for key in source.tensors)
    rules = family.rules(head.task, bare_source=bare, head=not head.new, pooled=pooling in (None, "cls"))
    placement = place_tensors(source.tensors, rules=rules, family=family, task=head.task)
    return _build(source, family, placement, head, **how)


def _with_idf(made: ConversionResult, texts: Any) -> ConversionResult:
    if made.report.task != "encoder":
        raise ConversionError(f'idf is for task="encoder", whose vectors are pooled; here task="{made.report.task}"')
    config = made.model.config
    folder = idf_pooled(
        made.sentence_folder, made.tokenizer, texts, width=config.hidden_size, vocabulary=config.vocab_size
    )
    made.report.notes.append("a text's vector is the mean of its tokens, weighted by inverse document frequency")
    return replace(made, sentence_folder=folder)


def _with_sublinear_tf(made: ConversionResult) -> ConversionResult:
    if made.report.task != "encoder":
        raise ConversionError(
            f'sublinear_tf is for task="encoder", whose vectors are pooled; here task="{made.report.task}"'
        )
    made.report.notes.append("in a text's vector a token that it has c times weighs sqrt(c) in all")
    return replace(made, sentence_folder=with_sublinear_tf(made.sentence_folder, width=made.model.config.hidden_size))


def _lengthened(source: Source, options: dict[str, Any], *, max_length: int, positions: str) -> ConversionResult:
    k = options.pop("projected_length")
    how: Any = {"max_length": max_length, "positions": positions, "unsaid": defaults_of_convert()}
    made = lengthen(source, projected_length=k, options=options, **how)
    known = source.config.max_position_embeddings
    head = HeadPlan(made.task, new=False, options={})
    return _result(source, made.model, "Longform", head, known, positions, made.records, made.new)


def _check_options(max_length: int, positions: str, task: str | None) -> None:
    if not isinstance(max_length, int) or isinstance(max_length, bool) or not SHORTEST <= max_length <= LONGEST:
        raise ConversionError(
            f"max_length={max_length!r} must be a whole number of tokens from {SHORTEST} to {LONGEST}"
        )
    if positions not in EXTENSIONS:
        raise ConversionError(f"positions={positions!r} is not known; choose one of {', '.join(map(repr, EXTENSIONS))}")
    check_task(task)


def _build(
    source: Source,
    family: Family,
    placement: Placement,
    head: HeadPlan,
    *,
    max_length: int,
    positions: str,
    attention: dict[str, Any],
) -> ConversionResult:
    options = family.options(source.config)
    _check_head_activation(family, head.task, options["hidden_act"])
    known, dtype = _known_length(source, options, placement)
    options |= head.options | _attention_options(attention, options, max_length=max_length, known=known)
    dropped = _without_attention_dropout(options)
    if head.task == "masked-lm":
        options["tie_word_embeddings"] = settle_tied_decoder(placement, tied=source.config.tie_word_embeddings)
    use_pooler = options["classifier_pooling"] != "cls" or "pooler.dense.weight" in placement.tensors
    options |= {"max_position_embeddings": max_length, "use_pooler": use_pooler}
    options["output_hidden_states"] = bool(source.config.output_hidden_states)  # modules that weight layers need them
    config = _checked_config(options)
    check_extension(config, positions)
    model = MODELS[head.task](config).to(dtype).eval()
    records, new = fill_model(model, placement, positions=positions, new_head=head.new, zeros=family.zero_biases)
    model.tie_weights()
    result = _result(source, model, family.name, head, known, positions, records, new)
    result.report.notes += dropped
    return result


def _known_length(source: Source, options: dict[str, Any], placement: Placement) -> tuple[int, torch.dtype]:
    """The tokens that the source takes, and the dtype of its weights. Raises ConversionError without its table."""
    rotary = options.get("rope_parameters") is not None
    table = placement.find(f"embeddings.{'word' if rotary else 'position'}_embeddings.weight")
    if table is None:
        raise ConversionError(
            f"the source has no table of {'words' if rotary else 'positions'}, so its checkpoint is incomplete"
        )
    return source.config.max_position_embeddings if rotary else table.shape[0] - options["position_offset"], table.dtype


def _result(
    source: Source,
    model: LinformerPreTrainedModel,
    family: str,
    head: HeadPlan,
    known: int,
    positions: str,
    records: list[TensorRecord],
    new: list[NewTensor],
) -> ConversionResult:
    """The model with its tokenizer and report; ``known``: tokens of the source."""
    config = model.config
    tokenizer = lengthened_tokenizer(source.tokenizer, config, name=source.name)
    folder = source.sentence_folder
    kept = folder if folder is not None and folder.task == head.task and not head.new else None
    report = ConversionReport(
        source=source.name,
        family=family,
        task=head.task,
        model_class=type(model).__name__,
        source_length=known,
        max_length=config.max_position_embeddings,
        positions=positions,
        parameters=sum(p.numel() for p in model.parameters()),
        dtype=str(model.dtype).removeprefix("torch."),
        options={name: getattr(config, name) for name in OPTIONS},
        tensors=records,
        new=new,
        notes=[*_notes(source, tokenizer, kept), *_rotary_note(config, known)],
    )
    return ConversionResult(model, tokenizer, report, kept, source.folder)


def _check_head_activation(family: Family, task: str, activation: str) -> None:
    if task == "masked-lm" and family.gelu_head and activation != "gelu":
        raise ConversionError(
            f"hidden_act={activation!r}: a {family.name}'s masked-language head uses gelu and its layers do not, while "
            "Longform's head uses what its layers do; convert with task='encoder'"
        )


def _checked_config(options: dict[str, Any]) -> LinformerConfig:
    try:
        return LinformerConfig(**options)
    except StrictDataclassError as error:
        if isinstance(error.__cause__, LongformError):
            raise error.__cause__ from None
        raise ConfigurationError(" ".join(str(error).split())) from error


def _attention_options(
    attention: dict[str, Any], architecture: dict[str, Any], *, max_length: int, known: int
) -> dict[str, Any]:
    options = dict(attention)
    if options["attention_window"] == "auto":
        least = architecture.get("relative_attention_max_distance", 0)
        options["attention_window"] = defaults.default_window(options["projection"], least=least)
    window = options["attention_window"]
    if options["selected_slots"] == "auto" and max_length > known:  # docs/guides/window-and-k.md says why
        options["selected_slots"] = 0
    if options["tokens_per_slot"] is not None and options["projected_length"] == "auto":
        options["projected_length"] = None
    if options["projected_length"] == "auto":
        options["projected_length"] = defaults.default_slots(
            max_length=max_length, window=window, selected=options["selected_slots"]
        )
    if options["selected_slots"] == "auto":
        k = options["projected_length"] or -(-max_length // (options["tokens_per_slot"] or RUN))
        slots = int(np.ravel(k).min())
        options["selected_slots"] = defaults.default_selected(max_length=max_length, slots=slots, window=window)
    if options["memory_budget"] == "auto":
        options["memory_budget"] = None if window is None else known
    return options


def _without_attention_dropout(options: dict[str, Any]) -> list[str]:
    """Take dropout on attention weights off a windowed model, whose fast training path has none; what is to be said."""
    rate = options["attention_probs_dropout_prob"]
    if options["attention_window"] is None or not rate:
        return []
    options["attention_probs_dropout_prob"] = 0.0
    return [f"attention_probs_dropout_prob is 0 instead of {rate}: the fast path of windowed training has none"]


def _rotary_note(config: LinformerConfig, known: int) -> list[str]:
    if config.rope_parameters is None:
        return []
    return [f"rotary positions: beyond the source's {known} tokens their angles go on, with rope_theta as it is"]


def _notes(source: Source, tokenizer: Any, kept: SentenceFolder | None) -> list[str]:
    notes = []
    if tokenizer is None:
        notes.append("the source has no tokenizer: save the one that belongs to it beside the model")
    if source.sentence_folder is not None and kept is None:
        notes.append("the modules and settings of sentence-transformers (pooling, ...) are not part of the result")
    return notes
