"""The quality bars on real data: zero-shot conversion, healing, pure Linformer, long retrieval.

    python -m longform_lab.experiments.quality heal --data FOLDER --output runs/heal

``FOLDER`` holds the measuring sets as parquet files (stsb_dev, wikipedia_long, qmsum_val_*, scisummnet_train). Each
command appends one record a model to benchmarks/records/ and prints it.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from transformers import AutoModel, AutoTokenizer

import longform
from longform.conversion.convert import ConversionResult
from longform.data.bundled import bundled_encoder_folder
from longform.evaluation.embeddings import agreement, similarity_spearman
from longform.evaluation.retrieval import retrieval_scores
from longform.inference.encoders import Encoder
from longform.training.distillation import distill
from longform.training.settings import DistillationSettings
from longform_lab.records import RECORDS, Record, append_record

HELD_OUT = 200  # the last Wikipedia articles are never trained on
SEARCHED_PAPERS = 200  # the first ones
TEXTS_AT_ONCE = 64  # short ones, in one pass


def keep(name: str, settings: dict[str, Any], metrics: dict[str, float]) -> None:
    """Append a record and print it."""
    append_record(RECORDS / f"{name}.jsonl", Record(name=name, metrics=metrics, settings=settings))
    print(name, settings, metrics, flush=True)


def articles(data: Path) -> list[str]:
    """Wikipedia articles of more than 512 words."""
    return pd.read_parquet(data / "wikipedia_long.parquet").text.tolist()


def meetings(data: Path) -> list[str]:
    """QMSum's training meetings, and as many Wikipedia articles: unlabelled text of the kind that is searched later."""
    long = pd.read_parquet(data / "qmsum_train_meetings.parquet").text.tolist()
    return [text for pair in zip(long, articles(data), strict=False) for text in pair]


def papers(data: Path) -> list[str]:
    """The scisummnet papers that retrieval does not use, and as many Wikipedia articles."""
    long = pd.read_parquet(data / "scisummnet_train.parquet").paper_without_abstract.tolist()[SEARCHED_PAPERS:]
    return [text for pair in zip(long, articles(data), strict=False) for text in pair]


def healing_texts(kind: str, data: Path) -> list[str]:
    """Unlabelled texts of a kind; never the ones that are measured on."""
    if kind == "articles":
        return articles(data)[:-HELD_OUT]
    return meetings(data) if kind == "meetings" else papers(data)


def encoder_of(model: Any, tokenizer: Any) -> Encoder:
    """A model in memory as mean-pooled, normalised embeddings."""
    return Encoder(model.eval(), tokenizer, tokenizer.model_max_length, pooling="mean", normalise=True)


def fidelity(student: Encoder, data: Path, documents: int) -> dict[str, float]:
    """Cosine to the teacher on held-out articles cut at 512 tokens, and STS-B dev Spearman of both."""
    teacher = Encoder.from_pretrained(bundled_encoder_folder())
    texts = articles(data)[-documents:]
    same = agreement(*(encoder.values(texts, strategy="cut", limit=512) for encoder in (student, teacher)))
    pairs = pd.read_parquet(data / "stsb_dev.parquet")
    first, second = pairs.sentence1.tolist(), pairs.sentence2.tolist()
    student_rho, teacher_rho = (
        similarity_spearman(encoder.encode(first), encoder.encode(second), pairs.score)
        for encoder in (student, teacher)
    )
    return {
        "cosine": same.mean,
        "lowest": same.lowest,
        "sts_spearman": student_rho,
        "sts_teacher": teacher_rho,
        "sts_ratio": student_rho / teacher_rho,
    }


def largest_difference(one: Encoder, other: Encoder, texts: Sequence[str]) -> float:
    """Largest absolute difference between the last hidden states of two encoders, over all tokens but padding."""
    largest = 0.0
    with torch.inference_mode():
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            some = list(texts[start : start + TEXTS_AT_ONCE])
            given = one.tokenizer(some, padding=True, truncation=True, max_length=one.limit, return_tensors="pt")
            first, second = (encoder.model(**given).last_hidden_state for encoder in (one, other))
            difference = (first - second).abs().amax(dim=2)
            largest = max(largest, difference[given["attention_mask"].bool()].max().item())
    return largest


def described(result: ConversionResult) -> dict[str, Any]:
    """Options that tell two conversions apart."""
    config = result.model.config
    return {
        "projection": config.projection,
        "sharing": config.projection_sharing,
        "window": config.attention_window,
        "projected_length": config.projected_length,
        "max_length": config.max_position_embeddings,
        "sinks": config.sink_tokens,
        "positions": result.report.positions,
        "memory_budget": config.memory_budget,
    }


def zero_shot(options: argparse.Namespace) -> None:
    """Weights copied, nothing trained; hidden states are compared on STS-B dev, whose texts fit into the window."""
    result = longform.convert(bundled_encoder_folder(), **eval_options(options.convert))
    teacher, student = Encoder.from_pretrained(bundled_encoder_folder()), encoder_of(result.model, result.tokenizer)
    pairs = pd.read_parquet(options.data / "stsb_dev.parquet")
    texts = sorted({*pairs.sentence1, *pairs.sentence2}, key=len)
    metrics = {
        **fidelity(student, options.data, options.documents),
        "largest_difference": largest_difference(teacher, student, texts),
    }
    keep("zero_shot", {**described(result), "documents": options.documents, "tokens": 512}, metrics)


