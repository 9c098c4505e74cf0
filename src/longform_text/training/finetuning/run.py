"""Fine-tuning of an encoder, Longform or any other of Hugging Face's, on labelled texts."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformers import EvalPrediction, PreTrainedModel, PreTrainedTokenizerBase, set_seed

from longform.digests import content_key
from longform.errors import ConfigurationError, some
from longform.files import read_json, write_json
from longform.pretrained.sentence_folder import IDENTITY, OLDER, with_activation
from longform_text.inference import classifiers
from longform_text.inference.loading import checked_limit, token_limit
from longform_text.training.card import write_card
from longform_text.training.finetuning.settings import FinetuningSettings
from longform_text.training.finetuning.task import Part, TextTask
from longform_text.training.finetuning.tokens import TOKENS, TokenTask, is_in_words
from longform_text.training.labels import REGRESSION
from longform_text.training.run import Run, TrainingResult, run_in
from longform_text.training.run_folder import OTHERWISE
from longform_text.training.students import CLASSIFIER, Student, activation_for, learning, with_labels
from longform_text.training.trainer import Trainer

METRICS_FILE = "metrics.json"


@dataclass(frozen=True)
class FinetuningResult(TrainingResult):
    """Result of a fine-tuning: the best model, its ``metrics`` on the validation part, and how it got there.

    ``labels``: names in the order of the logits. ``truncated``: texts of the training part that were cut.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    task: str
    labels: list[str]
    metrics: dict[str, Any]
    truncated: int

    @property
    def report(self) -> str:
        """Lines that the command prints: the scores of the best model on the validation part, and what was done."""
        shown = ", ".join(f"{name} {value:.4f}" for name, value in self.metrics.items() if isinstance(value, float))
        said = [
            f"validation  {shown} (step {self.metrics['best_step']} of {self.steps})",
            f"texts cut   {self.truncated} of the training part",
        ]
        if self.output is not None:
            said.append(f"saved       {self.output} ({METRICS_FILE}, records.jsonl, learning_curve.png)")
        return "\n".join(said)


def finetune(
    model: "PreTrainedModel | str | Path | Any",
    train: Any,
    settings: FinetuningSettings | None = None,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    validation: Any = None,
    text_field: str = "text",
    label_field: str = "label",
    pair_field: str | None = None,
    output: str | Path | None = None,
    restart: bool = False,
    progress: bool = True,
    **options: Any,
) -> FinetuningResult:
    """Train ``model`` on labelled texts, measure it on a validation part, keep the best.

    ``model``: a loaded encoder (with its ``tokenizer``), a ConversionResult, a folder or a hub name. It gets a head for
    the labels unless it has one that fits. A model in memory is copied, and what is frozen in it (``requires_grad``) is
    not trained. ``train``, ``validation``: a file, rows or a table (DataFrame, ``datasets``) with fields of these
    names, or columns in a tuple: (texts, labels), of pairs (texts, labels, second texts). A text that is a list of
    words has a list of labels, one a word (token classification). Without a validation part
    ``settings.validation_fraction`` of the texts is held out. ``output``: folder for checkpoints, records, pictures and
    the finished model; called again with it, an interrupted run goes on from its newest whole checkpoint (``restart``:
    anew). ``options``: fields of the settings, or of transformers.TrainingArguments, by name (``num_train_epochs=1``).
    The config remembers length, task, fields and the type of the labels, which prediction and evaluation then take up.

    Raises DataError (labels), ConfigurationError (settings, another run in the folder), CheckpointError.
    """
    settings = replace(settings or FinetuningSettings(), **options)
    with run_in(output, settings, (model, train, validation), restart=restart, progress=progress) as run:
        fields: Any = {"text_field": text_field, "label_field": label_field, "pair_field": pair_field}
        kind = TokenTask if _is_in_words(train, settings, fields) else TextTask
        task = kind(train, validation, settings, fields)
        _choose_metric(run.arguments, task, settings)
        set_seed(settings.seed)
        names = dict(enumerate(task.labels))
        config = {"id2label": names, "label2id": {name: i for i, name in names.items()}, **task.config}
        pooling = settings.classifier_pooling
        opened = with_labels(model, len(names), tokenizer, head=task.head, pooling=pooling, **config)
        limit = token_limit(opened.model, opened.tokenizer)
        max_length = checked_limit(limit, settings.max_length, name="the model")
        taught, held = task.parts(opened.tokenizer, max_length, progress=run.shown)
        held.rows.sort(key=lambda row: -len(row["input_ids"]))  # little of a batch is padding; no score asks for order
        if run.shown:
            print(_understood(task, taught, held, max_length), file=sys.stderr)
        how = task.remembered(max_length, {} if isinstance(train, tuple) else fields)
        _remember(opened.model.config, how, _activation(model, task))
        if run.begin("fine-tuning", opened.model, data=content_key(task.train, task.validation)):
            rows = run.folder.load(opened.model)
            metrics = read_json(run.place / METRICS_FILE, way_out=OTHERWISE)
        else:
            rows, metrics = _trained(run, task, opened, taught, held)
    return FinetuningResult(
        opened.model, opened.tokenizer, task.name, task.labels, metrics, taught.truncated, **run.result(rows)
    )


