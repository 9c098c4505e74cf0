"""Alignment: contrastive training, so that a query's vector is near its document's and far from other documents'.

The negatives of a query are the other documents of its step (InfoNCE), and for a share of the loss the other passages
of its document; a second term holds short texts to the vectors that they had.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from longform.errors import ConfigurationError, require
from longform_text.data.batching import CHARACTERS_A_TOKEN
from longform_text.data.given import InMemory, source_of
from longform_text.data.text import look
from longform_text.training.alignment.settings import AlignmentSettings, AlignmentSource
from longform_text.training.alignment.sources import open_source
from longform_text.training.engine.run_folder import place_of_run
from longform_text.training.engine.trainer import carry_out, current_process


@dataclass(frozen=True)
class AlignmentResult:
    """Result of an alignment. ``model``: the trained SentenceTransformer; ``records``: every measurement.

    ``before``, ``after``: "ndcg" (nDCG@10 of held-out queries among held-out documents), where spans are known that of
    right "passages" among all and in the "same_document", and "short_cosine" (of short texts to their vectors before);
    empty where nothing was held out. ``steps``: optimiser steps, ``documents``: read in them, some more than once.
    ``seconds``: wall-clock time of this call.
    """

    model: Any
    before: dict[str, float]
    after: dict[str, float]
    steps: int
    documents: int
    seconds: float
    records: list[dict[str, Any]] = field(repr=False)
    output: Path | None = None

    @property
    def report(self) -> str:
        """Lines that the command prints: how held-out documents are found before and after, and what was done."""
        said = [
            f"{name:<8} held-out documents: nDCG@10 {found['ndcg']:.4f}{_of_passages(found)}, short texts: cosine to "
            f"their vectors before {found['short_cosine']:.4f}"
            for name, found in (("before", self.before), ("after", self.after))
            if found
        ]
        said.append(f"trained  {self.steps:,} steps of {self.documents:,} documents in all")
        if self.output is not None:
            said.append(f"saved    {self.output} (measurements: records.jsonl, learning_curve.png)")
        if self.before and self.after["ndcg"] < self.before["ndcg"]:
            said.append(
                "worse    held-out documents are found less well than before: keep the model as it was, or train at a "
                "lower --learning-rate or with more --documents-per-step"
            )
        return "\n".join(said)


def _scores(row: Mapping[str, Any]) -> dict[str, float]:
    """Scores in the record of a measurement."""
    return {name: row[name] for name in ("ndcg", "passages", "same_document", "short_cosine") if name in row}


def _of_passages(found: Mapping[str, float]) -> str:
    if "passages" not in found:
        return ""
    return f", passages: {found['passages']:.4f} among all, {found['same_document']:.4f} in their document"


def align(
    model: Any,
    sources: Any,
    settings: AlignmentSettings | None = None,
    *,
    output: str | Path | None = None,
    restart: bool = False,
    progress: bool = True,
    **options: Any,
) -> AlignmentResult:
    """Train ``model`` to find documents by their queries.

    ``model``: a sentence-transformers folder or hub name, a Longform or not, a ConversionResult, or a
    SentenceTransformer, of which a copy is trained. ``sources``: an AlignmentSource or several; or pairs: a file, rows
    or a table with the fields "query" and "document", or columns in a tuple (queries, documents).
    ``output``: folder for checkpoints, records and the finished model; called again with it, an interrupted run goes on
    from its newest checkpoint, to the same weights (``restart``: anew). ``options``: fields of the settings by name.

    Raises ConfigurationError (settings, another run in the folder), DataError (pairs), CheckpointError,
    MissingDependencyError (sentence-transformers).
    """
    began = time.perf_counter()
    settings = replace(settings or AlignmentSettings(), **options)
    process = current_process(settings.device)
    require("sentence_transformers", extra="embed")
    from longform_text.training.alignment.job import AlignmentJob, document_limit
    from longform_text.training.alignment.model import open_sentence_model

    chosen = _sources(sources)
    named = [getattr(each, name) for each in chosen for name in ("pairs", "queries", "documents", "texts")]
    _look_at(chosen)
    with place_of_run(output, (model, *named), process) as folder:
        opened = open_sentence_model(model, process.device)
        how: Any = {"heldout": settings.heldout_documents, "seed": settings.seed}
        characters = CHARACTERS_A_TOKEN * document_limit(opened, settings)
        pairs = [open_source(each, characters=characters, **how) for each in chosen]
        job = AlignmentJob(opened, pairs, [each.weight for each in chosen], settings, process)
        run = carry_out(job, folder, kept=output is not None, restart=restart, shown=progress)
    measured, end = run.records.of("evaluation"), run.end
    return AlignmentResult(
        opened.origin.sentences,
        before=_scores(measured[0]) if measured else {},
        after=_scores(measured[-1]) if measured else {},
        documents=end["documents"],
        output=None if output is None else Path(output).expanduser(),
        **run.outcome(began),
    )


def _look_at(sources: Sequence[AlignmentSource]) -> None:
    """Raise DataError where a file of the ``sources`` lacks a field, before a model is loaded."""
    for given, fields in (read for each in sources for read in each.reads()):
        if not isinstance(source := source_of(given), InMemory):
            look(source, *fields)


def _sources(given: Any) -> Sequence[AlignmentSource]:
    """The sources that are given; anything else is pairs."""
    if isinstance(given, AlignmentSource):
        return [given]
    if isinstance(given, list | tuple) and given and all(isinstance(each, AlignmentSource) for each in given):
        return given
    if isinstance(given, list | tuple) and any(isinstance(each, AlignmentSource) for each in given):
        raise ConfigurationError("sources are AlignmentSource, all of them; files and rows go in one: pairs=...")
    return [AlignmentSource(pairs=given)]
