"""The demo's second act: long speeches in a folder, and questions to them, as ``longform search`` answers them.

Nothing is measured here: docs/lab/quality.md has how well passages are found, beside what others find.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import longform
from longform.choices import INDEX_FOLDER
from longform.files import atomic_folder
from longform_lab.demo.pipeline import DOCUMENTS, HEADINGS, Pipeline
from longform_text.data.bundled import speeches

ENCODER = "minilm-16k"
QUESTIONS = (
    "Who is to dig a canal between the two oceans?",
    "What happened to the Indian tribes?",
    "How are veterans of the war to be paid?",
)
SHOWN = 150  # characters of an answer on the terminal


class SearchScale(NamedTuple):
    """``speeches`` in the folder, which lie evenly over the years, and the tokens of a passage."""

    speeches: int
    chunk_tokens: int


SCALES = {"full": SearchScale(8, 256), "tiny": SearchScale(2, 24)}  # 256: what longform search takes


def run_searching(pipeline: Pipeline, scale: SearchScale, say: Callable[[str], None]) -> None:
    """Write the speeches as files, index them, ask: the answers are a step of the ``pipeline``."""
    folder = pipeline.folder / DOCUMENTS
    say(f"\n[2/{HEADINGS}] Searching {scale.speeches} speeches: longform search {folder} QUESTION")
    found = pipeline.step("answers", lambda: answered(folder, scale))
    for row in found["rows"]:
        say(f"{'':14}{row['question']}\n{'':16}{row['document']}, {row['place']}: {shortened(row['passage'])}")


def answered(folder: Path, scale: SearchScale) -> dict[str, Any]:
    """The best passage for each question, with its document and place, and how much was read."""
    if not folder.is_dir():
        every = speeches()
        with atomic_folder(folder) as unfinished:
            for at in range(scale.speeches):
                speech = every[(2 * at + 1) * len(every) // (2 * scale.speeches)]
                (unfinished / f"{speech.id}.txt").write_text(speech.text, encoding="utf-8")
    index = longform.Index(folder / INDEX_FOLDER, ENCODER, chunk_tokens=scale.chunk_tokens).add(folder, progress=True)
    rows = []
    for question in QUESTIONS:
        (hit,) = index.search(question, k=1)
        rows.append({"question": question, "document": hit.document, "place": hit.place, "passage": hit.passage})
    return {"rows": rows, "documents": len(index.files), "passages": len(index)}


def shortened(passage: str) -> str:
    """The beginning of a passage, on one line."""
    line = " ".join(passage.split())
    return line if len(line) <= SHOWN else f"{line[:SHOWN]} ..."
