"""Alignment: contrastive training, so that a query's vector is near its document's and far from other documents'.

The negatives of a query are the other documents of its step (InfoNCE), and for a share of the loss the other passages
of its document; a second term holds short texts to the vectors that they had.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from longform.conversion.adapter import WEIGHTS
from longform.digests import content_key
from longform.errors import ConfigurationError, require
from longform.pretrained.tokenizers import special_tokens
from longform.pretrained.weights import reading
from longform_text.data.batching import CHARACTERS_A_TOKEN
from longform_text.data.given import InMemory, source_of
from longform_text.data.text import look
from longform_text.inference.loading import checked_limit
from longform_text.training.alignment.settings import AlignmentSettings, AlignmentSource
from longform_text.training.alignment.sources import PairSource, open_source
from longform_text.training.card import write_card
from longform_text.training.run import Run, TrainingResult, measured, run_in
from longform_text.training.students import Student, learning
from longform_text.training.trainer import Trainer


@dataclass(frozen=True)
class AlignmentResult(TrainingResult):
    """Result of an alignment. ``model``: the trained SentenceTransformer.

    ``before``, ``after``: "ndcg" (nDCG@10 of held-out queries among held-out documents), where spans are known that of
    right "passages" among all and in the "same_document", and "short_cosine" (of short texts to their vectors before);
    empty where nothing was held out. ``documents``: read in all steps, some more than once.
    """

    model: Any
    before: dict[str, float]
    after: dict[str, float]
    documents: int

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
                "lower --learning_rate or with more --documents-per-step"
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
    from its newest whole checkpoint (``restart``: anew). ``options``: fields of the settings, or of
    transformers.TrainingArguments, by name.

    Raises ConfigurationError (settings, another run in the folder), DataError (pairs), CheckpointError,
    MissingDependencyError (sentence-transformers).
    """
    settings = replace(settings or AlignmentSettings(), **options)
    require("sentence_transformers", extra="embed")
    from longform_text.training.alignment.model import open_sentence_model

    chosen = _sources(sources)
    named = [getattr(each, name) for each in chosen for name in ("pairs", "queries", "documents", "texts")]
    _look_at(chosen)
    with run_in(output, settings, (model, *named), restart=restart, progress=progress) as run:
        opened = open_sentence_model(model, run.arguments.device)
        how: Any = {"heldout": settings.heldout_documents, "seed": settings.seed}
        characters = CHARACTERS_A_TOKEN * document_limit(opened, settings)
        pairs = [open_source(each, characters=characters, **how) for each in chosen]
        rows, documents = align_opened(opened, pairs, [each.weight for each in chosen], run)
    found = [_scores(row) for row in measured(rows, "ndcg")] or [{}]
    return AlignmentResult(opened.origin.sentences, found[0], found[-1], documents, **run.result(rows))


def align_opened(
    opened: Any, sources: Sequence[PairSource], weights: Sequence[float], run: Run, *, begin: Path | None = None
) -> tuple[list[dict[str, Any]], int]:
    """Train an ``OpenedModel``, in place: the log history, and the documents that were read.

    ``begin``: the folder of an adapter to go on with.
    """
    from longform_text.training.alignment.model import AlignmentLoss
    from longform_text.training.alignment.steps import AlignmentSteps, Heldout, Reader

    settings, arguments, encoder, trained = run.settings, run.arguments, opened.encoder, opened.trained

    def vectors_before(texts: list[str]) -> np.ndarray:
        with torch.autocast(arguments.device.type, enabled=False):  # the encoder reads in its own dtype
            return opened.before.collect(texts).values

    passages = (settings.passage_tokens, settings.passage_boundaries)
    reader = Reader(trained.sides, document_limit(opened, settings), settings.tokens_per_forward, *passages)
    steps = AlignmentSteps(
        sources, weights, reader, settings, steps=settings.argument("max_steps"), processes=arguments.world_size
    )
    data = content_key([source.key for source in sources], weights)
    if run.begin("alignment", trained, data=data):
        rows = run.folder.rows
        _load(opened.origin.sentences, run.place, arguments.device)
        return rows, steps.documents(rows[-1]["step"])
    heldout = Heldout(sources, reader, settings.seed, vectors_before)
    if not heldout.steps:
        arguments.eval_strategy, arguments.eval_on_start = "no", False
    loss = AlignmentLoss(
        temperature=settings.temperature,
        keep_weight=settings.keep_weight,
        same_document=settings.same_document_negatives,
        vectors_before=vectors_before,
    )
    with learning(encoder, dropout=settings.dropout, word_embeddings=settings.train_word_embeddings):
        adapter = _adapter(encoder, settings, begin)
        trainer = Trainer(
            trained,
            arguments,
            train_dataset=steps,
            eval_dataset=heldout.steps,
            data_collator=_one_step,
            loss=loss,
            measure=lambda model: heldout.measure(lambda batch: model(batch)["sentence_embedding"]),
        )
        rows = run.train(trainer, doing="aligning")
        if adapter is not None:
            adapter.merge()
            opened.origin.round_token_weights()
    student = Student(encoder, trained.sides["plain"].tokenizer, opened.origin)
    documents = steps.documents(trainer.state.global_step)

    def save(place: Path) -> None:
        student.save(place)
        if adapter is not None:
            adapter.save(place, report=opened.origin.conversion, **opened.origin.pooling())
        found = measured(rows, "ndcg")
        scores = {"before": _scores(found[0]), "after": _scores(found[-1])} if found else {}
        about = (
            "An encoder that has learned to find long documents by queries (longform align: contrastive, "
            f"{rows[-1]['step']:,} steps of {documents:,} documents in all). nDCG@10 of queries among the documents of "
            "the same source, and the cosine between the vectors that short texts have and had."
        )
        write_card(place, student, "aligned", about, settings, scores)

    run.finish(rows, "ndcg", save)
    return rows, documents


def _one_step(items: list[Any]) -> dict[str, Any]:
    """The batch of one item, which is a step."""
    (step,) = items
    return {"step": step}


def _adapter(encoder: Any, settings: AlignmentSettings, begin: Path | None) -> Any:
    if settings.lora_rank is None:
        return None
    from longform_text.training.alignment.adapter import LowRankAdapter

    adapter = LowRankAdapter(encoder, settings.lora_rank, seed=settings.seed)
    if begin is not None:
        require("peft", extra="lora").set_peft_model_state_dict(adapter.wrapped, load_file(begin / WEIGHTS))
    return adapter


def _load(sentences: Any, folder: Path, device: torch.device) -> None:
    """Take up the weights of a finished folder."""
    from sentence_transformers import SentenceTransformer

    with reading(folder):
        found = SentenceTransformer(str(folder), device=device.type)
    sentences.load_state_dict(found.state_dict())


def document_limit(opened: Any, settings: AlignmentSettings) -> int:
    """Tokens that are read of a document. Raises ConfigurationError for more than the model takes."""
    encoder = opened.trained.sides["plain"]
    room = encoder.limit - special_tokens(encoder.tokenizer).total
    checked_limit(room, settings.passage_tokens, name="the model", what="passage_tokens")
    return checked_limit(encoder.limit, settings.max_length, name="the model")


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
