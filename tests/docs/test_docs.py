"""What README and docs print, runs: Python blocks from the top of each document, and command lines as far as options.

A folder with the name of the hub model that they convert, and files with the names that they read, lie in the working
directory: a tiny random BERT and short texts. The tutorial has a file of its own, test_tutorial.py.
"""

import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from documents import DOCUMENTS, ROOT, blocks, name_of
from json_lines import write_lines
from tiny_models import make_sentence_transformer, save_bert

import longform
from longform.conversion.shipped import bundled_encoder_folder
from longform_lab.tables.table_definitions import TABLES
from longform_text.cli.arguments import parse
from longform_text.cli.main import command_module, main
from longform_text.data.bundled import speeches

LINKED = [*DOCUMENTS, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks/records/README.md"]
TUTORIAL = ROOT / "docs/tutorial.md"
SOURCE = "sentence-transformers/all-MiniLM-L6-v2"
LINK = re.compile(r"\]\((?!https?:)(?P<target>[^)#]*)(?:#(?P<anchor>[^)]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
LAUNCHER = re.compile(r"^torchrun .*?-m (?=longform )")
CODE = re.compile(r"```.*?```", re.DOTALL)


def command_lines() -> list[str]:
    code = "\n".join(code for document in DOCUMENTS for _, code in blocks(document, "sh"))
    lines = (LAUNCHER.sub("", line) for line in code.replace("\\\n", " ").splitlines())
    return [line for line in lines if line.startswith("longform ")]


def with_blocks(language: str) -> list[Path]:
    return [document for document in DOCUMENTS if document != TUTORIAL and blocks(document, language)]


def anchors(document: Path) -> set[str]:
    """Of its headings, as GitHub and mkdocs make them."""
    headings = HEADING.findall(CODE.sub("", document.read_text()))
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


@pytest.fixture
def _working_directory(tiny_tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = save_bert(tmp_path / SOURCE, tiny_tokenizer)
    pooling = {"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True}
    make_sentence_transformer(folder, pooling=pooling, normalise=True)
    labelled = [
        {"text": f"{kind} text {number} is long", "label": kind} for kind in ("good", "bad") for number in range(8)
    ]
    write_lines(Path("labelled.jsonl"), labelled)
    Path("documents").mkdir()
    Path("documents", "mill.txt").write_text("The old mill is sold to the museum.\n")


@pytest.mark.usefixtures("_working_directory")
@pytest.mark.parametrize("document", with_blocks("python"), ids=name_of)
def test_python_blocks_run(document: Path) -> None:
    shared: dict[str, Any] = {"__name__": "__main__"}
    for line, code in blocks(document, "python"):
        exec(compile("\n" * (line - 1) + code, str(document), "exec"), shared)


def test_the_readme_shows_python_on_its_first_screen() -> None:
    assert blocks(ROOT / "README.md", "python")[0][0] <= 40


def test_the_shape_that_the_readme_prints_of_the_stack_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = (code for _, code in blocks(ROOT / "README.md", "python") if "LinformerEncoder(" in code)
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out.strip()
    assert f"# {printed}\n" in code


@pytest.mark.parametrize("line", command_lines())
def test_printed_commands_have_the_options_that_they_use(line: str) -> None:
    _, command, *arguments = shlex.split(line)
    parse(command_module(command).parser(), arguments)


@pytest.mark.parametrize("document", LINKED, ids=name_of)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    broken = []
    for link in LINK.finditer(document.read_text()):
        target = document.parent / link["target"] if link["target"] else document
        if not target.exists() or (
            link["anchor"] and target.suffix == ".md" and not has_anchor(target, link["anchor"])
        ):
            broken.append(link[0])
    assert broken == []


def has_anchor(document: Path, anchor: str) -> bool:
    return anchor in anchors(document) or f"::: {anchor}\n" in document.read_text()


def test_every_table_is_shown_somewhere() -> None:
    shown = "".join(document.read_text() for document in DOCUMENTS)
    assert [name for name in TABLES if f"<!-- table:{name} -->" not in shown] == []


def test_the_list_of_records_names_every_file_and_none_besides() -> None:
    folder = ROOT / "benchmarks/records"
    listed = {
        name
        for line in (folder / "README.md").read_text().splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    files = {path.stem for path in folder.glob("*.jsonl")}
    assert files <= listed
    assert listed <= files | {str(table.records) for table in TABLES.values()}  # of a study that has none yet


def test_the_reference_has_every_public_name() -> None:
    named = re.findall(r"^::: ([\w.]+)$", (ROOT / "docs" / "reference.md").read_text(), re.MULTILINE)
    assert {f"longform.{name}" for name in longform.__all__} <= set(named)
    assert sorted(named) == sorted(set(named))
    for name in named:
        module, _, last = name.rpartition(".")
        assert hasattr(import_module(module), last) or find_spec(name) is not None, name


def test_shells_expand_nothing_that_is_printed() -> None:
    """zsh refuses a list that is not quoted, as a pattern that no file has."""
    lines = [line for document in DOCUMENTS for _, code in blocks(document, "sh") for line in code.splitlines()]
    bare = {line: re.sub(r"'[^']*'|\"[^\"]*\"| #.*", "", line) for line in lines}
    assert [line for line, rest in bare.items() if re.search(r"[][{}*?]", rest)] == []


def test_the_lab_begins_with_verdicts_whose_numbers_are_those_of_its_tables() -> None:
    text = (ROOT / "docs/lab/reproduction.md").read_text()
    begun, rest = text.split("\n\n`longform reproduce", 1)
    lines = [line.strip("| ").split(" | ") for line in begun.splitlines() if line.startswith("| ")]
    assert lines[0] == ["claim", "the paper", "here", "verdict", "with what"]
    assert len(lines) > 10
    others = ("lab/spectrum", "lab/theory", "lab/quality")
    measured = rest + "".join((ROOT / f"docs/{name}.md").read_text() for name in others)
    for claim, _, here, verdict, _ in lines[1:]:
        assert verdict.startswith(("holds", "does not", "cannot tell")), claim
        assert [number for number in re.findall(r"\d+\.\d+", here) if number not in measured] == [], claim


COMMAND_PAGES = [ROOT / "docs/command-line.md", *sorted((ROOT / "docs/guides").glob("*.md"))]
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
    short = ["--max-steps", "2"] if command in TRAININGS and "--num_train_epochs" not in words else []
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
        write_lines(folder / name, records)
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
@pytest.mark.parametrize("document", [each for each in COMMAND_PAGES if lines_of(each)], ids=name_of)
def test_commands_run(document: Path, material: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shutil.copytree(material, tmp_path / "work", copy_function=os.link))
    for line in lines_of(document):
        run(line)


GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "scale.md"
COMMANDS = re.findall(r"^torchrun .*", GUIDE.read_text(), re.MULTILINE)
SMALL = {
    "pretrain": "--length 32 --tokens-per-step 256 --tokenizer-vocab-size 60 --tokenizer-kind wordpiece "
    "--evaluations 0 --validation-tokens 200 --max-steps 2 --device cpu",
    "distill": "--max-steps 2 --heldout-documents 4 --evaluations 0 --device cpu",
    "finetune": "--max-steps 2 --device cpu",
}
WORDS = ["the", "a", "of", "and", "to", "in", "is", "it", "for", "long", "short", "text", "near", "far", "good", "bad"]


@pytest.mark.nightly
def test_the_commands_run(tiny_tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, each in processes of torchrun; the folders are ordinary ones."""
    monkeypatch.chdir(tmp_path)
    draw = random.Random(3)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(3, 90))) for _ in range(60)]
    Path("corpus.txt").write_text("\n\n".join(texts))
    rows = [{"text": text, "label": ("good", "bad")[number % 2]} for number, text in enumerate(texts)]
    for name in ("texts.jsonl", "labelled.jsonl"):
        write_lines(Path(name), rows)
    Path("original").mkdir()
    save_bert(Path("original"), tiny_tokenizer)
    longform.convert("original", max_length=64, projected_length=8, attention_window=8).save_pretrained("minilm-4096")
    for line in COMMANDS:
        _, *words = shlex.split(line)
        command = words[words.index("longform") + 1]
        if (Path("new") / "run.json").exists() and command == "pretrain":
            words += ["--restart"]
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        done = subprocess.run(
            [*launcher, *words, *shlex.split(SMALL[command])],
            capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert Path(words[words.index("--output") + 1], "model.safetensors").exists()
