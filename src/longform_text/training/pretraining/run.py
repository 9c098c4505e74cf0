"""Pre-training of a language model from scratch, and its model card."""

import math
import shutil
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

import longform
from longform.errors import ConfigurationError
from longform.models.configuration_linformer import LinformerConfig
from longform.models.task_heads import LinformerForMaskedLM
from longform.pretrained.checkpoint_files import model_key
from longform.pretrained.model_card import Block, Heading, Table, facts_table
from longform.pretrained.tokenizers import fit_tokenizer
from longform_text.data.subject import corpus_key
from longform_text.data.token_store import Corpus, CorpusFiles, corpus_of
from longform_text.facts import environment
from longform_text.training.engine.job import Job
from longform_text.training.engine.run_folder import CACHE, RunFolder, place_of_run
from longform_text.training.engine.students import Student, learning
from longform_text.training.engine.trained_card import write_card
from longform_text.training.engine.trainer import carry_out, current_process
from longform_text.training.pretraining.batches import IGNORED, AskedBlocks
from longform_text.training.pretraining.data import CorpusReader, PretrainingData, Tokenizers
from longform_text.training.pretraining.model import AskedTokensLoss, config_for, described, new_model
from longform_text.training.pretraining.settings import CAUSAL, MASKED, PretrainingSettings

QUARTERS = 4
CARD = {  # what a model of an objective does, and which tokens it is asked for
    MASKED: (
        "It fills in hidden tokens",
        "15 %, hidden once and for all; 80 % of them behind the mask token, 10 % behind another one",
    ),
    CAUSAL: ("It writes a text on from left to right (`generate`)", "each, after those of its document before it"),
}


@dataclass(frozen=True)
class PretrainingResult:
    """Result: the model after its last step, and how well it says the tokens of the validation set.

    ``validation_loss``: nats a token that is asked for, ``perplexity`` its exponential; ``unigram_loss``: what
    predicting frequencies alone would lose on the same tokens. ``curve``: rows with step, tokens, loss, perplexity,
    quarters (the loss in each quarter of a block) and seconds.
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
    again with it, an interrupted run goes on from its newest checkpoint, to the same weights (``restart``: anew).
    ``options``: fields of the settings by name.

    Initial weights, order of blocks and masks depend on ``settings.seed`` alone, not on the kind of attention.

    Raises ConfigurationError (settings, another run in the folder), DataError (an empty corpus, one smaller than a
    step or too small for the vocabulary), CheckpointError, MissingDependencyError.
    """
    began = time.perf_counter()
    settings = replace(settings or PretrainingSettings(), **options)
    process = current_process(settings.device)
    texts = corpus_of(corpus, text_field)
    held = None if validation is None else corpus_of(validation, text_field)
    named = [each for each in (texts, held) if isinstance(each, CorpusFiles)]
    with place_of_run(output, (tokenizer, *named), process) as folder:
        reader = CorpusReader(
            texts,
            tokenizer,
            folder / CACHE if cache is None else Path(cache),
            limit=settings.max_documents,
            process=process,
            progress=progress,
        )
        job = PretrainingJob(reader, config, settings, held, process)
        run = carry_out(job, folder, kept=output is not None, restart=restart, shown=progress)
        if cache is None and process.is_main_process:
            _remove_tokens(folder / CACHE)
    first = run.records.last("run") or {}
    curve = _curve(run.records.of("validation"), first["tokens_per_step"])
    return PretrainingResult(
        job.model,
        reader.tokenizer,
        curve[-1]["loss"],
        curve[-1]["perplexity"],
        first["unigram_loss"],
        curve,
        tokens=run.end["tokens"],
        **run.outcome(began),
        folder=None if output is None else Path(output).expanduser(),
    )


def _curve(rows: Iterable[dict[str, Any]], tokens_per_step: int) -> list[dict[str, Any]]:
    """The measurements, each with the tokens that were trained on before."""
    return [{**row, "tokens": row["step"] * tokens_per_step} for row in rows]


