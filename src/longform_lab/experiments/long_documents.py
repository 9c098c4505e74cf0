"""Classification of long documents by what people would do, and by Longform, with one head and one budget.

    python -m longform_lab.experiments.long_documents licences contracts --data FOLDER \\
        --output runs/long --splits 1 2 3 4 5

Contenders: "cut", the original on the first 512 tokens; "chunks of states" and "chunks of logits", the original over
chunks of 512 (``chunked_classifier.py``; a table takes the one that is better in validation); "words",
logistic regression on TF-IDF; "longform", converted, or a folder of an encoder (--longform, with a --label).
All but the words have the same head, which begins as a logistic regression on what it sees of the training texts, and
the same texts, steps and rates. Each (set, contender, split) appends a record to
benchmarks/records/long_documents.jsonl and is not run again; a fine-tuning that was killed goes on.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from longform.conversion.convert import convert
from longform.data.batching import Batch
from longform.data.bundled import bundled_encoder_folder
from longform.errors import require
from longform.evaluation.classification import classification_scores, label_ids
from longform.inference.classifiers import Classifier
from longform.inference.strategies import run_texts
from longform.inference.weights import quiet_transformers
from longform.training.finetuning import finetune
from longform.training.settings import FinetuningSettings
from longform.training.students import with_labels
from longform_lab.demo.head import fit_head
from longform_lab.experiments.chunked_classifier import AVERAGES, save_chunked
from longform_lab.experiments.labelled_sets import NAMES, SHORT, Split, draw, long_texts
from longform_lab.records import RECORDS, Record, append_record, read_records

CUT, WORDS, LONGFORM = "cut", "words", "longform"
CHUNKS = {f"chunks of {average}": average for average in AVERAGES}
CONTENDERS = (CUT, *CHUNKS, WORDS, LONGFORM)
STRENGTHS = (1.0, 10.0, 100.0)  # inverse regularisation of the words' regression; chosen in validation
MOST_FEATURES = 50_000


def start(contender: str, split: Split, options: argparse.Namespace, folder: Path) -> int:
    """Save the contender's classifier with a head fitted to the training texts; the tokens that it reads of a text."""
    source = options.original
    length = SHORT if contender == CUT else options.length
    if contender == LONGFORM:
        encoder = options.longform or convert(source, max_length=length)
    else:  # a window over the whole length is full attention: the original itself, with a head like the Longform's
        encoder = convert(source, max_length=SHORT, attention_window=SHORT // 2)
    places = dict(enumerate(split.names))
    torch.manual_seed(options.seed)
    student = with_labels(
        encoder, len(places), None, pooling=options.pooling, id2label=places,
        label2id={name: place for place, name in places.items()}, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, classifier_dropout=0.1,
    )  # fmt: skip
    tokenizer: Any = student.tokenizer
    with quiet_transformers():
        if contender in CHUNKS:
            tokenizer.model_max_length = length
            save_chunked(student.model, folder, average="states", max_length=length)  # ty: ignore[invalid-argument-type]
        else:
            student.model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        seen = seen_by_head(model, tokenizer, split.train.texts, length)
        model.get_submodule("classifier").load_state_dict(fit_head(seen, split.train.labels, split.names).state)
        if contender in CHUNKS:
            model.config.average = CHUNKS[contender]
        model.save_pretrained(folder)
    return length


def seen_by_head(model: Any, tokenizer: Any, texts: Sequence[str], length: int) -> np.ndarray:
    """What the head gets of each text: float32 (N, D)."""
    seen: list[torch.Tensor] = []

    def forward(batch: Batch) -> torch.Tensor:
        model(**batch.model_inputs(model.device))
        return seen.pop()

    with model.get_submodule("classifier.dense").register_forward_pre_hook(lambda _, given: seen.append(given[0])):
        return np.stack([each.values for each in run_texts(forward, texts, tokenizer, limit=length)])


def trained_logits(contender: str, split: Split, options: argparse.Namespace, folder: Path) -> tuple[np.ndarray, dict]:
    """Logits (N, L) on the test texts of a contender that is fine-tuned, and what its training was."""
    settings = FinetuningSettings(
        task="single-label", epochs=options.epochs, batch_size=8, learning_rate=options.learning_rate,
        head_learning_rate=3 * options.learning_rate, tokens_per_forward=options.tokens_per_forward,
        metric="accuracy", seed=options.seed, max_length=SHORT if contender == CUT else options.length,
    )  # fmt: skip
    began, ready = time.perf_counter(), folder / "start.done"
    if not ready.exists():
        start(contender, split, options, folder / "start")
        ready.touch()
    done = finetune(
        folder / "start", split.train, settings, validation=split.validation, output=folder / "tuned", progress=False
    )
    logits = Classifier.from_pretrained(folder / "tuned", dtype="auto").collect(split.test.texts).values
    places = [done.labels.index(name) for name in split.names]
    return logits[:, places], {"validation": done.metrics["accuracy"], "seconds": time.perf_counter() - began}


def words_logits(split: Split) -> tuple[np.ndarray, dict]:
    """Logits (N, L) on the test texts of a logistic regression on TF-IDF of words and pairs, whole texts."""
    texts: Any = require("sklearn.feature_extraction.text", extra="train")
    linear: Any = require("sklearn.linear_model", extra="train")
    began = time.perf_counter()
    vectorizer = texts.TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, max_features=MOST_FEATURES)
    train = vectorizer.fit_transform(split.train.texts)
    held, test = (vectorizer.transform(part.texts) for part in (split.validation, split.test))
    tried = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not converged: the best of those tried is taken all the same
        for strength in STRENGTHS:
            model = linear.LogisticRegression(C=strength, max_iter=500).fit(train, split.train.labels)
            tried.append((model.score(held, split.validation.labels), -strength, model))
    best, _, model = max(tried, key=lambda each: each[:2])
    logits = np.full((len(split.test.texts), len(split.names)), -np.inf, dtype=np.float32)
    logits[:, [split.names.index(name) for name in model.classes_]] = model.predict_log_proba(test)
    return logits, {"validation": float(best), "seconds": time.perf_counter() - began}


