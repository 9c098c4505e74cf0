"""Fine-tuning of an encoder, Longform or any other of Hugging Face's, on labelled texts."""

import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed

from longform.errors import ConfigurationError
from longform.pretrained.sentence_folder import IDENTITY, OLDER, with_activation
from longform_text.inference import classifiers
from longform_text.training.engine.run_folder import place_of_run
from longform_text.training.engine.settings import FinetuningSettings
from longform_text.training.engine.students import activation_for, with_labels
from longform_text.training.engine.trainer import carry_out, current_process
from longform_text.training.finetuning.job import FinetuningJob
from longform_text.training.labels import (
    MULTI,
    REGRESSION,
    SINGLE,
    Examples,
    LabelScheme,
    examples_of,
    learn_scheme,
    split,
)

PROBLEMS = {SINGLE: classifiers.SINGLE_LABEL, MULTI: classifiers.MULTI_LABEL, REGRESSION: classifiers.REGRESSION}


@dataclass(frozen=True)
class FinetuningResult:
    """Result of a fine-tuning: the best model, its ``metrics`` on the validation part, and how it got there.

    ``labels``: names in the order of the logits. ``truncated``: texts of the training part that were cut.
    ``seconds``: wall-clock time of this call. ``records``: every measurement.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    task: str
    labels: list[str]
    metrics: dict[str, Any]
    steps: int
    truncated: int
    seconds: float
    records: list[dict[str, Any]] = field(repr=False)
    output: Path | None = None

    @property
    def report(self) -> str:
        """Lines that the command prints: the scores of the best model on the validation part, and what was done."""
        shown = ", ".join(f"{name} {value:.4f}" for name, value in self.metrics.items() if isinstance(value, float))
        said = [
            f"validation  {shown} (step {self.metrics['best_step']} of {self.steps})",
            f"texts cut   {self.truncated} of the training part",
        ]
        if self.output is not None:
            said.append(f"saved       {self.output} (metrics.json, records.jsonl, learning_curve.png)")
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

    ``model``: a loaded encoder, a ConversionResult, a folder or a hub name; it gets a classification head for the
    labels unless it has one that fits. A model in memory is copied, not changed; what is
    frozen in it (``requires_grad``) is not trained. ``tokenizer``: needed with a loaded
    encoder. ``train``, ``validation``: a file, rows or a table (DataFrame, ``datasets``) with fields of these names, or
    columns in a tuple: (texts, labels), of pairs (texts, labels, second texts). Without a validation
    part ``settings.validation_fraction`` of the texts is held out. ``output``: folder for checkpoints,
    records, pictures and the finished model; called again with it, an interrupted run goes on from its newest
    checkpoint, to the same weights (``restart``: anew). ``options``: fields of the settings by name (``epochs=1``).
    The config remembers length, task, fields and the type of the labels, which prediction and evaluation then take up.

    Raises DataError (labels), ConfigurationError (settings, another run in the folder), CheckpointError.
    """
    began = time.perf_counter()
    settings = replace(settings or FinetuningSettings(), **options)
    process = current_process(settings.device)
    with place_of_run(output, (model, train, validation), process) as folder:
        fields: Any = {"text_field": text_field, "label_field": label_field, "pair_field": pair_field}
        labelled = examples_of(train, **fields)
        if validation is not None:
            validation = examples_of(validation, **fields)
        scheme, taught, held = _split(labelled, validation, settings)
        set_seed(settings.seed)
        activation = IDENTITY if scheme.task == REGRESSION else activation_for(model, len(scheme.names))
        opened = with_labels(
            model,
            len(scheme.names),
            tokenizer,
            problem_type=PROBLEMS[scheme.task],
            pooling=settings.classifier_pooling,
            id2label=dict(enumerate(scheme.names)),
            label2id={name: i for i, name in enumerate(scheme.names)},
        )
        job = FinetuningJob(opened, scheme, taught, held, settings, process, progress=progress)
        known = {} if isinstance(train, tuple) else fields
        if progress and process.is_main_process:
            print(job.understood(), file=sys.stderr)
        how = classifiers.FineTuning(scheme.task, scheme.label_type, job.max_length, taught.pairs is not None, **known)
        _remember(opened.model.config, how, activation)
        run = carry_out(job, folder, kept=output is not None, restart=restart, shown=progress)
    end = run.end
    metrics = {name: value for name, value in end.items() if name not in ("event", "step", "seconds")}
    return FinetuningResult(
        opened.model,
        opened.tokenizer,
        scheme.task,
        scheme.names,
        metrics,
        truncated=job.truncated,
        output=None if output is None else Path(output).expanduser(),
        **run.outcome(began),
    )


def _remember(config: Any, how: classifiers.FineTuning, activation: str | None) -> None:
    """Write down what the model was trained with, and what sentence-transformers' CrossEncoder makes of its logits.

    A regression's logits are its values; those of other tasks mean what the source's do, where they are as many.
    """
    for name, value in ({classifiers.FIELD: how._asdict()} | with_activation(config, activation)).items():
        setattr(config, name, value)
    vars(config).pop(OLDER, None)


def _split(
    train: Examples, validation: Examples | None, settings: FinetuningSettings
) -> tuple[LabelScheme, Examples, Examples]:
    scheme = learn_scheme(train.labels, settings.task)
    if validation is None:
        train, validation = split(train, scheme, fraction=settings.validation_fraction, seed=settings.seed)
    if (train.pairs is None) != (validation.pairs is None):
        raise ConfigurationError("training and validation part: either both have second texts, or none")
    return scheme, train, validation