def heal(options: argparse.Namespace) -> None:
    """Distillation on Wikipedia articles; the student is left in the output folder."""
    source = bundled_encoder_folder()
    result = longform.convert(source, **eval_options(options.convert))
    if options.student:
        result = ConversionResult(AutoModel.from_pretrained(options.student), result.tokenizer, result.report)
    settings = DistillationSettings(**eval_options(options.train))
    began = time.process_time()
    teacher, tokenizer = AutoModel.from_pretrained(source), AutoTokenizer.from_pretrained(source)
    texts = healing_texts(options.texts, options.data)
    plain = tokenizer if options.plain else None
    done = distill(result, teacher, texts, settings, tokenizer=plain, output=options.output)
    minutes = (time.process_time() - began) / 60 + options.spent_minutes
    metrics = fidelity(encoder_of(done.student, result.tokenizer), options.data, options.documents)
    described_run = {
        **described(result),
        "texts": options.texts,
        "tokens": done.tokens + options.spent_tokens,
        "learning_rate": settings.learning_rate,
        "parts": 2 if options.student else 1,
    }
    keep(options.name, described_run, {**metrics, "minutes": minutes})


def retrieval(options: argparse.Namespace) -> None:
    """nDCG@10 of the original cut at 512, chunk-and-average, and of a Longform on the whole text."""
    queries, documents, relevant = retrieval_set(options.set, options.data)
    original = Encoder.from_pretrained(bundled_encoder_folder(), max_length=512)
    runs = {"original, cut at 512": (original, "cut"), "original, chunks averaged": (original, "chunk-average")}
    if options.model:
        runs = {options.label: (Encoder.from_pretrained(options.model), "whole")} | (runs if options.baselines else {})
    for label, (encoder, strategy) in runs.items():
        began = time.process_time()
        scores = retrieval_scores(encoder.encode(queries), encoder.encode(documents, strategy=strategy), relevant)
        seconds = time.process_time() - began
        metrics = {"ndcg_at_10": 100 * scores.ndcg, "recall_at_10": 100 * scores.recall[10], "cpu_seconds": seconds}
        keep("retrieval", {"data": options.set, "model": label, "strategy": strategy}, metrics)


def sts(options: argparse.Namespace) -> None:
    """STS-B dev of the original and of other encoders, as their folders pool."""
    pairs = pd.read_parquet(options.data / "stsb_dev.parquet")
    for name in (bundled_encoder_folder(), *options.models):
        encoder = Encoder.from_pretrained(name)
        first, second = (encoder.encode(column.tolist()) for column in (pairs.sentence1, pairs.sentence2))
        label = "original" if name == bundled_encoder_folder() else Path(name).name
        keep("sts", {"model": label}, {"sts_spearman": 100 * similarity_spearman(first, second, pairs.score)})


def retrieval_set(name: str, data: Path) -> tuple[list[str], list[str], list[set[int]]]:
    """Queries, documents and the places of the right ones."""
    if name == "scisummnet":
        papers = pd.read_parquet(data / "scisummnet_train.parquet").head(SEARCHED_PAPERS)
        return papers.summary.tolist(), papers.paper_without_abstract.tolist(), [{i} for i in range(len(papers))]
    meetings = pd.read_parquet(data / "qmsum_val_meetings.parquet")
    queries = pd.read_parquet(data / "qmsum_val_queries.parquet")
    place = {identity: i for i, identity in enumerate(meetings.id)}
    return queries["query"].tolist(), meetings.text.tolist(), [{place[doc]} for doc in queries.doc]


def eval_options(pairs: Sequence[str]) -> dict[str, Any]:
    """["k=1", "name=mean"] -> {"k": 1, "name": "mean"}."""
    values = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        values[name] = None if text == "None" else _number(text)
    return values


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one measurement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = {"zero-shot": zero_shot, "heal": heal, "retrieval": retrieval, "sts": sts}
    parser.add_argument("command", choices=commands)
    parser.add_argument("--data", type=Path, required=True, help="folder of parquet files")
    parser.add_argument("--convert", nargs="*", default=[], help="options of longform.convert, name=value")
    parser.add_argument("--train", nargs="*", default=[], help="options of the training settings, name=value")
    parser.add_argument("--documents", type=int, default=HELD_OUT, help="held-out articles")
    parser.add_argument("--output", help="folder of the training run")
    parser.add_argument("--name", default="healing", choices=("healing", "pure"), help="name of the records")
    parser.add_argument("--texts", default="articles", choices=("articles", "meetings", "papers"), help="what heals")
    parser.add_argument("--student", help="folder of a student healed before, which learns on")
    parser.add_argument("--spent-minutes", type=float, default=0.0, help="CPU minutes that it has taken so far")
    parser.add_argument("--spent-tokens", type=int, default=0, help="tokens that it has been trained on so far")
    parser.add_argument("--plain", action="store_true", help="take the source's tokenizer as it is")
    parser.add_argument("--model", help="folder of a healed Longform")
    parser.add_argument("--models", nargs="*", default=[], help="of sts: folders, and names that Longform knows")
    parser.add_argument("--label", default="Longform, whole text")
    parser.add_argument("--baselines", action="store_true", help="measure the original too, beside --model")
    parser.add_argument("--set", default="qmsum", choices=("qmsum", "scisummnet"))
    options = parser.parse_args(arguments)
    commands[options.command](options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
