"""The steps of the demo, each resumable; what they made is in the folder's ``work``."""

import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from longform.conversion.convert import ConversionResult, convert
from longform.data.storage import atomic_folder, copy_anew
from longform.data.text import Document
from longform.inference.weights import quiet_transformers
from longform.training.distillation import distill
from longform.training.finetuning import finetune
from longform.training.settings import FinetuningSettings
from longform_lab.demo.comparing import evaluate
from longform_lab.demo.head import embeddings, fit_head
from longform_lab.demo.material import Material, examples, make_material
from longform_lab.demo.measuring import measure_lengths
from longform_lab.demo.pipeline import Pipeline
from longform_lab.demo.scale import Scale

CHARACTERS_A_TOKEN = 4.6  # in licence texts, roughly
HEADS_SHARE = 0.5  # of the time for learning, at most
EMBEDDING_COST, FINETUNING_COST = 0.2, 1.05  # of a token, against one of healing, whose teacher reads it too
MODEL_FILES = ("*.safetensors", "config.json", "tokenizer*", "special_tokens_map.json", "vocab*", "generation_config*")
KEPT = ("step", "loss", "learning_rate", "tokens", "seconds", "macro_f1", "accuracy", "cosine", "layer_errors")


def prepare(pipeline: Pipeline, scale: Scale, *, seed: int) -> dict[str, Any]:
    """Texts, the Longform, and the original with a classification head of the same kind, both untrained."""
    with quiet_transformers():
        material = make_material(scale, seed=seed, folder=pipeline.work / "encoder")
        return prepare_models(pipeline, scale, material, seed=seed)


def prepare_models(pipeline: Pipeline, scale: Scale, material: Material, *, seed: int) -> dict[str, Any]:
    """Both models for ``material``, which is kept for the later steps."""
    material.save(pipeline.work / "texts.json")
    torch.manual_seed(seed)
    long = _classifier(
        material, scale, max_length=scale.length, projected_length=scale.projected_length,
        attention_window=scale.attention_window,
    )  # fmt: skip
    # A window over the whole length is full attention: the original itself, with a head like the Longform's.
    original = _classifier(material, scale, max_length=scale.original_length, attention_window=scale.original_window)
    for name, result in (("converted", long), ("original-converted", original)):
        shutil.rmtree(pipeline.work / name, ignore_errors=True)
        result.save_pretrained(pipeline.work / name)
    kept = ("family", "source_length", "max_length", "parameters", "options", "positions")
    report = {name: value for name, value in asdict(long.report).items() if name in kept}
    return {"facts": material.facts, "labels": material.labels, "report": report, "summary": long.report.summary()}


def _classifier(material: Material, scale: Scale, **options: Any) -> ConversionResult:
    result = convert(
        material.encoder, task="sequence-classification", num_labels=len(material.labels),
        id2label=dict(enumerate(material.labels)), classifier_pooling=scale.pooling, **options,
    )  # fmt: skip
    # A pass over few texts does not overfit, and without dropout inside it attention has a faster kernel.
    result.model.config.hidden_dropout_prob = result.model.config.attention_probs_dropout_prob = 0.0
    result.model.config.classifier_dropout = 0.1
    return result


def heal(pipeline: Pipeline, scale: Scale) -> dict[str, Any]:
    """The original teaches the Longform on texts without labels."""
    material = material_of(pipeline)
    # Texts of middle length: the teacher reads the longest ones in windows, which says less about agreement.
    held = sorted((text for _, text, _ in material.validation), key=len)
    first = max(0, len(held) // 2 - scale.heldout_texts // 2)
    result = distill(
        pipeline.work / "converted", material.encoder, [Document("", text, {}) for text in material.unlabelled],
        scale.heal, heldout=held[first : first + scale.heldout_texts], output=pipeline.work / "healed",
    )  # fmt: skip
    return {
        "before": result.before._asdict(), "after": result.after._asdict(), "steps": result.steps,
        "tokens": result.tokens, "rows": _rows(result.records),
    }  # fmt: skip


def _rows(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"event": row["event"], **{name: row[name] for name in KEPT if name in row}}
        for row in records if row["event"] in ("train", "evaluation", "agreement")
    ]  # fmt: skip


