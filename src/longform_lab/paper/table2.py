"""The paper's Table 2: fine-tuned accuracy of the original and of its Linformers, same texts, budget and seeds."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from longform.conversion.local import local_source
from longform.digests import content_key
from longform.errors import ConfigurationError
from longform.files import open_run_folder
from longform.pretrained.checkpoint_files import model_identity
from longform_lab.paper.parts import Finished, Part, work_through
from longform_lab.paper.reproduce import refuse_process_groups
from longform_lab.paper.table2_models import LENGTH, Variant, heal, variants, with_new_head
from longform_lab.paper.table2_report import report_table2
from longform_lab.paper.table2_tasks import TASKS, Amount, Task, chosen, read_task
from longform_lab.records import Record
from longform_text.data.subject import corpus_key
from longform_text.data.token_store import CorpusFiles
from longform_text.training.finetuning.run import finetune
from longform_text.training.finetuning.settings import FinetuningSettings
from longform_text.training.labels import Examples
from longform_text.training.run_folder import RUN_FILE

NAME = "finetuned"  # of the records
FINETUNINGS, HEALED = "finetunings", "healed"


@dataclass(frozen=True)
class Table2Scale:
    """``model``: a name or folder of the original, or "bundled". ``healing``: tokens, where text to heal on is given;
    ``held_out`` documents of it are kept to measure on.

    ``epochs``, ``learning_rate``, ``batch_size``: of every fine-tuning.
    """

    model: str
    amounts: dict[str, Amount]
    epochs: float
    learning_rate: float
    batch_size: int = 16
    healing: int = 3_000_000
    held_out: int = 64
    tokens_per_forward: int = 8192

    def cut_at(self, lengths: Sequence[int]) -> "Table2Scale":
        """Request with all texts cut to one length. Raises ConfigurationError for several, or one above n."""
        if len(lengths) != 1 or not 2 <= lengths[0] <= LENGTH:
            raise ConfigurationError(f"table2 cuts texts to one length of 2 to {LENGTH} tokens, not to {list(lengths)}")
        cut = {name: replace(amount, max_length=lengths[0]) for name, amount in self.amounts.items()}
        return replace(self, amounts=cut)


EVERYTHING = 10**9
SCALES = {
    "tiny": Table2Scale(
        "bundled", {name: Amount(24, 12, 32) for name in TASKS}, epochs=1, learning_rate=2e-4, batch_size=8,
        healing=4_096, held_out=4,
    ),
    "small": Table2Scale(
        "bundled",
        {"SST-2": Amount(2_000, 1_000, 64), "IMDB": Amount(400, 400, 256), "QNLI": Amount(1_200, 892, 128),
         "MRPC": Amount(1_200, 815, 128), "RTE": Amount(1_000, 498, 192)},
        epochs=2, learning_rate=2e-4, batch_size=32,
    ),
    "paper": Table2Scale(
        "FacebookAI/roberta-base", {name: Amount(EVERYTHING, EVERYTHING) for name in TASKS}, epochs=3,
        learning_rate=2e-5, batch_size=32, healing=100_000_000, tokens_per_forward=16_384,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Table2:
    """Request for the table: models, tasks, seeds, sizes.

    ``data``: folder of the tasks' files, or "hf". ``healing_text``: files to heal converted models on before
    fine-tuning; empty: they are fine-tuned as converted.
    """

    scale: Table2Scale
    data: str
    output: Path
    seeds: tuple[int, ...] = (0, 1, 2)
    tasks: tuple[str, ...] = tuple(TASKS)
    models: tuple[str, ...] = tuple(variants())
    healing_text: tuple[str, ...] = ()
    text_field: str = "text"
    progress: bool = True

    @property
    def healing_corpus(self) -> CorpusFiles:
        """Corpus that converted models are healed on."""
        return CorpusFiles(self.healing_text, self.text_field)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Facts that decide about every fine-tuning, apart from model, task and seed."""
        scale = self.scale
        return {
            "original": Path(scale.model).name if Path(scale.model).is_dir() else scale.model,
            "epochs": scale.epochs,
            "learning_rate": scale.learning_rate,
            "batch_size": scale.batch_size,
            "healing_tokens": scale.healing if self.healing_text else 0,
            "healing_text": [Path(name).name for name in self.healing_text],
            "fit_length": False,  # records have both kinds: E and F are of 512 tokens whatever a task's texts have
            "original_key": model_identity(local_source(scale.model))["weights_key"],
            "healing_key": corpus_key(self.healing_corpus) if self.healing_text else None,
        }


