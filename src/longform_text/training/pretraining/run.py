"""Pre-training of a language model from scratch, and its model card."""

import math
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from transformers import PreTrainedTokenizerBase

import longform
from longform.errors import ConfigurationError
from longform.files import content_key, read_json, write_json
from longform.models.configuration_linformer import LinformerConfig
from longform.models.task_heads import LinformerForMaskedLM
from longform.pretrained.checkpoint_files import model_key
from longform.pretrained.tokenizers import fit_tokenizer
from longform_text.data.subject import corpus_key
from longform_text.data.token_store import CorpusFiles, corpus_of
from longform_text.facts import environment
from longform_text.training.card import write_card
from longform_text.training.pretraining.data import CorpusReader, PretrainingData, Tokenizers
from longform_text.training.pretraining.model import AskedTokensLoss, config_for, described, new_model
from longform_text.training.pretraining.settings import CAUSAL, MASKED, PretrainingSettings
from longform_text.training.run import carry_out, finish, measured, training_arguments
from longform_text.training.run_folder import CACHE, OTHERWISE, RunFolder, place_of_run
from longform_text.training.students import Student, learning
from longform_text.training.trainer import IGNORED, Trainer, check_start

FACTS = "data.json"
QUARTERS = 4
DOES = {MASKED: "It fills in hidden tokens", CAUSAL: "It writes a text on from left to right (`generate`)"}


@dataclass(frozen=True)
class PretrainingResult:
    """Result: the model after its last step, and how well it says the tokens of the validation set.

    ``validation_loss``: nats a token that is asked for, ``perplexity`` its exponential; ``unigram_loss``: what
    predicting frequencies alone would lose on the same tokens. ``curve``: rows with step, tokens, loss, perplexity,
    and quarters (the loss in each quarter of a block).
    ``steps``: optimiser steps, ``tokens``: of text over all processes, ``seconds``: wall-clock time of this call.
    """

    model: LinformerForMaskedLM
    tokenizer: PreTrainedTokenizerBase
    validation_loss: float
    perplexity: float
    unigram_loss: float
    curve: list[dict[str, Any]]
    steps: int
    tokens: int
    seconds: float
    records: list[dict[str, Any]] = field(repr=False)
    folder: Path | None = None


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
    began = time.perf_counter()
    settings = replace(settings or PretrainingSettings(), **options)
    texts, held, named = _corpora(corpus, validation, text_field)
    arguments = training_arguments(settings, output)
    process = PartialState()
    with place_of_run(output, (tokenizer, *named)) as folder:
        arguments.output_dir = str(folder)
        place = folder / CACHE if cache is None else Path(cache)
        how: Any = {"limit": settings.max_documents, "process": process, "progress": progress}
        reader = CorpusReader(texts, tokenizer, place, **how)
        model, start = _model(config, reader.tokenizer, settings)
        length = _length(settings, model.config.max_position_embeddings)
        reader.tokenizer.model_max_length = model.config.max_position_embeddings
        opened = Student(model, reader.tokenizer)
        check_start(model, "the model to train")
        identity = {
            "kind": "pretraining",
            "settings": settings.identity(),
            "model": described(model.config),
            "data": content_key(reader.key, reader.tokenizer_key, None if held is None else corpus_key(held)),
            "start": start,
        }
        run = RunFolder(folder, identity, kept=output is not None, restart=restart)
        if run.complete:
            rows, facts = run.load(model), read_json(folder / FACTS, way_out=OTHERWISE)
        else:
            data = PretrainingData(
                reader.tokens(),
                reader.tokenizer,
                settings,
                length=length,
                validation=None if held is None else reader.tokens(held),
                processes=arguments.world_size,
            )
            facts = data.facts
            arguments.per_device_train_batch_size = data.share
            rows = _trained(opened, arguments, run, settings, data, shown=progress)
            told = {
                **facts,
                "environment": environment(arguments.device, torch.bfloat16 if arguments.bf16 else torch.float32),
            }

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

            finish(run, rows, "loss", save)
        if cache is None and process.is_main_process:
            _remove_tokens(folder / CACHE)
    curve = [{**row, "tokens": row["step"] * facts["tokens_per_step"]} for row in measured(rows, "perplexity")]
    return PretrainingResult(
        model,
        reader.tokenizer,
        curve[-1]["loss"],
        curve[-1]["perplexity"],
        facts["unigram_loss"],
        curve,
        steps=rows[-1]["step"],
        tokens=rows[-1]["step"] * facts["tokens_per_step"],
        seconds=time.perf_counter() - began,
        records=rows,
        folder=None if output is None else Path(output).expanduser(),
    )


def _length(settings: PretrainingSettings, most: int) -> int:
    """Tokens of a block. Raises ConfigurationError for more than the model takes."""
    length = settings.length or most
    if length > most:
        raise ConfigurationError(
            f"length={length} is more than the {most} tokens that the model takes (max_position_embeddings)"
        )
    return length


def _corpora(corpus: Any, validation: Any, text_field: str) -> tuple[Any, Any, list[CorpusFiles]]:
    """The corpus, the text to measure on, and which of them are files."""
    texts = corpus_of(corpus, text_field)
    held = None if validation is None else corpus_of(validation, text_field)
    return texts, held, [each for each in (texts, held) if isinstance(each, CorpusFiles)]


def _model(config: Any, tokenizer: Any, settings: PretrainingSettings) -> tuple[LinformerForMaskedLM, str | None]:
    """The model, and the key of the weights that it begins with, None for new ones."""
    causal = settings.objective == CAUSAL
    if not isinstance(config, LinformerForMaskedLM):
        return new_model(config_for(config, tokenizer, causal=causal), settings.seed), None
    if config.config.causal != causal:
        raise ConfigurationError(f'objective="{settings.objective}" is not that of a {type(config).__name__}')
    fit_tokenizer(tokenizer, config.config, name="the model to train on")
    return config, model_key(config)


def _trained(
    opened: Student,
    arguments: Any,
    run: RunFolder,
    settings: PretrainingSettings,
    data: PretrainingData,
    *,
    shown: bool,
) -> list[dict[str, Any]]:
    """The log history."""
    with learning(opened.model):
        loss = AskedTokensLoss(opened.model)

        def measure(model: torch.nn.Module) -> dict[str, Any]:
            return measured_loss(loss, model, data, arguments.device)

        trainer = Trainer(
            opened.model,
            arguments,
            train_dataset=data.blocks,
            eval_dataset=data.validation,
            data_collator=data.collator,
            tokens_per_forward=settings.tokens_per_forward,
            loss=loss,
            measure=measure,
        )
        try:
            carry_out(trainer, run, settings, doing="pre-training", shown=shown)
        finally:
            loss.remove()
    return trainer.state.log_history


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
