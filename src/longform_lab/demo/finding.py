"""The demo: find the speech that a passage was taken from, and the place where it stood.

Speeches are 10,000 tokens long, and most encoders read the first 512. Passages from behind these are taken out of some
speeches, and each is to find its own among all: by one vector a speech, and by the best of the vectors of its passages.
Beside the Longform stand the original cut where its positions end, the original in chunks, and BM25.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from longform.conversion.local import local_source
from longform.data.bundled import speeches
from longform.data.storage import atomic_folder, copy_anew
from longform.data.text import Document
from longform.runs.facts import environment
from longform.runs.files import write_lines
from longform.training.alignment.sources import made_pair
from longform_lab.demo.finding_report import TRAINING, gain, learned_gain, report_finding, shown_learned, shown_scores
from longform_lab.demo.learning import STACKS
from longform_lab.demo.pipeline import HEADINGS, Pipeline
from longform_lab.evaluation.comparison import Contender, RunSettings, contenders
from longform_lab.evaluation.retrieval_comparison import compare_retrieval

LONGFORM, ORIGINAL = "minilm-16k", "bundled"
DEPTH = 10  # of nDCG
EXAMPLES = 3  # queries shown in the report


class FindingScale(NamedTuple):
    """``speeches`` that are searched, ``queries`` of each, and the characters at a speech's beginning without any.

    ``chunk_tokens``: of a passage of a speech.
    """

    speeches: int
    queries: int
    beginning: int
    chunk_tokens: int


SCALES = {"full": FindingScale(16, 10, 3000, 256), "tiny": FindingScale(6, 1, 20, 24)}


class Asked(NamedTuple):
    """Passages that ask, and the documents without them; ``relevant``: the id of each passage's own document."""

    queries: list[str]
    relevant: list[str]
    documents: list[Document]


def run_finding(pipeline: Pipeline, chosen: FindingScale, seed: int, say: Callable[[str], None]) -> None:
    """The steps, a report, and the Longform in a folder."""
    folder = pipeline.folder
    asked = passages(speeches(), chosen, seed=seed)
    longform, original = local_source(LONGFORM), local_source(ORIGINAL)
    words = sum(len(document.text.split()) for document in asked.documents)
    facts = {"queries": len(asked.queries), "documents": len(asked.documents), "words": words}
    pipeline.step("prepare", lambda: facts)
    for number, (name, score) in enumerate((("speeches", "document"), ("passages", "best-chunk")), start=2):
        what = "one vector a speech" if score == "document" else "the best passage of each speech"
        say(f"\n[{number}/{HEADINGS}] Finding the speech of each of {facts['queries']} passages by {what}")
        rows = pipeline.step(
            name,
            lambda score=score: {
                "rows": compared(asked, longform, original, score=score, chunk_tokens=chosen.chunk_tokens)
            },
        )["rows"]
        say(f"{'':14}{shown_scores(rows)}")
    with atomic_folder(folder / "model") as unfinished:
        copy_anew(Path(longform), unfinished)
    made_on = environment()
    examples = [(asked.queries[at], asked.relevant[at]) for at in range(0, len(asked.queries), chosen.queries)]
    report_finding(folder, pipeline.results, examples[:EXAMPLES], made_on)
    results = pipeline.results
    rows = [{"record": "learned", "name": name, **results[name]} for name in STACKS]
    rows += [{"record": name, **row} for name in ("layer", "speeches", "passages") for row in results[name]["rows"]]
    write_lines(folder / "records.jsonl", [{"record": "run", **pipeline.identity, **made_on}, *rows])
    pipeline.step("finish", dict)


def passages(texts: list[Document], scale: FindingScale, *, seed: int) -> Asked:
    """Passages taken out of speeches that lie evenly over the years; none from a speech's beginning."""
    draw, asked = random.Random(seed), Asked([], [], [])
    for place in range(scale.speeches):
        document = texts[place * len(texts) // scale.speeches]
        head, rest = document.text[: scale.beginning], document.text[scale.beginning :]
        for _ in range(scale.queries):
            made = made_pair("passage", rest, None, draw)
            if made is not None:
                asked.queries.append(made.query)
                asked.relevant.append(document.id)
                rest = made.document
        asked.documents.append(document._replace(text=head + rest))
    return asked


def compared(asked: Asked, longform: str, original: str, *, score: str, chunk_tokens: int) -> list[dict[str, Any]]:
    """A record of each contender (``compare_retrieval``), the Longform's first."""
    models = contenders(longform=longform, original=original)
    if score == "document":  # shorter chunks say more here, and a rival is to be as good as it can be
        models[-1] = Contender(models[-1].name, original, "chunk-average", chunk_tokens)
    settings = RunSettings(dtype="auto", progress=True)
    return compare_retrieval(
        models,
        (asked.queries, asked.relevant),
        asked.documents,
        settings,
        depth=DEPTH,
        score=score,
        chunk_tokens=chunk_tokens,
        bm25=score == "document",
    )


def summary(results: dict[str, dict[str, Any]], folder: Path) -> str:
    """A summary for the terminal; the first line says what was gained or lost."""
    minutes = sum(result["seconds"] for result in results.values()) / 60
    facts = results["prepare"]
    lines = [
        f"Longform demo: {learned_gain(results)}",
        f"  find        {gain(results['speeches']['rows'])}",
        f"  training    {TRAINING}",
        f"  data        digits; {facts['queries']} passages, each taken out of one of {facts['documents']} speeches "
        f"({facts['words']:,} words); {minutes:.1f} minutes",
        f"  a layer     {shown_learned(results)}",
    ]
    for name, what in (("speeches", "one vector"), ("passages", "passages")):
        lines.append(f"  {what:<11} {shown_scores(results[name]['rows'])}")
    return "\n".join(
        [
            *lines,
            f"  model       {folder}/model",
            f"  report      {folder}/report.html  (records: {folder}/records.jsonl)",
            f"  next        longform serve {folder}/model --open  (a page that searches your own documents)",
        ]
    )