def reproduce_table2(request: Table2) -> tuple[list[Finished], int]:
    """Fine-tune what is lacking, and write records, table, picture and report; returns also how many are lacking.

    All models and tasks of the first seed come first. Several processes may work in the same folder. Raises DataError
    (texts), ConfigurationError (names; other settings in the folder; torchrun), and what conversion and fine-tuning
    raise.
    """
    refuse_process_groups()
    tasks, models = chosen(request.tasks, TASKS, "tasks"), chosen(request.models, variants(), "models")
    if not request.seeds or len(set(request.seeds)) < len(request.seeds):
        raise ConfigurationError(f"seeds={list(request.seeds)}: give one or more, each once")
    amounts = request.scale.amounts  # all are read now: a missing file is better known before the first hour
    read = {task: read_task(task, request.data, amounts[task.name]) for task in tasks}
    open_run_folder(request.output, "reproduce.json", {"table": "table2", **request.facts}, what="fine-tunings")
    jobs = [
        Finetuning(request, task, *read[task], variant, seed)
        for seed in request.seeds
        for variant in models
        for task in tasks
    ]
    return work_through(
        [Part(job.name, job.identity(), job.run, job.clean) for job in jobs],
        request.output,
        lambda done: report_table2(done, request.output, asked=len(jobs)),
        described="table2",
        progress=request.progress,
    )


@dataclass(frozen=True)
class Finetuning:
    """One model on one task with one seed."""

    request: Table2
    task: Task
    train: Examples
    dev: Examples
    variant: Variant
    seed: int

    @property
    def name(self) -> str:
        """Name of its folder and result."""
        return f"{self.task.name}-{self.variant.key}-seed{self.seed}"

    @property
    def folder(self) -> Path:
        """Where it keeps its checkpoints."""
        return self.request.output / FINETUNINGS / self.name

    def identity(self) -> dict[str, Any]:
        """Facts that must be the same for its result to be taken."""
        amount = self.request.scale.amounts[self.task.name]
        return {
            **self.request.facts,
            "task": self.task.name,
            "model": self.variant.key,
            "seed": self.seed,
            "train": len(self.train.texts),
            "max_length": amount.max_length,
            "dev": len(self.dev.texts),
            "texts_key": content_key(self.train, self.dev),
        }

    def run(self) -> tuple[Record, Any]:
        """Heal the model if need be, fine-tune it, and measure it on the dev part."""
        request, scale = self.request, self.request.scale
        source = local_source(scale.model)
        healed = None
        if request.healing_text and self.variant.options is not None:
            healed = heal(
                source,
                self.variant,
                request.healing_corpus,
                request.output / HEALED,
                tokens=scale.healing,
                held_out=scale.held_out,
                progress=request.progress,
            )
        model, tokenizer = with_new_head(source, self.variant, len(set(self.train.labels)), self.seed, healed)
        settings = FinetuningSettings(
            task="single-label",
            max_length=scale.amounts[self.task.name].max_length,
            num_train_epochs=scale.epochs,
            per_device_train_batch_size=scale.batch_size,
            tokens_per_forward=scale.tokens_per_forward,
            learning_rate=scale.learning_rate,
            metric_for_best_model="accuracy",
            seed=self.seed,
        )
        resumed = (self.folder / RUN_FILE).exists()  # then the time of this call is not all of it
        done = finetune(
            model,
            self.train,
            settings,
            tokenizer=tokenizer,
            validation=self.dev,
            output=self.folder,
            progress=request.progress,
        )
        metrics = {
            "accuracy": done.metrics["accuracy"],
            "macro_f1": done.metrics["macro_f1"],
            "seconds": None if resumed else done.seconds,
            "parameters": done.model.num_parameters(),
            "steps": done.steps,
        }
        options = dict(self.variant.options or {})
        settings = {
            **self.identity(),
            "label": self.variant.label,
            "n": model.config.max_position_embeddings,
            "k": options.get("projected_length"),
            "sharing": options.get("sharing"),
        }
        return Record(name=NAME, metrics=metrics, settings=settings, units={"seconds": "s"}), None

    def clean(self) -> None:
        """Remove model and checkpoints: the result is kept elsewhere."""
        shutil.rmtree(self.folder, ignore_errors=True)