def _trained(
    run: Run, task: Any, opened: Student, taught: Part, held: Part
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The log history, and the numbers of the best step; the folder is finished."""

    def measure(found: EvalPrediction) -> dict[str, float]:
        scores = task.scores(found.predictions, found.label_ids)
        return {name: value for name, value in scores.items() if isinstance(value, float)}

    settings, validation = run.settings, held.rows
    trainer = Trainer(
        opened.model,
        run.arguments,
        train_dataset=taught.rows,
        eval_dataset=validation,
        data_collator=task.collator(opened.tokenizer),
        compute_metrics=measure,
        tokens_per_forward=settings.tokens_per_forward,
        head_learning_rate=settings.head_learning_rate,
    )
    with learning(opened.model):
        rows = run.train(trainer, doing="fine-tuning")
    best = (trainer.args.load_best_model_at_end and trainer.state.best_global_step) or trainer.state.global_step
    found: Any = trainer.predict(validation)  # ty: ignore[invalid-argument-type]
    scores = {"loss": found.metrics["test_loss"], **task.scores(found.predictions, found.label_ids)}
    metrics = {**scores, "best_step": best, "texts_truncated": taught.truncated}

    def save(folder: Path) -> None:
        opened.save(folder)
        write_json(folder / METRICS_FILE, metrics)
        what = "It gives a number." if task.name == REGRESSION else f"Labels: {some(task.labels, 20)}."
        about = f"An encoder fine-tuned on labelled texts ({task.name}, longform finetune). {what}"
        numbers = {name: value for name, value in metrics.items() if isinstance(value, float)}
        write_card(folder, opened, "fine-tuned", about, settings, {f"{len(validation):,} texts": numbers})

    run.finish(rows, str(trainer.args.metric_for_best_model), save)
    return rows, metrics


def _is_in_words(train: Any, settings: FinetuningSettings, fields: dict[str, Any]) -> bool:
    if settings.task != "auto" or isinstance(train, Iterator):
        return settings.task == TOKENS
    return is_in_words(train, fields["text_field"], fields["label_field"])


def _choose_metric(arguments: Any, task: Any, settings: FinetuningSettings) -> None:
    """The measurement by which a step is best. Raises ConfigurationError for one that the task does not have."""
    chosen = settings.arguments.get("metric_for_best_model")
    if chosen is not None and str(chosen).removeprefix("eval_") not in task.metrics:
        raise ConfigurationError(
            f'metric_for_best_model="{chosen}" does not go with {task.name} labels: {", ".join(task.metrics)}'
        )
    arguments.metric_for_best_model = chosen or task.metrics[0]
    if settings.arguments.get("greater_is_better") is None:
        arguments.greater_is_better = not arguments.metric_for_best_model.endswith("loss")


def _activation(model: Any, task: Any) -> str | None:
    if task.head != CLASSIFIER:
        return None
    return IDENTITY if task.name == REGRESSION else activation_for(model, len(task.labels))


def _remember(config: Any, how: classifiers.FineTuning, activation: str | None) -> None:
    """Write down what the model was trained with, and what sentence-transformers' CrossEncoder makes of its logits.

    A regression's logits are its values; those of other tasks mean what the source's do, where they are as many.
    """
    for name, value in ({classifiers.FIELD: how._asdict()} | with_activation(config, activation)).items():
        setattr(config, name, value)
    vars(config).pop(OLDER, None)


def _understood(task: Any, taught: Part, held: Part, max_length: int) -> str:
    """Summary of what is to be learned from how many texts, for a person to check before the training."""
    cut = taught.truncated + held.truncated
    parts = f"{len(taught.rows):,} to train on, {len(held.rows):,} held out, {cut:,} cut at {max_length:,} tokens"
    return f"{task.described(taught.rows)}; {parts}"