def scores(logits: np.ndarray, split: Split, tokenizer: Any) -> dict[str, Any]:
    """Accuracy and macro-F1 on the test texts, and the accuracy on those of more than 512 tokens."""
    truth = label_ids(split.test.labels, {name: place for place, name in enumerate(split.names)})
    found = classification_scores(logits, truth, split.names)
    long = np.array(long_texts(list(split.test.texts), tokenizer))
    right = logits.argmax(axis=1) == truth
    return {
        "accuracy": found.accuracy, "macro_f1": found.macro_f1, "long_texts": int(long.sum()),
        "long_accuracy": float(right[long].mean()) if long.any() else None,
    }  # fmt: skip


def settings_of(name: str, contender: str, split: int, options: argparse.Namespace) -> dict[str, Any]:
    """What tells one measurement from another."""
    own = {} if contender == WORDS else {
        "pooling": options.pooling, "epochs": options.epochs, "learning_rate": options.learning_rate,
        "max_length": SHORT if contender == CUT else options.length,
    }  # fmt: skip
    label = options.label if contender == LONGFORM else contender
    return {"data": name, "contender": label, "split": split, "most_texts": options.most_texts, **own}


def measure(name: str, contender: str, number: int, options: argparse.Namespace) -> None:
    """One cell, unless there is a record of it."""
    settings = settings_of(name, contender, number, options)
    if any(record.settings.items() >= settings.items() for record in read_records([options.records])):
        return
    tokenizer: Any = AutoTokenizer.from_pretrained(options.original)
    split = draw(name, options.data, number, tokenizer, most=options.most_texts)
    if contender == WORDS:
        logits, training = words_logits(split)
    else:
        place = options.output / f"{name}-{settings['contender']}-{number}".replace(" ", "-")
        options = argparse.Namespace(**vars(options), seed=number)
        logits, training = trained_logits(contender, split, options, place)
    sizes = {"train_documents": len(split.train.texts), "test_documents": len(split.test.texts)}
    metrics = {**scores(logits, split, tokenizer), **training}
    append_record(options.records, Record(name="long_documents", metrics=metrics, settings={**settings, **sizes}))
    print(settings, metrics, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what lacks a record, set by set and split by split."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="+", choices=NAMES)
    parser.add_argument("--data", type=Path, help="folder of the parquet files; licences need none")
    parser.add_argument("--output", type=Path, required=True, help="folder of the fine-tunings")
    parser.add_argument("--splits", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--original", default=None, help="folder or hub name; all-MiniLM-L6-v2 of its package")
    parser.add_argument("--longform", default=None, help="folder of an encoder; converted from the original")
    parser.add_argument("--label", default=LONGFORM, help="name of --longform in the records")
    parser.add_argument("--length", type=int, default=4096, help="tokens that all but the cut one read of a text")
    parser.add_argument("--pooling", default="lead", help="what every head sees")
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--learning-rate", type=float, default=3e-5, help="of the encoder; of the head three times it")
    parser.add_argument("--tokens-per-forward", type=int, default=4096)
    parser.add_argument("--most-texts", type=int, default=None, help="of each part, for a trial")
    parser.add_argument("--records", type=Path, default=RECORDS / "long_documents.jsonl")
    options = parser.parse_args(arguments)
    if options.data is None and set(options.sets) != {"licences"}:
        parser.error("these sets need --data FOLDER")
    options.original = options.original or str(bundled_encoder_folder())
    options.records.touch()
    for number in options.splits:
        for name in options.sets:
            for contender in options.contenders:
                measure(name, contender, number, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
