"""Encoders of passages: one reads documents whole, its rival each passage alone; both begin at the original.

    python -m longform_lab.experiments.passages whole --data ../shared/data --output runs/passages
    python -m longform_lab.experiments.passages alone --data ../shared/data --output runs/passages
    python -m longform_lab.experiments.passages whole --data ../shared/data --output runs/long --begin runs/passages

``whole`` is the conversion that ``minilm-16k`` is made of, without its adapter. Both read the same passages of the same
documents in the same steps; the documents of a step are alike, so that a passage is told from those of its document's
neighbours. Interrupted, the same command goes on; ``runs/passages/whole/adapter`` is the result. The third line goes on
with that adapter, over fewer and longer documents; so does ``alone`` with its own.

Queries are made without a model: headings ask for their sections, parts of a text for the place that they are taken
from, questions about conversations for the turns that they are about. ``longform_lab.experiments.passage_scores`` tests
with what no training reads: meetings, articles from number 15,500 on, contracts behind the first 1,400.
"""

import argparse
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

import longform
from longform.conversion.local import local_source
from longform_lab.experiments.conversations import conversations
from longform_lab.experiments.rival import in_chunks, weighted_original
from longform_text.training.alignment.adapter import FOLDER
from longform_text.training.alignment.model import OpenedModel, SentenceModel, open_sentence_model
from longform_text.training.alignment.run import align_opened
from longform_text.training.alignment.settings import AlignmentSettings, AlignmentSource
from longform_text.training.alignment.sources import open_source
from longform_text.training.run import run_in

KINDS = ("alone", "whole")
PASSAGE = 128  # tokens
TEST = 15_500  # the first article that no training reads
CONTRACTS = 1_400  # that trainings read, of 1,614
SETTINGS = AlignmentSettings(
    max_length=512,
    passage_tokens=PASSAGE,
    same_document_negatives=0.5,
    similar_documents=True,
    max_steps=200,
    learning_rate=1e-3,
    lora_rank=8,
    documents_per_step=24,
    queries_per_document=4,
    heldout_documents=0,
    save_steps=10,
    bf16=False,
)
CHARACTERS = 2200 / 512  # of a conversation that are read, for each token of max_length
LONGER = replace(SETTINGS, max_length=2048, max_steps=40, learning_rate=5e-4, documents_per_step=8)


class Article(NamedTuple):
    """An article without its title and headings: ``sections`` are headings with characters from-to of the text."""

    title: str
    text: str
    sections: list[tuple[str, tuple[int, int]]]


def article(text: str) -> Article:
    """The parts of an article: a title, and paragraphs under headings, a line each; a heading ends with a full stop."""
    lines = [line for line in text.split("\n") if line.strip()]
    parts: list[tuple[str, list[str]]] = [("", [])]
    for place, line in enumerate(lines[1:], start=1):
        short = line.endswith(".") and len(line.split()) <= 6 and len(line) <= 60
        if short and place + 1 < len(lines) and len(lines[place + 1]) > 120:
            parts.append((line[:-1], []))
        else:
            parts[-1][1].append(line)
    sections, bodies, at = [], [], 0
    for heading, body in parts:
        if body:
            bodies.append("\n".join(body))
            sections.append((heading, (at, at + len(bodies[-1]))))
            at += len(bodies[-1]) + 1
    return Article(re.sub(r"\s*\(.*?\)", "", lines[0]), "\n".join(bodies), sections)


def articles(data: Path, first: int, last: int) -> Iterator[Article]:
    """Articles by their number that have three sections or more."""
    rows = pq.read_table(data / "wikipedia_long.parquet", columns=["text"]).slice(first, last - first)
    made = (article(text) for text in rows["text"].to_pylist())
    return (each for each in made if len(each.sections) >= 3)


def asked(each: Article) -> Iterator[dict[str, Any]]:
    """Queries for the sections of an article, with what is right."""
    for place, (heading, span) in enumerate(filter(lambda section: section[0], each.sections)):
        forms = (f"{each.title}: {heading.lower()}", f"{heading} of {each.title}", f"{each.title} {heading}")
        yield {"query": forms[place % 3], "document": each.text, "where": [span]}


def sources(data: Path, characters: int) -> list[AlignmentSource]:
    """Sections of articles (half of the steps), parts taken out of articles and contracts, conversations, papers.

    ``characters``: of a conversation, whose questions beyond them are left out.
    """
    headings = [row for each in articles(data, 4000, TEST) for row in asked(each)]
    posts = pq.read_table(data / "newsgroups_train.parquet").to_pylist()
    talks = [
        {"query": query, "document": one.text[:characters], "where": [(start, min(stop, characters))]}
        for made in conversations(posts).values()
        for one in made
        for query, (start, stop) in zip(one.questions, one.spans, strict=True)
        if start < min(stop, characters)
    ]
    return [
        AlignmentSource(pairs=headings, spans_field="where", weight=5),
        AlignmentSource(
            texts=str(data / "wikipedia_long.parquet"), make=["sentence", "passage"], first=4000, weight=1.5
        ),
        AlignmentSource(
            texts=str(data / "contracts_train.parquet"), make=["sentence", "passage"], first=CONTRACTS, weight=0.5
        ),
        AlignmentSource(pairs=talks, spans_field="where", weight=1.5),
        AlignmentSource(
            pairs=str(data / "scisummnet_train.parquet"),
            query_field="summary",
            document_field="paper_without_abstract",
            first=500,
        ),
    ]


def opened_whole(output: Path, device: Any) -> OpenedModel:
    """The conversion that the shipped adapter is for, without it."""
    converted = output / "converted"
    if not converted.is_dir():
        longform.convert(
            local_source("bundled"), projection="mean", max_length=16384, sublinear_tf=True
        ).save_pretrained(converted)
    return open_sentence_model(converted, device)


def opened_alone(output: Path, device: Any) -> OpenedModel:
    """The original, which reads every passage between special tokens of its own."""
    opened = open_sentence_model(weighted_original(output / "original"), device)
    reader = in_chunks(opened.trained.sides["plain"], opened.encoder, PASSAGE + 2)
    return OpenedModel(SentenceModel(opened.origin.sentences, reader), opened.before, *opened[2:])


def train(kind: str, data: Path, output: Path, begin: Path | None = None) -> Path:
    """The folder of the trained encoder of a ``kind``, "whole" or "alone"; it goes on with that below ``begin``."""
    settings = SETTINGS if begin is None else LONGER
    length = settings.max_length or 0
    chosen = sources(data, int(length * CHARACTERS))
    with run_in(output / kind, settings) as run:
        opened = (opened_whole if kind == "whole" else opened_alone)(output, run.arguments.device)
        pairs = [open_source(each, characters=4 * length, heldout=0, seed=settings.seed) for each in chosen]
        going_on = None if begin is None else begin / kind / FOLDER
        align_opened(opened, pairs, [each.weight for each in chosen], run, begin=going_on)
    return output / kind


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description="Train an encoder of passages.")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--data", type=Path, required=True, help="folder with the parquet files that sources() names")
    parser.add_argument("--output", type=Path, default=Path("runs/passages"))
    parser.add_argument("--begin", type=Path, help="an output of before, to go on with")
    given = parser.parse_args()
    print(train(given.kind, given.data, given.output, given.begin))


if __name__ == "__main__":
    main()
