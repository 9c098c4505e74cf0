"""The paper's Figure 3: perplexity against updates, of full attention and Linformers that see the same batches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accelerate import PartialState

from longform.errors import ConfigurationError, DataError
from longform.files import locked, open_run_folder
from longform.models.task_heads import LinformerForMaskedLM
from longform.pretrained.weights import load_tokenizer
from longform_lab.paper.bigrams import bigram_loss
from longform_lab.paper.figure3_plan import Curve, Plan
from longform_lab.paper.figure3_report import report_figure3
from longform_lab.paper.parts import LOCKS, Finished, Part, work_through
from longform_lab.paper.reproduce import refuse_process_groups
from longform_lab.records import Record
from longform_text.data.subject import corpus_key
from longform_text.data.token_store import CorpusFiles
from longform_text.training.pretraining.data import CorpusReader, PretrainingData
from longform_text.training.pretraining.model import config_for, new_model
from longform_text.training.pretraining.run import pretrain
from longform_text.training.run_folder import read_run

NAME = "pretraining"  # of the records
UNITS = {"loss": "nats", "unigram_loss": "nats", "bigram_loss": "nats", "seconds": "s"}
TRAININGS, CACHE, IDENTITY = "trainings", "cache", "reproduce.json"
WEIGHTS = "model.safetensors"
GOES_ON = 1000  # added to the seed of what goes on from a twin, which has seen the batches of the seed itself


def reproduce_figure3(
    plan: Plan,
    text: Sequence[str],
    output: Path,
    *,
    seeds: Sequence[int],
    shared: Path | None = None,
    text_field: str = "text",
    progress: bool = True,
) -> tuple[list[Finished], int]:
    """Train what is lacking, and write records, curves, picture and report into ``output``.

    Returns what is finished, a training each, and how many trainings another process is at.

    ``text``: files, folders and "hf:" names, as ``longform pretrain`` takes them. ``shared``: folder of the token
    cache and the trainings, which several figures may share, and in which several processes may train at the same
    time; default: ``output``. All models of the first seed come first. Weights are removed once they are measured.

    Raises what ``pretrain`` raises, DataError where there is no text, and ConfigurationError for other settings or
    another corpus in the folder, and under torchrun.
    """
    refuse_process_groups()
    if not seeds or len(set(seeds)) < len(seeds):
        raise ConfigurationError(f"seeds={list(seeds)}: give one or more, each once")
    place, corpus = shared or output, CorpusFiles(tuple(text), text_field).read_again("the next training")
    if not (output / IDENTITY).exists() and next(iter(corpus), None) is None:  # before anything is written
        raise DataError(f"no text to train on in {', '.join(text)}")
    identity = _identity(plan, corpus)
    if plan.twin is not None:
        identity |= {"twin_steps": plan.twin.argument("max_steps")}
    open_run_folder(output, IDENTITY, {"figure": plan.figure, **identity}, what="trainings")
    _prepare(plan, corpus, place / CACHE, place / LOCKS, progress)
    parts = []
    for seed in seeds:
        for curve in plan.curves:
            job = Training(curve, plan, seed, corpus, place, progress)
            about = {**identity, "model": curve.model, "seed": seed}
            parts.append(Part(job.name, about, job.run, job.clean))
    return work_through(
        parts, place, lambda done: report_figure3(plan, seeds, done, output), described=plan.figure, progress=progress
    )


def _identity(plan: Plan, corpus: CorpusFiles) -> dict[str, Any]:
    """Facts that decide about every training, apart from its model and seed; ``corpus_key`` is that of the reader."""
    text = {"corpus_key": corpus_key(corpus, plan.preset.training.max_documents), "text_field": corpus.text_field}
    training = {name: value for name, value in plan.preset.training.identity().items() if name != "seed"}
    base = {name: value for name, value in plan.preset.model.items() if name != "projected_length"}
    return {**text, "tokenizer": vars(plan.preset.tokenizer), "base": base, **training}


def _prepare(plan: Plan, corpus: CorpusFiles, cache: Path, locks: Path, progress: bool) -> None:
    """Tokenizer and tokens, once for all trainings."""
    with locked(locks / "corpus", wait=True):
        _reader(plan, corpus, cache, progress).tokens()


def _reader(plan: Plan, corpus: CorpusFiles, cache: Path, progress: bool) -> CorpusReader:
    return CorpusReader(
        corpus,
        plan.preset.tokenizer,
        cache,
        limit=plan.preset.training.max_documents,
        process=PartialState(),
        progress=progress,
    )


@dataclass(frozen=True)
class Training:
    """One line of the figure with one seed."""

    curve: Curve
    plan: Plan
    seed: int
    corpus: CorpusFiles
    place: Path
    progress: bool

    @property
    def name(self) -> str:
        """Name of its folder and result."""
        return f"{self.curve.key}-seed{self.seed}"

    def start(self) -> Path | None:
        """The folder of the twin of this seed, trained; another process may be at it. None where lines begin anew."""
        training = self.plan.twin
        if training is None:
            return None
        name = f"twin{training.argument('max_steps')}-seed{self.seed}"
        folder = self.place / TRAININGS / name
        with locked(self.place / LOCKS / name, wait=True):
            pretrain(
                self.corpus,
                replace(training, seed=self.seed),
                config=self.plan.twin_model,
                tokenizer=self.plan.preset.tokenizer,
                output=folder,
                cache=self.place / CACHE,
                progress=self.progress,
            )
        return folder

    def _begun(self, start: Path) -> LinformerForMaskedLM:
        """The line's model with the weights of the twin that fit, whose positions are tiled for longer texts."""
        twin = LinformerForMaskedLM.from_pretrained(start)
        model = new_model(config_for(self.curve.model, load_tokenizer(start)), GOES_ON + self.seed)
        twin.resize_sequence_length(self.curve.length)
        sizes = {name: tensor.shape for name, tensor in model.state_dict().items()}
        weights = {name: tensor for name, tensor in twin.state_dict().items() if sizes.get(name) == tensor.shape}
        model.load_state_dict(weights, strict=False)
        return model

    def run(self) -> tuple[Record, Any]:
        """Train; the record has the last values, and the curve is kept beside it."""
        start = self.start()
        folder = self.place / TRAININGS / self.name
        run = read_run(folder)
        cleaned = run is not None and run.get("status") == "complete" and not (folder / WEIGHTS).exists()
        done = pretrain(
            self.corpus,
            replace(self.plan.preset.training, seed=self.seed if start is None else GOES_ON + self.seed),
            config=self.curve.model if start is None else self._begun(start),
            tokenizer=self.plan.preset.tokenizer,
            output=folder,
            cache=self.place / CACHE,
            restart=cleaned,
            progress=self.progress,
        )
        metrics = {
            "loss": done.validation_loss,
            "perplexity": done.perplexity,
            "unigram_loss": done.unigram_loss,
            "bigram_loss": bigram_loss(self._data()),
            "parameters": done.model.num_parameters(),
            "tokens": done.tokens,
            "steps": done.steps,
            "seconds": done.seconds,
            "quarters": done.curve[-1]["quarters"],
        }
        return Record(name=NAME, metrics=metrics, settings=self._settings(), units=UNITS), done.curve

    def _data(self) -> PretrainingData:
        training = self.plan.preset.training
        reader = _reader(self.plan, self.corpus, self.place / CACHE, self.progress)
        return PretrainingData(reader.tokens(), reader.tokenizer, training, length=self.curve.length)

    def clean(self) -> None:
        """Remove the weights: the result is kept elsewhere."""
        (self.place / TRAININGS / self.name / WEIGHTS).unlink(missing_ok=True)

    def _settings(self) -> dict[str, Any]:
        model, training = self.curve.model, self.plan.preset.training
        base = {
            name: self.plan.preset.model.get(name)
            for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
        }
        return {
            "curve": self.curve.key,
            "label": self.curve.label,
            "seed": self.seed,
            "n": self.curve.length,
            "k": None if self.curve.is_full else model["projected_length"],
            "projection": None if self.curve.is_full else model["projection"],
            "sharing": model.get("projection_sharing"),
            "window": None if self.curve.is_full else model.get("attention_window"),
            **base,
            "vocabulary": self.plan.preset.tokenizer.vocab_size,
            "tokens_per_step": training.tokens_per_step,
            "learning_rate": training.argument("learning_rate"),
            "steps": training.argument("max_steps"),
            "twin_steps": self.plan.twin and self.plan.twin.argument("max_steps"),
            "text": [Path(name).name for name in self.corpus.sources],
        }
