"""Distillation: the original encoder teaches the converted one, layer by layer and on the embedding.

The loss of a batch is the mean over layers of the squared error of the student's hidden states relative to the squared
size of the teacher's (Linformer keeps the layers of its source, so they correspond one to one), plus 1 - cosine of the
mean-pooled last states.
"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from longform.digests import content_key
from longform.errors import DataError
from longform.pretrained.checkpoint_files import model_key
from longform_text.data.text import text_of
from longform_text.data.token_store import corpus_of, files_of
from longform_text.inference.loading import position_limit
from longform_text.training.card import short_name, write_card
from longform_text.training.distillation.crops import CropDataset, DataCollatorForCrops, at_most_a_fifth
from longform_text.training.distillation.loss import Agreement, DistillationLoss, check_pair, encoder_of, texts_key
from longform_text.training.distillation.optimizer import MuonAdamW
from longform_text.training.distillation.settings import DistillationSettings, fitted
from longform_text.training.run import TrainingResult, measured, run_in
from longform_text.training.students import learning, load_encoder, open_student
from longform_text.training.trainer import Trainer, check_start

WINDOWED_RATE, MEMORY_RATE = 1e-4, 5e-4  # highest learning rates for students with and without a window


@dataclass(frozen=True)
class DistillationResult(TrainingResult):
    """Result. ``student`` is the model that was given, trained in place (the loaded one for a folder).

    ``before``, ``after``: agreement with the teacher on held-out documents; ``worse``: what of it is worse than before.
    ``tokens``: of training text over all processes, ``length``: of its longest crops.
    """

    student: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    before: Agreement
    after: Agreement
    tokens: int
    length: int

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
                "text (--max_steps) or at a lower --learning_rate"
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
    settings, an interrupted run goes on from its newest whole checkpoint (``restart``: anew).
    ``options``: fields of the settings, or of transformers.TrainingArguments, by name, such as ``max_steps``.

    Raises ConfigurationError (settings, layers that do not correspond, another run in the folder), DataError (no
    text), CheckpointError (a damaged checkpoint, a full disk).
    """
    settings = replace(settings or DistillationSettings(), **options)
    documents = corpus_of(documents, text_field)
    heldout = None if heldout is None else corpus_of(heldout, text_field)
    inputs = (student, getattr(student, "source_folder", None), teacher, *files_of(documents, heldout))
    with run_in(output, settings, inputs, restart=restart, progress=progress) as run:
        opened, original = open_student(student, tokenizer), encoder_of(load_encoder(teacher))
        settings, trained = fitted(settings, position_limit(opened.model.config)), encoder_of(opened.model)
        run.settings, arguments = settings, run.arguments
        check_pair(trained, original, settings)
        check_start(original, "the teacher")
        kept = 0 if heldout is not None else at_most_a_fifth(settings.heldout_documents, documents)
        source = CropDataset(documents, opened.tokenizer, settings, heldout=kept)
        crops = source.heldout_crops() if heldout is None else source.whole_crops(list(map(text_of, heldout)))
        if not crops:
            raise DataError("no text to measure on: the held-out documents are empty")
        opened.model.float()
        data = {"teacher": model_key(original), "data": content_key(crops), "texts": texts_key(documents)}
        if run.begin("distillation", trained, **data):
            rows = run.folder.load(opened.model)
        else:
            arguments.learning_rate = rate = _rate(settings, trained.config)
            muon = partial(MuonAdamW, lr=rate, weight_decay=arguments.weight_decay)
            dtype = torch.bfloat16 if arguments.bf16 else torch.float32
            loss = DistillationLoss(
                original, opened.tokenizer, limit=settings.teacher_length, device=arguments.device, dtype=dtype
            )
            with learning(opened.model, dropout=settings.dropout, word_embeddings=settings.train_word_embeddings):
                trainer = Trainer(
                    trained,
                    arguments,
                    train_dataset=source,
                    eval_dataset=crops,
                    data_collator=DataCollatorForCrops(opened.tokenizer),
                    tokens_per_forward=settings.tokens_per_forward,
                    loss=loss,
                    measure=lambda model: loss.agreement(model, crops, settings.tokens_per_forward)._asdict(),
                    make_optimizer=muon if settings.optimizer == "muon" else None,
                )
                rows = run.train(trainer, doing="distilling")

            def save(folder: Path) -> None:
                opened.save(folder)
                first, *_, last = (Agreement.of(row).summary() for row in measured(rows, "cosine"))
                scores = {"before": first, f"after {rows[-1]['step']:,} steps": last}
                name = short_name(str(original.config._name_or_path or ""))
                about = (
                    f"A Longform that {f'`{name}`' if name else 'its original'} has taught on {_tokens(rows):,} tokens "
                    "of text without labels (longform distill): long texts get nearly the states that the original has "
                    "for their windows. Cosine of mean-pooled states, and squared error of hidden states over their "
                    "squared size, mean over layers."
                )
                write_card(folder, opened, "healed", about, settings, scores)

            run.finish(rows, "cosine", save)
    first, *_, last = (Agreement.of(row) for row in measured(rows, "cosine"))
    return DistillationResult(
        opened.model, opened.tokenizer, first, last, _tokens(rows), source.length, **run.result(rows)
    )


def _rate(settings: DistillationSettings, config: Any) -> float:
    """The learning rate that was chosen, or what suits the student."""
    windowed = getattr(config, "attention_window", None) is not None
    return settings.arguments.get("learning_rate", WINDOWED_RATE if windowed else MEMORY_RATE)


def _tokens(rows: list[dict[str, Any]]) -> int:
    return int(max((row.get("num_input_tokens_seen", 0) for row in rows), default=0))
