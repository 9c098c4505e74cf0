"""Distillation: the original encoder teaches the converted one, layer by layer and on the embedding.

The loss of a batch is the mean over layers of the squared error of the student's hidden states relative to the squared
size of the teacher's (Linformer keeps the layers of its source, so they correspond one to one), plus 1 - cosine of the
mean-pooled last states.
"""

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from longform_text.data.token_store import CorpusFiles, corpus_of
from longform_text.training.distillation.job import Agreement, DistillationJob
from longform_text.training.engine.run_folder import place_of_run
from longform_text.training.engine.settings import DistillationSettings
from longform_text.training.engine.students import load_encoder, open_student
from longform_text.training.engine.trainer import carry_out, current_process


@dataclass(frozen=True)
class DistillationResult:
    """Result. ``student`` is the model that was given, trained in place (the loaded one for a folder).

    ``before``, ``after``: agreement with the teacher on held-out documents; ``worse``: what of it is worse than before.
    ``steps``: optimiser steps, ``tokens``: of training text over all processes, ``length``: of its longest crops,
    ``seconds``: wall-clock time of this call. ``records``: every measurement.
    """

    student: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    before: Agreement
    after: Agreement
    steps: int
    tokens: int
    length: int
    seconds: float
    records: list[dict[str, Any]] = field(repr=False)
    output: Path | None = None

    @property
    def report(self) -> str:
        """Lines that the command prints: agreement before and after, and what was done."""
        said = [
            f"{name:<8} cosine to the teacher {found.cosine:.4f}, relative error of the layers "
            f"{found.summary()['layer_error']:.4f}"
            for name, found in (("before", self.before), ("after", self.after))
        ]
        trained = f"{self.steps:,} steps, {self.tokens:,} tokens in crops of up to {self.length:,}"
        said.append(f"trained  {trained}; measured on {self.after.documents} documents")
        if self.output is not None:
            said.append(f"saved    {self.output} (measurements: records.jsonl, learning_curve.png)")
        if self.worse:
            what = " and ".join(
                {"cosine": "the cosine", "layer_error": "the error of the layers"}[x] for x in self.worse
            )
            said.append(
                f"worse    {what} after training is worse than before: keep the student as it was, or train on more "
                "text (--max-tokens) or at a lower --learning-rate"
            )
        return "\n".join(said)

    @property
    def worse(self) -> list[str]:
        """Names among "cosine" and "layer_error" of what is worse after training than before."""
        return self.after.worse_than(self.before)


def distill(
    student: "PreTrainedModel | str | Path | Any",
    teacher: PreTrainedModel | str | Path,
    documents: Any,
    settings: DistillationSettings | None = None,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    heldout: Any = None,
    text_field: str = "text",
    output: str | Path | None = None,
    restart: bool = False,
    progress: bool = True,
    **options: Any,
) -> DistillationResult:
    """Teach ``student`` to behave as ``teacher`` on ``documents``.

    ``student``: a loaded encoder, a ConversionResult, or a folder; ``teacher``: a loaded encoder, a folder or a hub
    name; ``tokenizer``: of both, needed with a loaded student. ``documents``: names of files, or texts in memory that
    can be read again and again: a list or a column (shuffled), rows or a table with ``text_field``, a stream (read as
    it comes). ``heldout``: documents on which agreement is measured; default: the first
    ``settings.heldout_documents``, which are then not trained on.
    ``output``: folder for checkpoints, records and the finished student. Called again with the same folder and
    settings, an interrupted run goes on from its newest checkpoint, to the same weights (``restart``: anew).
    ``options``: fields of the settings by name, such as ``max_steps``.

    Raises ConfigurationError (settings, layers that do not correspond, another run in the folder), DataError (no
    text), CheckpointError (a damaged checkpoint, a full disk).
    """
    began = time.perf_counter()
    settings = replace(settings or DistillationSettings(), **options)
    process = current_process(settings.device)
    documents = corpus_of(documents, text_field)
    heldout = None if heldout is None else corpus_of(heldout, text_field)
    texts = [each for each in (documents, heldout) if isinstance(each, CorpusFiles)]
    inputs = (student, getattr(student, "source_folder", None), teacher, *texts)
    with place_of_run(output, inputs, process) as folder:
        opened = open_student(student, tokenizer)
        job = DistillationJob(opened, load_encoder(teacher), documents, settings, heldout, process)
        run = carry_out(job, folder, kept=output is not None, restart=restart, shown=progress)
    measured, end = run.records.of("agreement"), run.end
    return DistillationResult(
        opened.model,
        opened.tokenizer,
        Agreement.of(measured[0]),
        Agreement.of(measured[-1]),
        tokens=end["tokens"],
        length=job.source.length,
        output=None if output is None else Path(output).expanduser(),
        **run.outcome(began),
    )
