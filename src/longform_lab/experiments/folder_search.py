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
from longform_text.search.ranking import FUSION, Asked, Searched, bm25
from longform_text.search.words import asked_words

DEPTH, SHOWN = 10, 5  # places that count; documents that the command line shows
INDEX, ORIGINAL = "index", "all-MiniLM-L6-v2.npz"
ABOVE = (0.5, 1.0, 2.0, 4.0)  # weights of words in titles and headings
VECTORS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7)  # shares of the vectors' ranks
BEST_PASSAGE = (0.0, 0.25, 0.5, 0.75, 1.0)  # shares of the best passage in BM25; the rest is the document's
CONSTANTS = (10, FUSION)  # of reciprocal ranks
COVERED, FITS = (0.0, 0.125, 0.25, 0.5, 1.0), np.arange(0.1, 1.5, 0.01)


class Weights(NamedTuple):
    """Weights of a fusion: of vectors, of the best passage's BM25, of titles and headings, and the ranks' constant."""

    vectors: float = 0.5
    passage: float = 0.5
    title: float = 1.0
    headings: float = 1.0
    constant: int = FUSION


class Scores:
    """Ranks (Q, G) of the documents of an index for the questions; infinite where no word is found.

    ``near``: by the nearest passage, of each encoder; ``whole`` and ``best``: by BM25 of documents, and of their best
    passages, for each weight of titles and headings; ``shares`` of a question's words that a document has.
    """

    def __init__(self, output: Path, asked: Sequence[Question]) -> None:
        self.near, self.cosines = dict[str, np.ndarray](), dict[str, np.ndarray]()
        self.whole, self.best = dict[float, np.ndarray](), dict[float, np.ndarray]()
        with store.Store(output / INDEX).reading() as database:
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
            self.whole[weight] = _ranks(np.stack(of_documents), least=0)
            self.best[weight] = _ranks(self._best(np.stack(of_passages)), least=0)
        counted = [Asked.of(database, each) for each in words]
        self.shares = np.array([[each.share(database, at) for at in self.documents.tolist()] for each in counted])

    def _best(self, scores: np.ndarray) -> np.ndarray:
        """Scores (Q, G) of documents by their best passage, of scores (Q, N) of passages."""
        found = np.full((len(self.documents), len(scores)), -np.inf)
        np.maximum.at(found, self.groups, scores.T)
        return found.T

    def read(self, name: str, vectors: np.ndarray, asked: np.ndarray) -> None:
        """Keep how near passages (N, D) are to questions (Q, D)."""
        self.cosines[name] = self._best(asked @ vectors.T)
        self.near[name] = _ranks(self.cosines[name])

    def fused(self, name: str, weights: Weights) -> np.ndarray:
        """Scores (Q, G) by ranks of an encoder and of words."""
        vectors, passage, title, headings, constant = weights
        by_words = passage / (constant + self.best[headings]) + (1 - passage) / (constant + self.whole[title])
        return vectors / (constant + self.near[name]) + (1 - vectors) * by_words

    def found(self, name: str, weights: Weights) -> np.ndarray:
        """1 / place (Q,) of the right file among files by their best document, 0 below the tenth."""
        scores = np.zeros((len(self.files), len(self.right)))
        np.maximum.at(scores, self.of_file, self.fused(name, weights).T)
        places = np.where(self.right, _ranks(scores.T, least=0), np.inf).min(axis=1)
        return np.where(places <= DEPTH, 1 / places, 0.0)

    def fit(self, name: str, covered: float) -> np.ndarray:
        """The best fit (Q,) of the documents that are shown: nearness, and so much for the share of the words."""
        fits = self.cosines[name] + covered * self.shares
        shown = np.argsort(-self.fused(name, Weights()), axis=1, kind="stable")[:, :SHOWN]
        return np.take_along_axis(fits, shown, axis=1).max(axis=1)


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
        ("chosen", "longform"): [Weights(*each) for each in product(VECTORS, BEST_PASSAGE, ABOVE, ABOVE, CONSTANTS)],
        ("bm25", "longform"): [Weights(0.0, *each) for each in product(BEST_PASSAGE, ABOVE, ABOVE)],
        ("minilm", "minilm"): [Weights(1.0)],
        ("minilm_bm25", "minilm"): [Weights(share) for share in VECTORS],
    }
    for (name, encoder), grid in grids.items():
        found[name], weights = crossed({each: scores.found(encoder, each) for each in grid}, second)
        print(name, *map(tuple, weights), sep="  ")
    return found


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
    """Shares of all questions, with intervals and differences from ``longform search``, and of each group."""
    made = []
    kinds = {"first": 1.0, "among three": 1 / 3, "MRR@10": None}
    for kind, least in kinds.items():
        values = {name: own if least is None else (own >= least - 1e-9) * 1.0 for name, own in found.items()}
        metrics = dict[str, Any]()
        for name, own in values.items():
            metrics[name], metrics[f"{name}_low"], metrics[f"{name}_high"] = bootstrap(own)
            ahead = bootstrap(values["longform"] - own)
            metrics |= {
                f"ahead_of_{name}": ahead[0],
                f"ahead_of_{name}_low": ahead[1],
                f"ahead_of_{name}_high": ahead[2],
            }
        metrics["per_question"] = [own.tolist() for own in values.values()]
        made.append(
            Record(
                name="folder_search", settings={"group": f"all: {kind}", "count": len(asked), **about}, metrics=metrics
            )
        )
        if kind == "among three":
            by_group = {
                name: {each: float(own[of].mean()) for each, own in values.items()}
                for name, of in groups(asked).items()
            }
    for name, of in groups(asked).items():
        settings = {"group": name, "count": int(of.sum()), **about}
        made.append(Record(name="folder_search", settings=settings, metrics=by_group[name]))
    return made


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
        shown = {name: round(value, 3) for name, value in record.metrics.items() if isinstance(value, float)}
        print(record.settings["group"], shown)
    append_records(RECORDS / "folder_search.jsonl", [*made, fits])


if __name__ == "__main__":
    main()
