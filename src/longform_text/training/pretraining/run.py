"""Pre-training of a language model from scratch, and its model card."""

import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from transformers import PreTrainedTokenizerBase

import longform
from longform.digests import content_key
from longform.errors import ConfigurationError
from longform.files import read_json, write_json
from longform.models.configuration_linformer import LinformerConfig
from longform.models.task_heads import LinformerForMaskedLM
from longform.pretrained.checkpoint_files import model_key
from longform.pretrained.tokenizers import fit_tokenizer
from longform_text.data.subject import corpus_key
from longform_text.data.token_store import corpus_of, files_of
from longform_text.facts import environment
from longform_text.inference.loading import checked_limit
from longform_text.training.card import write_card
from longform_text.training.pretraining.data import CorpusReader, PretrainingData, Tokenizers
from longform_text.training.pretraining.model import AskedTokensLoss, config_for, described, new_model
from longform_text.training.pretraining.settings import CAUSAL, MASKED, PretrainingSettings
from longform_text.training.run import Run, TrainingResult, measured, run_in
from longform_text.training.run_folder import CACHE, OTHERWISE
from longform_text.training.students import Student, learning
from longform_text.training.trainer import IGNORED, Trainer

FACTS = "data.json"
QUARTERS = 4
DOES = {MASKED: "It fills in hidden tokens", CAUSAL: "It writes a text on from left to right (`generate`)"}


@dataclass(frozen=True)
class PretrainingResult(TrainingResult):
    """Result: the model after its last step, and how well it says the tokens of the validation set.

    ``validation_loss``: nats a token that is asked for, ``perplexity`` its exponential; ``unigram_loss``: what
    predicting frequencies alone would lose on the same tokens. ``curve``: rows with step, tokens, loss, perplexity,
    and quarters (the loss in each quarter of a block). ``tokens``: of text over all processes.
    """

    model: LinformerForMaskedLM
    tokenizer: PreTrainedTokenizerBase
    validation_loss: float
    perplexity: float
    unigram_loss: float
    curve: list[dict[str, Any]]
    tokens: int


def _remove_tokens(cache: Path) -> None:
    """Remove token files, also unfinished ones: the finished folder needs none, and they can be made again."""
    for tokens in cache.glob("*tokens-*"):
        shutil.rmtree(tokens)


