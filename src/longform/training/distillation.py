"""Distillation: the original encoder teaches the converted one, layer by layer, on the embedding, on masked tokens.

The loss of a batch is the mean over layers of the squared error of the student's hidden states relative to the squared
size of the teacher's (Linformer keeps the layers of its source, so they correspond one to one), plus 1 - cosine of the
mean-pooled last states, plus the divergence of the predictions at masked tokens where both models have that head.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from longform.data.text import Document
from longform.data.token_store import CorpusFiles
from longform.training.distillation_job import Agreement, DistillationJob
from longform.training.run_folder import current_process, place_of_run
from longform.training.settings import DistillationSettings
from longform.training.students import load_encoder, open_student
from longform.training.trainer import carry_out


@dataclass(frozen=True)
class DistillationResult:
    """What came of it. ``student`` is the model that was given, trained in place (the loaded one for a folder).

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
    def worse(self) -> list[str]:
        """Of "cosine" and "layer_error" what is worse after training than before."""
        return self.after.worse_than(self.before)


def distill(
    student: "PreTrainedModel | str | Path | Any",
    teacher: PreTrainedModel | str | Path,
    tokenizer: PreTrainedTokenizerBase | None,
    documents: Iterable[str | Document],
    settings: DistillationSettings | None = None,
    *,
    heldout: Sequence[str | Document] | None = None,
    output: str | Path | None = None,
    restart: bool = False,
    progress: bool = True,
) -> DistillationResult:
    """Teach ``student`` to behave as ``teacher`` on ``documents``.

    ``student``: a loaded encoder, a ConversionResult, or a folder; ``teacher``: a loaded encoder, a folder or a hub
    name; ``tokenizer``: of both, or None with a folder or a ConversionResult. ``documents``: anything that can be
    iterated over again and again (a list is shuffled, a stream read as it comes). ``heldout``: documents on which
    agreement is measured; default: the first ``settings.heldout_documents``, which are then not trained on.
    ``output``: folder for checkpoints, records and the finished student. Called again with the same folder and
    settings, an interrupted run goes on from its newest checkpoint, to the same weights (``restart``: anew).

    Raises ConfigurationError (settings, layers that do not correspond, another run in the folder), DataError (no
    text), CheckpointError (a damaged checkpoint, a full disk).
    """
    began = time.perf_counter()
    settings = settings or DistillationSettings()
    process = current_process(settings.device)
    texts = [each for each in (documents, heldout) if isinstance(each, CorpusFiles)]
    inputs = (student, getattr(student, "source_folder", None), teacher, *texts)
    with place_of_run(output, inputs, process) as folder:
        opened = open_student(student, tokenizer)
        job = DistillationJob(opened, load_encoder(teacher), documents, settings, heldout, process)
        run = carry_out(job, folder, kept=output is not None, restart=restart, shown=progress)
    measured, end = run.records.of("agreement"), run.records.last("end") or {}
    return DistillationResult(
        opened.model, opened.tokenizer, Agreement.of(measured[0]), Agreement.of(measured[-1]), steps=end["step"],
        tokens=end["tokens"], length=job.source.length, seconds=time.perf_counter() - began, records=run.records.rows,
        output=None if output is None else Path(output).expanduser(),
    )  # fmt: skip
