"""Masked-language-model pre-training from scratch."""

import contextlib
import math
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, set_seed

from longform.data.token_store import Corpus
from longform.errors import ConfigurationError, require
from longform.models.configuration_linformer import LinformerConfig
from longform.models.task_heads import LinformerForMaskedLM
from longform.runs.facts import environment
from longform.training.pretraining_data import PretrainingData
from longform.training.pretraining_model import HiddenTokensLoss, config_for, described, new_model
from longform.training.pretraining_report import write_report
from longform.training.pretraining_settings import PretrainingSettings
from longform.training.pretraining_sources import CorpusReader, Sources, Tokenizers, as_corpus
from longform.training.records import RecordingCallback
from longform.training.run_folder import RunFolder, current_process, temporary_folder
from longform.training.settings import compute_dtype
from longform.training.students import Student, checkpoint_activations
from longform.training.trainer import (
    NumberedStepsTrainer,
    load_weights,
    steps_in_minutes,
    training_arguments,
    without_bars,
)

CACHE = "cache"  # inside the output folder, where no other place is given


@dataclass(frozen=True)
class PretrainingResult:
    """What came of it: the model after its last step, and how well it fills in the fixed masked validation set.

    ``validation_loss``: nats a hidden token, ``perplexity`` its exponential; ``unigram_loss``: what predicting
    frequencies alone would lose on the same tokens. ``curve``: rows with step, tokens, loss, perplexity and seconds.
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


def pretrain(
    corpus: Sources,
    settings: PretrainingSettings | None = None,
    *,
    config: LinformerConfig | Mapping[str, Any] | None = None,
    tokenizer: Tokenizers = None,
    output: str | Path | None = None,
    validation: Sources | None = None,
    text_field: str = "text",
    cache: str | Path | None = None,
    resume: bool = True,
    progress: bool = True,
) -> PretrainingResult:
    """Train a new masked-language model on ``corpus``.

    ``corpus``: text, .jsonl and .parquet files, folders, "hf:NAME[:CONFIG]:SPLIT", or texts and Documents that can be
    iterated over again. ``config``: a LinformerConfig or its fields; vocabulary and special tokens become the
    tokenizer's.
    ``tokenizer``: a loaded one, a folder or hub name, or TokenizerSettings for one that is trained on the corpus (the
    default). ``validation``: text of its own to measure on; default: ``settings.validation_tokens`` of the corpus.
    ``cache``: folder for trained tokenizers and token files, which several runs may share; default: inside ``output``
    while the run lasts. ``output``: folder for checkpoints, records, the finished model, its card and report; called
    again with it, an interrupted run goes on from its newest checkpoint, to the same weights (``resume=False``: anew).

    Initial weights, order of blocks and masks depend on ``settings.seed`` alone, not on the kind of attention.

    Raises ConfigurationError (settings, another run in the folder), DataError (an empty corpus, one smaller than a
    step or too small for the vocabulary), CheckpointError, MissingDependencyError.
    """
    began = time.perf_counter()
    settings = settings or PretrainingSettings()
    require("matplotlib", extra="train")  # now rather than when the learning curve is drawn
    process = current_process()
    with temporary_folder() if output is None else contextlib.nullcontext(Path(output)) as folder:
        reader = CorpusReader(
            as_corpus(corpus, text_field), tokenizer, folder / CACHE if cache is None else Path(cache),
            limit=settings.max_documents, process=process, progress=progress,
        )  # fmt: skip
        held = None if validation is None else as_corpus(validation, text_field)
        job = PretrainingJob(reader, config, settings, held, process)
        run = RunFolder(folder, job.identity(), kept=output is not None, main=process.is_main_process)
        run.open(resume=resume, wait=process.wait_for_everyone)
        if run.complete:
            load_weights(job.model, folder)
        else:
            job.read()
            _train(job, run, progress=progress and process.is_main_process)
            with without_bars():
                run.finish(lambda place: _save(job, run, place), wait=process.wait_for_everyone)
                if cache is None and process.is_main_process:
                    _forget_tokens(folder / CACHE)
    return _result(job, run, began, output)


def _forget_tokens(cache: Path) -> None:
    """The finished folder needs no token files; they can be made again."""
    for folder in cache.glob("tokens-*"):
        shutil.rmtree(folder)


class PretrainingJob:
    """Model, data and loss of one run."""

    def __init__(
        self, reader: CorpusReader, config: LinformerConfig | Mapping[str, Any] | None, settings: PretrainingSettings,
        held: Corpus | None, process: Any,
    ) -> None:  # fmt: skip
        self.reader, self.settings, self.held, self.process = reader, settings, held, process
        self.device, self.dtype = process.device, compute_dtype(settings.dtype, process.device)
        self.config = config_for(config, reader.tokenizer)
        self.length = settings.length or self.config.max_position_embeddings
        if self.length > self.config.max_position_embeddings:
            raise ConfigurationError(
                f"length={self.length} is more than the {self.config.max_position_embeddings} tokens that the model "
                "takes (max_position_embeddings)"
            )
        reader.tokenizer.model_max_length = self.config.max_position_embeddings
        self.model = new_model(self.config, settings.seed)
        self.opened = Student(self.model, reader.tokenizer)

    def identity(self) -> dict[str, Any]:
        """What must be the same for an interrupted run to go on."""
        data = {"corpus": self.reader.key, "tokenizer": self.reader.tokenizer_key}
        if self.held is not None:
            data["validation"] = self.reader.key_of(self.held)
        return {
            "kind": "pretraining", "settings": vars(self.settings), "model": described(self.config), "data": data,
            "processes": self.process.num_processes,
        }  # fmt: skip

    def read(self) -> None:
        """Open the corpus, tokenised once before, or as it comes."""
        held = None if self.held is None else self.reader.tokens(self.held)
        self.data = PretrainingData(
            self.reader.corpus if self.settings.stream else self.reader.tokens(), self.reader.tokenizer,
            self.settings, length=self.length, validation=held, rank=self.process.process_index,
            processes=self.process.num_processes,
        )  # fmt: skip

    @contextlib.contextmanager
    def learning(self) -> Any:
        """The model on its device, its head seeing hidden tokens alone."""
        self.model.to(self.device)
        self.loss = HiddenTokensLoss(self.model)
        if self.settings.gradient_checkpointing:
            checkpoint_activations(self.model, on=True)
        try:
            yield
        finally:
            self.loss.remove()
            if self.settings.gradient_checkpointing:
                checkpoint_activations(self.model, on=False)
            self.model.eval()

    def part_loss(self, model: torch.nn.Module, part: Any, share: float) -> torch.Tensor:
        """The part's share of its step's loss (scalar, nats)."""
        return share * self.loss(model, part, self.device)

    @torch.no_grad()
    def measure(self) -> dict[str, float]:
        """Loss in nats and perplexity on the validation set."""
        self.model.eval()
        total = 0.0
        for part in self.data.validation:
            with torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32):
                total += float(self.loss(self.model, part, self.device)) * part.weight
        loss = total / sum(part.weight for part in self.data.validation)
        return {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}


def _train(job: PretrainingJob, run: RunFolder, *, progress: bool) -> None:
    """From where the run stands to its last step."""
    settings, records = job.settings, run.records
    with job.learning():
        if run.steps is None:
            began = time.perf_counter()
            first = job.measure()
            seconds = time.perf_counter() - began
            records.begin()  # of a run that was killed between these lines
            records.add("run", 0, **job.data.facts(), environment=environment(job.device, job.dtype))
            records.add("validation", 0, **first, tokens=0, seconds=0.0)
            run.fix_steps(_steps(job, seconds, shown=progress), job.process)
        steps = run.steps
        assert steps is not None
        clock = _Clock(max((row.get("seconds", 0.0) for row in records.rows), default=0.0))

        def measured() -> dict[str, float]:
            found, step = job.measure(), trainer.state.global_step
            records.add("validation", step, **found, tokens=step * job.data.step_tokens, seconds=clock.seconds())
            return found

        def reached() -> dict[str, float]:
            return {"tokens": job.data.tokens, "seconds": round(clock.seconds(), 2)}

        trainer = NumberedStepsTrainer(
            job.model, _arguments(run, settings, steps), source=job.data, part_loss=job.part_loss, measure=measured,
            dtype=job.dtype,
            callbacks=[RecordingCallback(records, "pre-training", reached, shown=progress)],
        )  # fmt: skip
        set_seed(settings.seed)  # of dropout; a checkpoint brings its own
        trainer.run(run.checkpoint)
        if (records.last("validation") or {}).get("step") != steps:
            trainer.state.global_step = steps
            measured()
        records.add("end", steps, tokens=steps * job.data.step_tokens, seconds=clock.seconds())


class _Clock:
    """Wall-clock seconds of the run, over its interruptions."""

    def __init__(self, before: float) -> None:
        self.began = time.perf_counter() - before

    def seconds(self) -> float:
        return round(time.perf_counter() - self.began, 2)


def _arguments(run: RunFolder, settings: PretrainingSettings, steps: int) -> Any:
    polynomial = {"power": settings.power, "lr_end": 0.0} if settings.schedule == "polynomial" else None
    return training_arguments(
        run.folder, settings, learning_rate=settings.learning_rate, steps=steps,
        evaluate_every=math.ceil(steps / (settings.evaluations + 1)) if settings.evaluations else None,
        save_every=(settings.save_every_steps or math.ceil(steps / 10)) if run.kept else None,
        adam_beta1=settings.beta1, adam_beta2=settings.beta2, adam_epsilon=settings.epsilon,
        **({} if polynomial is None else {"lr_scheduler_kwargs": polynomial}),
    )  # fmt: skip


def _steps(job: PretrainingJob, seconds_to_measure: float, *, shown: bool) -> int:
    """Optimiser steps of the smallest budget."""
    settings, data = job.settings, job.data
    budgets = []
    if settings.max_steps is not None:
        budgets.append(settings.max_steps)
    if settings.max_tokens is not None:
        budgets.append(math.ceil(settings.max_tokens / data.step_tokens))
    if settings.max_minutes is not None:
        overhead = seconds_to_measure * (settings.evaluations + 2)
        budgets.append(
            steps_in_minutes(
                job.model, data, job.part_loss, minutes=settings.max_minutes, overhead=overhead, dtype=job.dtype,
                device=job.device, shown=shown,
            )
        )  # fmt: skip
    return min(budgets) if budgets else data.steps_of_one_pass()


def _save(job: PretrainingJob, run: RunFolder, folder: Path) -> None:
    """Everything that the finished folder holds."""
    job.opened.save(folder)
    write_report(folder, run.records.rows, run.identity, parameters=job.model.num_parameters())


def _result(job: PretrainingJob, run: RunFolder, began: float, output: str | Path | None) -> PretrainingResult:
    curve, end = run.records.of("validation"), run.records.last("end") or {}
    first = run.records.last("run") or {}
    return PretrainingResult(
        job.model, job.reader.tokenizer, curve[-1]["loss"], curve[-1]["perplexity"], first["unigram_loss"], curve,
        steps=end["step"], tokens=end["tokens"], seconds=time.perf_counter() - began, records=run.records.rows,
        folder=None if output is None else Path(output),
    )  # fmt: skip