def pretrain(
    corpus: Any,
    settings: PretrainingSettings | None = None,
    *,
    config: LinformerForMaskedLM | LinformerConfig | Mapping[str, Any] | None = None,
    tokenizer: Tokenizers = None,
    output: str | Path | None = None,
    validation: Any = None,
    text_field: str = "text",
    cache: str | Path | None = None,
    restart: bool = False,
    progress: bool = True,
    **options: Any,
) -> PretrainingResult:
    """Train a new language model on ``corpus``: a LinformerForMaskedLM, or a LinformerForCausalLM where
    ``settings.objective`` is "causal".

    ``corpus``: text, .jsonl and .parquet files, folders, "hf:NAME[:CONFIG]:SPLIT", or texts and Documents that can be
    iterated over again. ``config``: a LinformerConfig or its fields; vocabulary and special tokens become the
    tokenizer's. Or a loaded model, which is trained on, in place, with its ``tokenizer``.
    ``tokenizer``: a loaded one, a folder or hub name, or TokenizerSettings for one that is trained on the corpus (the
    default). ``validation``: text of its own to measure on; default: ``settings.validation_tokens`` of the corpus.
    ``cache``: folder for trained tokenizers and token files, which several runs may share; default: inside ``output``
    while the run lasts. ``output``: folder for checkpoints, records, the finished model, its card and report; called
    again with it, an interrupted run goes on from its newest whole checkpoint (``restart``: anew).
    ``options``: fields of the settings, or of transformers.TrainingArguments, by name.

    Initial weights and the order of blocks depend on the seed alone, not on the kind of attention; so do masks, without
    dropout.

    Raises ConfigurationError (settings, another run in the folder), DataError (an empty corpus, one smaller than a
    step or too small for the vocabulary), CheckpointError, MissingDependencyError.
    """
    settings = replace(settings or PretrainingSettings(), **options)
    texts = corpus_of(corpus, text_field)
    held = None if validation is None else corpus_of(validation, text_field)
    inputs = (tokenizer, *files_of(texts, held))
    with run_in(output, settings, inputs, restart=restart, progress=progress) as run:
        process = PartialState()
        place = run.place / CACHE if cache is None else Path(cache)
        how: Any = {"limit": settings.max_documents, "process": process, "progress": progress}
        reader = CorpusReader(texts, tokenizer, place, **how)
        model, start = _model(config, reader.tokenizer, settings)
        reader.tokenizer.model_max_length = most = model.config.max_position_embeddings
        length = checked_limit(most, settings.length, name="the model", what="length")
        opened = Student(model, reader.tokenizer)
        key = content_key(reader.key, reader.tokenizer_key, None if held is None else corpus_key(held))
        if run.begin("pretraining", model, model=described(model.config), data=key, start=start):
            rows, facts = run.folder.load(model), read_json(run.place / FACTS, way_out=OTHERWISE)
        else:
            data = PretrainingData(
                reader.tokens(),
                reader.tokenizer,
                settings,
                length=length,
                validation=None if held is None else reader.tokens(held),
                processes=run.arguments.world_size,
            )
            facts = data.facts
            run.arguments.per_device_train_batch_size = data.share
            rows = _trained(opened, run, data)
            dtype = torch.bfloat16 if run.arguments.bf16 else torch.float32
            told = {**facts, "environment": environment(run.arguments.device, dtype)}

            def save(folder: Path) -> None:
                opened.save(folder)
                write_json(folder / FACTS, told)
                losses = {"this model": measured(rows, "perplexity")[-1]["loss"]}
                losses["predicting frequencies alone"] = facts["unigram_loss"]
                about = (
                    f"A {settings.objective} language model of {model.num_parameters():,} parameters, trained from "
                    f"scratch with Longform {longform.__version__}: {rows[-1]['step']:,} steps of blocks of {length:,} "
                    f"tokens. {DOES[settings.objective]}; fine-tune it for another task. The loss is in nats "
                    f"a token, of {facts['validation_asked_tokens']:,} held-out tokens of {facts['corpus_tokens']:,}; "
                    "perplexities compare between models with the same tokenizer and held-out text only."
                )
                scores = {name: {"loss": loss, "perplexity": math.exp(loss)} for name, loss in losses.items()}
                write_card(folder, opened, "pre-trained", about, settings, scores)

            run.finish(rows, "loss", save)
        if cache is None and process.is_main_process:
            _remove_tokens(place)
    curve = [{**row, "tokens": row["step"] * facts["tokens_per_step"]} for row in measured(rows, "perplexity")]
    said = (curve[-1]["loss"], curve[-1]["perplexity"], facts["unigram_loss"])
    tokens = rows[-1]["step"] * facts["tokens_per_step"]
    return PretrainingResult(model, reader.tokenizer, *said, curve, tokens, **run.result(rows))


def _model(config: Any, tokenizer: Any, settings: PretrainingSettings) -> tuple[LinformerForMaskedLM, str | None]:
    """The model, and the key of the weights that it begins with, None for new ones."""
    causal = settings.objective == CAUSAL
    if not isinstance(config, LinformerForMaskedLM):
        return new_model(config_for(config, tokenizer, causal=causal), settings.seed), None
    if config.config.causal != causal:
        raise ConfigurationError(f'objective="{settings.objective}" is not that of a {type(config).__name__}')
    fit_tokenizer(tokenizer, config.config, name="the model to train on")
    return config, model_key(config)


def _trained(opened: Student, run: Run, data: PretrainingData) -> list[dict[str, Any]]:
    """The log history."""
    with learning(opened.model):
        loss = AskedTokensLoss(opened.model)
        trainer = Trainer(
            opened.model,
            run.arguments,
            train_dataset=data.blocks,
            eval_dataset=data.validation,
            data_collator=data.collator,
            tokens_per_forward=run.settings.tokens_per_forward,
            loss=loss,
            measure=lambda model: measured_loss(loss, model, data, run.arguments.device),
        )
        try:
            return run.train(trainer, doing="pre-training")
        finally:
            loss.remove()


def measured_loss(loss: AskedTokensLoss, model: torch.nn.Module, data: PretrainingData, device: Any) -> dict[str, Any]:
    """``loss``: nats a token of the validation set, ``quarters``: that of the tokens in each quarter of a block."""
    totals, counts = (torch.zeros(QUARTERS, dtype=torch.float64) for _ in range(2))
    for part in data.validation:
        losses = loss.each(model, {name: x.to(device) for name, x in part.items()})
        places = (part["labels"].flatten() != IGNORED).nonzero()[:, 0]
        quarter = places % data.length * QUARTERS // data.length
        totals.index_add_(0, quarter, losses.double().cpu())
        counts += quarter.bincount(minlength=QUARTERS)
    mean = float(totals.sum() / counts.sum())
    quarters = [round(value, 4) for value in (totals / counts.clamp(min=1)).tolist()]
    return {"loss": mean, "perplexity": math.exp(min(mean, 700.0)), "quarters": quarters}
