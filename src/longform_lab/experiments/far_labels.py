"""Labels of words that a far word decides: a converted encoder on whole texts, and the original in windows of 512.

    python -m longform_lab.experiments.far_labels wikipedia_long.parquet --reader longform --seed 0

Names in articles get a title before them. Near names are labelled by it, "captain" or "doctor". Far names are all
"comrade", and 600 to 1,800 tokens earlier "sailors" or "teachers" says, once or eight times, which label all of the
text's have. As many words without a title are asked for, which are "O". Both readers see the same texts, batches and
rates (``longform_text.training.trainer.Trainer``).
"""

import argparse
import random
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer

import longform
from longform.conversion.local import local_source
from longform_lab.experiments.rival import ChunkReader
from longform_lab.records import RECORDS, Record, append_record
from longform_text.evaluation.token_labels import token_scores
from longform_text.training.finetuning.settings import FinetuningSettings
from longform_text.training.finetuning.tokens import IGNORED, TokenTask
from longform_text.training.run import training_arguments
from longform_text.training.trainer import Shown, Trainer, show_alone

NAME, LENGTH, TIMES, NAMES = "far_labels", 2048, (1, 8), 12
NEAR, FAR = {"captain": "B-CAPTAIN", "doctor": "B-DOCTOR"}, {"sailors": "B-SAILOR", "teachers": "B-TEACHER"}
TITLE = "comrade"  # of far names
OWN = {*NEAR, *FAR, TITLE}
DECIDED, NAMED = range(100, 200), range(800, 1850)  # tokens where deciding words and names are
READERS = ("windows of 512", "longform")
TRAIN, TEST = 300, 80  # articles
SETTINGS: dict[str, Any] = {"learning_rate": 2e-4, "per_device_train_batch_size": 2}


def labelled(texts: Sequence[str], tokenizer: Any, draw: random.Random) -> Iterator[dict[str, Any]]:
    """Articles with titles and deciding words among their words, and a label a word; too short ones are left out."""
    for text in texts:
        words = [word for word in text.split() if word.lower().strip(".,;:()\"'") not in OWN][:LENGTH]
        tokens = map(len, tokenizer(words, add_special_tokens=False)["input_ids"])
        places = list(accumulate(tokens, initial=0))[:-1]
        names = [
            at
            for at, place in enumerate(places)
            if place in NAMED and words[at].isalpha() and words[at].istitle() and words[at - 1].isalpha()
        ]
        if len(names) >= 2 * NAMES:
            early = [at for at, place in enumerate(places) if place in DECIDED]
            yield with_titles(words[: bisect_left(places, NAMED.stop)], early, names, draw)


def with_titles(words: list[str], early: list[int], names: list[int], draw: random.Random) -> dict[str, Any]:
    """Some ``names`` with titles before them, and at ``early`` places the word that labels the far ones."""
    kind, times = draw.choice(list(FAR)), draw.choice(TIMES)
    before = dict.fromkeys(draw.sample(early, times), (kind, "O"))
    for number, at in enumerate(draw.sample(names, 2 * NAMES)):
        title = draw.choice(list(NEAR))
        before[at] = (title, NEAR[title]) if number % 2 else (TITLE, FAR[kind])
    made: list[tuple[str, str]] = []
    for at, word in enumerate(words):
        title, label = before.get(at, ("", "O"))
        made += [(title, "O"), (word, label)] if title else [(word, label)]
    return {"text": [word for word, _ in made], "label": [label for _, label in made], "times": times}


def few_outside(rows: Sequence[dict[str, Any]], draw: random.Random) -> None:
    """Leave as many words that are "O", the first label, as there are others: else hardly a label is a name's."""
    for row in rows:
        places = [at for at, label in enumerate(row["labels"]) if label == 0]
        for at in set(places).difference(draw.sample(places, 2 * NAMES)):
            row["labels"][at] = IGNORED


def model_of(reader: str, labels: int) -> Any:
    """The encoder with a new head for so many labels."""
    source = local_source("bundled")
    if reader == "longform":
        return longform.convert(source, max_length=LENGTH, task="token-classification", num_labels=labels).model
    model = AutoModelForTokenClassification.from_pretrained(source, num_labels=labels)
    model.bert = ChunkReader(model.bert)
    return model


def measure(texts: list[str], reader: str, seed: int, epochs: int) -> Record:
    """F1 of whole entities in the test part: near names, and far ones by how often the deciding word was said."""
    tokenizer: Any = AutoTokenizer.from_pretrained(local_source("bundled"))
    documents = labelled(texts, tokenizer, random.Random(seed))
    taught, held = ([next(documents) for _ in range(count)] for count in (TRAIN, TEST))
    torch.manual_seed(seed)
    chosen: dict[str, Any] = {**SETTINGS, "num_train_epochs": epochs, "seed": seed}
    settings = FinetuningSettings(**chosen, eval_strategy="no")
    fields = {"text_field": "text", "label_field": "label", "pair_field": None}
    task = TokenTask(taught, held, settings, fields)
    rows, others = task.parts(tokenizer, LENGTH)
    few_outside([*rows.rows, *others.rows], random.Random(seed))
    model = model_of(reader, len(task.labels))
    how: Any = {"tokens_per_forward": settings.tokens_per_forward, "data_collator": task.collator(tokenizer)}
    trainer = Trainer(model, training_arguments(settings, None, save_strategy="no"), train_dataset=rows.rows, **how)
    show_alone(trainer, Shown(reader, shown=False))
    began = time.process_time()
    trainer.train()
    seconds = time.process_time() - began
    found: Any = trainer.predict(others.rows)  # ty: ignore[invalid-argument-type]
    asked = found.label_ids != IGNORED
    said, true = (
        [[task.labels[at] for at in row[there]] for row, there in zip(each, asked, strict=True)]
        for each in (found.predictions.argmax(-1), found.label_ids)
    )

    def f1(kinds: dict[str, str], times: Sequence[int] = TIMES) -> float:
        chosen = [at for at, row in enumerate(held) if row["times"] in times]
        parts = [[[x if x in kinds.values() else "O" for x in each[at]] for at in chosen] for each in (said, true)]
        return round(token_scores(*parts)["f1"], 4)

    metrics = {"near": f1(NEAR), "far": f1(FAR), **{f"far, said {times}": f1(FAR, [times]) for times in TIMES}}
    chosen |= {"reader": reader, "train": TRAIN, "test": TEST, "length": LENGTH}
    return Record(
        name=NAME,
        metrics={**metrics, "cpu_seconds": round(seconds, 1)},
        settings={**chosen, "bf16": trainer.args.bf16, "threads": torch.get_num_threads()},
    )


def main() -> None:
    """Measure one reader with one seed."""
    parser = argparse.ArgumentParser(description="Token classification where the deciding word is far.")
    parser.add_argument("articles", type=Path, help='a Parquet file with a field "text"')
    parser.add_argument("--reader", choices=READERS, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=1)
    asked = parser.parse_args()
    texts = pq.read_table(asked.articles, columns=["text"])["text"].to_pylist()
    record = measure([text for text in texts if len(text) > 4 * LENGTH], asked.reader, asked.seed, asked.epochs)
    append_record(RECORDS / f"{NAME}.jsonl", record)
    print(asked.reader, asked.seed, asked.epochs, record.metrics)


if __name__ == "__main__":
    main()
