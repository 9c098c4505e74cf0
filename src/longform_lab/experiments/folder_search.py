"""Search of a folder of 600 mixed files in four languages, 120 questions whose file is known, beside other ways.

    python -m longform_lab.experiments.folder_search runs/folder-search --data FOLDER

``longform_lab.experiments.folder_files`` makes the folder. ``longform search`` makes its index; others are given the
passages of that: SQLite's BM25 alone, and all-MiniLM-L6-v2 over passages with their title and the headings above them,
alone and with BM25. Weights are chosen on every second question of a kind, and reported on the others, and the other
way round; so is the threshold below which nothing fits. Called again, the command reads what is not read yet.
"""

import argparse
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from longform.conversion.shipped import BUNDLED
from longform_lab.evaluation.comparison import bootstrap
from longform_lab.experiments.folder_files import REAL, Question, make_folder, questions
from longform_lab.records import RECORDS, Record, append_records
from longform_text.inference.encoders import Encoder
from longform_text.search import ranking, store
from longform_text.search.index import Index
from longform_text.search.ranking import Asked, Searched, bm25
from longform_text.search.words import asked_words

DEPTH, SHOWN = 10, 5  # places that count; documents that the command line shows
INDEX, ORIGINAL = "index", "all-MiniLM-L6-v2.npz"
ABOVE = (0.5, 1.0, 2.0, 4.0)  # weights of words in titles and headings
SHARES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)  # of words; the rest is the vectors'
BEST_PASSAGE = (0.0, 0.5, 1.0)  # shares of the best passage in BM25; the rest is the document's
COVERED, FITS = (0.0, 0.125, 0.25, 0.5, 1.0), np.arange(0.1, 1.5, 0.01)


class Weights(NamedTuple):
    """Shares of words in all and of the best passage in words, and weights of words in titles and headings."""

    words: float = ranking.WORDS
    passage: float = 0.0
    title: float = ranking.ABOVE
    headings: float = ranking.ABOVE


class Scores:
    """Scores (Q, G) of the documents of an index for the questions.

    ``near``: by the nearest passage, of each encoder; ``whole`` and ``best``: by BM25 of documents, and of their best
    passages, for each weight of titles and headings; ``shares`` of a question's words that a document has.
    """

    def __init__(self, output: Path, asked: Sequence[Question]) -> None:
        self.near = dict[str, np.ndarray]()
        self.whole, self.best = dict[float, np.ndarray](), dict[float, np.ndarray]()
        with store.reading(output / INDEX) as database:
            self.searched = Searched.of(database)
            self.documents, self.groups = np.unique(self.searched.documents, return_inverse=True)
            files = {number: Path(name).name for number, name in database.execute("SELECT id, file FROM documents")}
            self.files, self.of_file = np.unique([files[each] for each in self.documents.tolist()], return_inverse=True)
            query = """SELECT title, headings, text FROM passages JOIN documents ON documents.id = document
                ORDER BY passages.id"""
            self.passages = [" › ".join(filter(None, row)) for row in database.execute(query)]
            self._read_words(database, [asked_words(question.ask) for question in asked])
        self.right = np.array([[file == question.file for file in self.files] for question in asked])

    def _read_words(self, database: Any, words: list[list[str]]) -> None:
        """Rank by the words of each question."""
        for weight in ABOVE:
            of_documents = [bm25(database, "document_words", each, self.documents, above=weight) for each in words]
            ids = self.searched.passages
            of_passages = [bm25(database, "passage_words", each, ids, above=weight) for each in words]
            self.whole[weight], self.best[weight] = np.stack(of_documents), self._best(np.stack(of_passages))
        counted = [Asked.of(database, each) for each in words]
        self.shares = np.array([[each.share(database, at) for at in self.documents.tolist()] for each in counted])

    def _best(self, scores: np.ndarray) -> np.ndarray:
        """Scores (Q, G) of documents by their best passage, of scores (Q, N) of passages."""
        found = np.full((len(self.documents), len(scores)), -np.inf)
        np.maximum.at(found, self.groups, scores.T)
        return found.T

    def read(self, name: str, vectors: np.ndarray, asked: np.ndarray) -> None:
        """Keep how near passages (N, D) are to questions (Q, D)."""
        self.near[name] = self._best(asked @ vectors.T)

    def fused(self, name: str, weights: Weights) -> np.ndarray:
        """Scores (Q, G) by the nearness of an encoder and by words, each a share of the largest."""
        best, whole = _share_of_best(self.best[weights.headings]), _share_of_best(self.whole[weights.title])
        by_words = weights.passage * best + (1 - weights.passage) * whole
        return (1 - weights.words) * _share_of_best(self.near[name]) + weights.words * by_words

    def by_ranks(self, name: str) -> np.ndarray:
        """Scores (Q, G) by reciprocal ranks (Cormack, Clarke and Buettcher 2009), words twice with half the weight."""
        by_words = 1 / (60 + _ranks(self.best[1.0], least=0)) + 1 / (60 + _ranks(self.whole[1.0], least=0))
        return 1 / (60 + _ranks(self.near[name])) + by_words / 2

    def found(self, fused: np.ndarray) -> np.ndarray:
        """1 / place (Q,) of the right file among files by their best document's score (Q, G), 0 below the tenth."""
        scores = np.zeros((len(self.files), len(self.right)))
        np.maximum.at(scores, self.of_file, fused.T)
        places = np.where(self.right, _ranks(scores.T, least=0), np.inf).min(axis=1)
        return np.where(places <= DEPTH, 1 / places, 0.0)

    def fit(self, name: str, covered: float) -> np.ndarray:
        """The best fit (Q,) of the documents that are shown: nearness, and so much for the share of the words."""
        fits = self.near[name] + covered * self.shares
        shown = np.argsort(-self.fused(name, Weights()), axis=1, kind="stable")[:, :SHOWN]
        return np.take_along_axis(fits, shown, axis=1).max(axis=1)