def choose_texts(pipeline: Pipeline, scale: Scale, healing: dict[str, Any]) -> dict[str, Any]:
    """How many training texts fit into the time, judging by how fast healing was: for the heads, and to fine-tune."""
    material = material_of(pipeline)
    pace, seconds = _seconds_a_token(healing["rows"]), scale.learning_minutes * 60
    heads, spent = _fitting(material, scale, pace * EMBEDDING_COST, seconds * HEADS_SHARE)
    texts, _ = _fitting(material, scale, pace * FINETUNING_COST, seconds - spent)
    return {
        "heads": heads, "texts": min(texts, heads), "of": len(material.train),
        "tokens_per_second_healing": 1 / pace if pace else None,
    }  # fmt: skip


def _fitting(material: Material, scale: Scale, seconds_a_token: float, seconds: float) -> tuple[int, float]:
    """How many training texts both models read in that time, and the time; never less than teaches every label."""
    spent, count = 0.0, 0
    labels: set[str] = set()
    for _, text, label in material.train:
        tokens = len(text) / CHARACTERS_A_TOKEN
        read = sum(min(tokens, length) for length in scale.lengths.values())
        enough = count >= 2 * scale.finetune.batch_size and labels == set(material.labels)
        if enough and spent + seconds_a_token * read > seconds:
            break
        spent += seconds_a_token * read
        labels.add(label)
        count += 1
    return count, spent


def _seconds_a_token(rows: Sequence[dict[str, Any]]) -> float:
    """Median over the intervals between two records of one process; a resumed one counts its seconds anew."""
    train = [row for row in rows if row["event"] == "train"]
    paces = [
        (after["seconds"] - before["seconds"]) / (after["tokens"] - before["tokens"])
        for before, after in pairwise(train)
        if after["seconds"] > before["seconds"] and after["tokens"] > before["tokens"]
    ]
    return sorted(paces)[len(paces) // 2] if paces else 0.0


def start(pipeline: Pipeline, scale: Scale, *, texts: int) -> dict[str, Any]:
    """Each model with a head fitted to its own embeddings of the first ``texts`` training texts."""
    material = material_of(pipeline)
    chosen = examples(material.train[:texts])
    fits = {}
    for name, source in (("longform", "healed"), ("original", "original-converted")):
        folder, target = pipeline.work / source, pipeline.work / f"start-{name}"
        vectors = embeddings(folder, chosen.texts, length=scale.lengths[name], pooling=scale.pooling)
        fitted = fit_head(vectors, chosen.labels, material.labels)
        model = AutoModelForSequenceClassification.from_pretrained(folder)
        model.get_submodule("classifier").load_state_dict(fitted.state)
        with quiet_transformers():
            model.save_pretrained(target)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        assert tokenizer is not None
        tokenizer.save_pretrained(target)
        fits[name] = {"accuracy_in_training": fitted.accuracy}
    return fits


def train(pipeline: Pipeline, scale: Scale, name: str, *, texts: int) -> dict[str, Any]:
    """Fine-tune "longform" or "original": the same texts, steps and rates; only the lengths differ."""
    material = material_of(pipeline)
    length = scale.lengths[name]
    settings: FinetuningSettings = replace(scale.finetune, max_length=length)
    result = finetune(
        pipeline.work / f"start-{name}", examples(material.train[:texts]), settings,
        validation=examples(material.validation), output=pipeline.work / name,
    )  # fmt: skip
    validation = {key: value for key, value in result.metrics.items() if isinstance(value, float | int)}
    return {
        "steps": result.steps, "texts": texts, "max_length": length, "truncated": result.truncated,
        "validation": validation, "rows": _rows(result.records),
    }  # fmt: skip


def score(pipeline: Pipeline, name: str) -> dict[str, Any]:
    """The scores of "longform" or "original" on the test texts."""
    return evaluate(pipeline.work / name, material_of(pipeline).test, name=name)


def measure(pipeline: Pipeline, scale: Scale) -> dict[str, Any]:
    """Time and memory against length."""
    encoder = material_of(pipeline).encoder
    return {"rows": measure_lengths(encoder, pipeline.work / "longform", scale.measured, scale.repetitions)}


def place_model(pipeline: Pipeline) -> None:
    """Put the fine-tuned Longform, and nothing else, into ``model``; whole or not at all."""
    with atomic_folder(pipeline.folder / "model") as unfinished:
        for pattern in MODEL_FILES:
            for file in (pipeline.work / "longform").glob(pattern):
                copy_anew(file, unfinished / file.name)


def material_of(pipeline: Pipeline) -> Material:
    """The texts that the first step chose."""
    return Material.load(pipeline.work / "texts.json")
