"""The command lines of the guides run as they are printed, each guide from its top, in a folder with what it names.

The encoder is the real one, the texts are speeches, and trainings end after two steps. Left out: what serves, needs
other machines or processes (tests/serving, tests/ray, test_several_processes.py), and the laboratory.
"""

import json
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from documents import ROOT, blocks, name_of

from longform.cli.main import main
from longform.data.bundled import bundled_encoder_folder, speeches

DOCUMENTS = [ROOT / "docs/command-line.md", *sorted((ROOT / "docs/guides").glob("*.md"))]
ELSEWHERE = re.compile(r"longform (serve|benchmark|demo|reproduce) |.* (ray|roberta-base|healed -) ")
TRAININGS = ("distill", "align", "finetune", "pretrain")
MADE_BEFORE = (
    "convert original minilm-4096 --max-length 4096",
    "distill minilm-4096 original texts.jsonl --output healed --max-steps 1 --length 256 --heldout-documents 2",
    "finetune healed labelled.jsonl --output classifier --max-steps 1 --max-length 512",
)


def lines_of(document: Path) -> list[str]:
    code = "\n".join(code for _, code in blocks(document, "sh")).replace("\\\n", " ")
    return [line for line in code.splitlines() if line.startswith("longform ") and not ELSEWHERE.match(f"{line} ")]


def run(line: str) -> None:
    """Run it without what an earlier line left: a guide may show several ways to make one folder."""
    _, command, *words = shlex.split(line)
    if command in ("convert", *TRAININGS):
        output = words[1] if command == "convert" else words[words.index("--output") + 1]
        shutil.rmtree(output, ignore_errors=True)
    short = ["--max-steps", "2"] if command in TRAININGS and "--epochs" not in words else []
    assert main([command, *words, *short]) == 0, line


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files and models that the guides name."""
    folder = tmp_path_factory.mktemp("material")
    texts = [document.text[:800] for document in speeches()[::2]]
    labelled = [{"text": text, "label": ("early", "late")[place % 2]} for place, text in enumerate(texts)]
    pairs = [
        {"query": text[:300], "relevant": str(place), "doc": str(place), "id": str(place), "document": text[300:]}
        | {"text": text[300:], "sentence1": text[:300], "sentence2": text[300:], "score": place % 5}
        for place, text in enumerate(texts)
    ]
    files: dict[str, list[dict[str, Any]]] = {
        **dict.fromkeys(("texts.jsonl", "labelled.jsonl", "test.jsonl"), labelled),
        **dict.fromkeys(("pairs.jsonl", "queries.jsonl", "documents.jsonl"), pairs),
    }
    for name, records in files.items():
        (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    whole = [document.text for document in speeches()[::2]]  # a vocabulary of 16,384 needs as much
    pd.DataFrame({"text": whole}).to_parquet(folder / "wiki.parquet")
    (folder / "tickets.csv").write_text("subject,text,label\nroads,The road is closed,late\n")
    for name in ("documents", "folder-of-texts"):
        (folder / name).mkdir()
        for place, text in enumerate(texts[:6]):
            (folder / name / f"{place}.txt").write_text(text[:1000])
    shutil.copytree(bundled_encoder_folder(), folder / "original")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line in MADE_BEFORE:
            assert main(shlex.split(line)) == 0, line
    return folder


@pytest.mark.nightly
@pytest.mark.parametrize("document", [each for each in DOCUMENTS if lines_of(each)], ids=name_of)
def test_commands_run(document: Path, material: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shutil.copytree(material, tmp_path / "work", copy_function=os.link))
    for line in lines_of(document):
        run(line)