def _share_of_best(scores: np.ndarray) -> np.ndarray:
    return scores / np.abs(scores).max(axis=1, keepdims=True).clip(min=1e-12)


def _ranks(scores: np.ndarray, least: float = -np.inf) -> np.ndarray:
    """Ranks (Q, G) from 1, infinite for scores that are not above the ``least``."""
    ranks = np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1) + 1.0
    return np.where(scores > least, ranks, np.inf)


def halves(asked: Sequence[Question]) -> np.ndarray:
    """Whether a question is of the second half (Q,): every second one of a language and place."""
    before = [[(each.language, each.place) for each in asked[:at]] for at in range(len(asked))]
    return np.array([kinds.count((own.language, own.place)) % 2 == 1 for kinds, own in zip(before, asked, strict=True)])


def crossed(tried: dict[Any, np.ndarray], second: np.ndarray) -> tuple[np.ndarray, list[Any]]:
    """Results (Q,) with what is best on the other half, and that for the first and the second half."""
    result, chosen = np.zeros(len(second)), []
    for half in (False, True):
        chosen.append(max(tried, key=lambda each: tried[each][second != half].mean()))
        result[second == half] = tried[chosen[-1]][second == half]
    return result, chosen


def by_search(index: Index, asked: Sequence[Question]) -> np.ndarray:
    """1 / place (Q,) of the right file among those that ``longform search`` finds."""
    places = []
    for question in asked:
        files = list(dict.fromkeys(Path(hit.file).name for hit in index.search(question.ask, 10 * DEPTH)))[:DEPTH]
        places.append(1 / (files.index(question.file) + 1) if question.file in files else 0.0)
    return np.array(places)


def contenders(scores: Scores, index: Index, asked: Sequence[Question]) -> dict[str, np.ndarray]:
    """1 / place (Q,) of the right file of each contender; the weights that were chosen are printed."""
    found, second = {"longform": by_search(index, asked)}, halves(asked)
    grids = {
        ("chosen", "longform"): [Weights(*each) for each in product(SHARES, BEST_PASSAGE, ABOVE, ABOVE)],
        ("bm25", "longform"): [Weights(1.0, *each) for each in product(BEST_PASSAGE, ABOVE, ABOVE)],
        ("minilm", "minilm"): [Weights(0.0)],
        ("minilm_bm25", "minilm"): [Weights(share) for share in SHARES],
    }
    for (name, encoder), grid in grids.items():
        found[name], weights = crossed({each: scores.found(scores.fused(encoder, each)) for each in grid}, second)
        print(name, *map(tuple, weights), sep="  ")
    return found | {"ranks": scores.found(scores.by_ranks("longform"))}