class PretrainingJob(Job):
    """Model, data and loss of one run."""

    kind, event, metric, doing = "pretraining", "validation", "loss", "pre-training"

    def __init__(
        self,
        reader: CorpusReader,
        config: LinformerForMaskedLM | LinformerConfig | Mapping[str, Any] | None,
        settings: PretrainingSettings,
        held: Corpus | None,
        process: Any,
    ) -> None:
        super().__init__(settings, process)
        self.reader, self.held = reader, held
        self.start = None
        causal = settings.objective == CAUSAL
        if isinstance(config, LinformerForMaskedLM):
            if config.config.causal != causal:
                raise ConfigurationError(f'objective="{settings.objective}" is not that of a {type(config).__name__}')
            fit_tokenizer(reader.tokenizer, config.config, name="the model to train on")
            self.start, self.config, self.model = model_key(config), config.config, config
        else:
            self.config = config_for(config, reader.tokenizer, causal=causal)
            self.model = new_model(self.config, settings.seed)
        self.length = settings.length or self.config.max_position_embeddings
        if self.length > self.config.max_position_embeddings:
            raise ConfigurationError(
                f"length={self.length} is more than the {self.config.max_position_embeddings} tokens that the model "
                "takes (max_position_embeddings)"
            )
        reader.tokenizer.model_max_length = self.config.max_position_embeddings
        self.trained = self.model.to(self.device)
        self.opened = Student(self.model, reader.tokenizer)

    def subject(self) -> dict[str, Any]:
        """The model, the corpus, its tokenizer, and the text to measure on."""
        data = {"corpus": self.reader.key, "tokenizer": self.reader.tokenizer_key}
        if self.held is not None:
            data["validation"] = corpus_key(self.held)
        return {"model": described(self.config), "data": data, "start": self.start}

    def identity(self) -> dict[str, Any]:
        """See Job; the steps are the same in any number of processes that divides their blocks."""
        blocks, processes = self.settings.tokens_per_step // self.length, self.process.num_processes
        return super().identity() | {"processes": processes if blocks % processes else 1}

    def steps(self, start: int = 0) -> Iterator[list[AskedBlocks]]:
        """See Job."""
        return self.data.steps(start)

    def part_loss(self, model: torch.nn.Module, part: Any, share: float) -> torch.Tensor:
        """The part's share of its step's loss (scalar, nats)."""
        return share * self.loss(model, part, self.device)

    def groups(self, model: torch.nn.Module) -> list[dict[str, Any]]:
        """See Job; with RoBERTa's moments."""
        moments = {"betas": (0.9, 0.98), "eps": 1e-6}
        return [group | moments for group in super().groups(model)]

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """See Job; ``loss``: nats a token, ``quarters``: that of the tokens in each quarter of a block."""
        totals, counts = (torch.zeros(QUARTERS, dtype=torch.float64) for _ in range(2))
        for part in self.data.validation:
            with self.autocast():
                losses = self.loss.each(self.model, part, self.device)
            places = (part.labels.flatten() != IGNORED).nonzero()[:, 0]
            quarter = places % self.length * QUARTERS // self.length
            totals.index_add_(0, quarter, losses.double().cpu())
            counts += quarter.bincount(minlength=QUARTERS)
        loss = float(totals.sum() / counts.sum())
        quarters = [round(value, 4) for value in (totals / counts.clamp(min=1)).tolist()]
        return {"loss": loss, "perplexity": math.exp(min(loss, 700.0)), "quarters": quarters}

    @contextmanager
    def prepared(self) -> Generator[None]:
        """See Job; the corpus is tokenised once before."""
        self.data = PretrainingData(
            self.reader.tokens(),
            self.reader.tokenizer,
            self.settings,
            length=self.length,
            validation=None if self.held is None else self.reader.tokens(self.held),
            rank=self.process.process_index,
            processes=self.process.num_processes,
        )
        with learning(self.model, recompute=self.settings.gradient_checkpointing):
            self.loss = AskedTokensLoss(self.model)
            try:
                yield
            finally:
                self.loss.remove()

    def facts(self) -> dict[str, Any]:
        """Sizes of the data, what counting alone would lose, and the machine."""
        return {**self.data.facts(), "environment": environment(self.device, self.dtype)}

    def budgets(self) -> Sequence[float]:
        """Steps for the tokens that were chosen, or for one pass where nothing was."""
        if self.settings.max_tokens is not None:
            return [self.settings.max_tokens / self.data.step_tokens]
        return [self.data.steps_of_one_pass()] if self.is_unbounded else []

    def means(self) -> dict[str, float]:
        """The tokens trained on so far."""
        return {"tokens": self.data.tokens}

    def end(self, run: RunFolder, steps: int) -> dict[str, Any]:
        """Tokens that were read."""
        return {"tokens": steps * self.data.step_tokens}

    def save(self, run: RunFolder, folder: Path) -> None:
        """The model and its card."""
        super().save(run, folder)
        first, last, end = (run.records.last(event) or {} for event in ("run", "validation", "end"))
        ours = f"this model, after {last['step']:,} steps ({end['tokens']:,} tokens)"
        losses = {ours: last["loss"], "predicting frequencies alone": first["unigram_loss"]}
        data = ("corpus_documents", "corpus_tokens", "validation_tokens", "length")
        trained = {name: end[name] for name in ("step", "tokens", "seconds")}
        recipe = {"parameters": self.model.num_parameters(), **trained, **vars(self.settings)}
        does, asked = CARD[self.settings.objective]
        blocks: list[Block] = [
            f"A {self.settings.objective} language model trained from scratch with Longform {longform.__version__}. "
            f"{does}; for another task it has to be fine-tuned.",
            Heading("Data"),
            facts_table({name.replace("_", " "): first[name] for name in data}),
            Heading("Training"),
            facts_table({name.replace("_", " "): value for name, value in recipe.items() if value is not None}),
            Heading("Evaluation"),
            f"The model was asked for {first['validation_asked_tokens']:,} tokens of held-out text ({asked}), with "
            f"blocks of {first['length']:,} tokens.",
            Table(
                ["", "loss (nats a token)", "perplexity"],
                [[name, f"{loss:.4f}", f"{math.exp(loss):.2f}"] for name, loss in losses.items()],
            ),
            "Perplexities compare between models with the same tokenizer and the same held-out text only. "
            "records.jsonl has every measurement, learning_curve.png shows them.",
        ]
        write_card(folder, self.opened, "pre-trained", blocks)