def fitting(scores: Scores, answered: np.ndarray, second: np.ndarray) -> dict[str, float]:
    """Shares of questions with an answer to which something fits, and of others to which nothing does."""
    shipped = (scores.fit("longform", ranking.COVERED) >= ranking.FITS) == answered
    weight = np.where(answered, 1 / answered.sum(), 1 / (~answered).sum()) * len(answered) / 2
    tried = {
        (covered, round(float(fits), 2)): ((own >= fits) == answered) * weight
        for covered in COVERED
        for own in [scores.fit("longform", covered)]
        for fits in FITS
    }
    chosen, thresholds = crossed(tried, second)
    print("thresholds", *thresholds, sep="  ")
    right = {"fits": shipped, "chosen_fits": chosen > 0}
    return {
        f"{name}_{kind}": float(own[of].mean())
        for name, own in right.items()
        for kind, of in (("answered", answered), ("unanswered", ~answered))
    }


def groups(asked: Sequence[Question]) -> dict[str, np.ndarray]:
    """Which questions (Q,) each group has: a language, or a place of an answer that was written for it."""
    kinds = [(each.language, each.place) for each in asked]
    names = dict.fromkeys([*(language for language, _ in kinds), *(place for _, place in kinds if place != REAL)])
    return {name: np.array([name in kind for kind in kinds]) for name in names}


def records(found: dict[str, np.ndarray], asked: Sequence[Question], about: dict[str, Any]) -> list[Record]:
    """Shares of all questions, with intervals and how much ``longform search`` is ahead, and of each group."""
    three = {name: (own >= 1 / 3 - 1e-9) * 1.0 for name, own in found.items()}
    shown = {"first": {name: (own == 1) * 1.0 for name, own in found.items()}, "among three": three, "MRR@10": found}
    made = list[tuple[str, int, dict[str, Any]]]()
    for kind, values in shown.items():
        metrics: dict[str, Any] = {name: float(own.mean()) for name, own in values.items()}
        metrics |= {f"{name}_interval": list(bootstrap(own)[1:]) for name, own in values.items()}
        metrics |= {f"ahead_of_{name}": list(bootstrap(values["longform"] - own)) for name, own in values.items()}
        metrics["per_question"] = [own.tolist() for own in values.values()]
        made.append((f"all: {kind}", len(asked), metrics))
    for name, of in groups(asked).items():
        made.append((name, int(of.sum()), {each: float(own[of].mean()) for each, own in three.items()}))
    return [
        Record(name="folder_search", settings={"group": group, "count": count, **about}, metrics=metrics)
        for group, count, metrics in made
    ]


def main() -> None:
    """Make the folder, let each contender read it, print the scores, and append records."""
    parser = argparse.ArgumentParser(description="Search of a folder of mixed files.")
    parser.add_argument("output", type=Path, help="folder for the files and what the contenders make of them")
    parser.add_argument("--data", type=Path, help="folder of the public sets; without, the folder has 500 files")
    given = parser.parse_args()
    files, every = make_folder(given.output / "files", given.data), questions()
    index = Index(given.output / INDEX, "minilm-16k").add(given.output / "files", progress=True)
    scores, texts = Scores(given.output, every), [question.ask for question in every]
    if not (given.output / ORIGINAL).exists():
        original = Encoder.from_pretrained(BUNDLED)
        vectors, asked = original.encode_document(scores.passages), original.encode_query(texts)
        np.savez(given.output / ORIGINAL, vectors=vectors, asked=asked)
    scores.read("longform", scores.searched.vectors, index.encoder.encode_query(texts))
    scores.read("minilm", **np.load(given.output / ORIGINAL))
    answered = np.array([bool(question.file) for question in every])
    about = {"files": files, "passages": len(scores.passages)}
    found = contenders(scores, index, every)
    made = records({name: own[answered] for name, own in found.items()}, [each for each in every if each.file], about)
    fits = Record(
        name="folder_search", settings={"group": "fits", **about}, metrics=fitting(scores, answered, halves(every))
    )
    for record in (*made, fits):
        shown = {name: value for name, value in record.metrics.items() if name != "per_question"}
        print(record.settings["group"], shown)
    append_records(RECORDS / "folder_search.jsonl", [*made, fits])


if __name__ == "__main__":
    main()
