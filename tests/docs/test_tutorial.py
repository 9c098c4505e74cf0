"""docs/tutorial.md from beginning to end, Python and commands in order, with a tiny encoder and made-up licences.

What it says is printed has the form of what is printed then, line by line; what can be counted without the encoder's
weights is counted on the texts and with the tokenizer that it names.
"""

import copy
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import make_sentence_transformer, save_bert
from transformers import AutoTokenizer

import longform_lab.licences as licence_parts
from longform.conversion import shipped
from longform_text.cli.main import main
from longform_text.data.text import Document

TUTORIAL = Path(__file__).parents[2] / "docs/tutorial.md"
BLOCK = re.compile(r"^```(python|sh|text|json)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"[-+]?\d[\d,.]*(?:e-?\d+)?")
COUNTS = re.compile(r"^(?:tokens|truncated) +([\d,]+)$", re.MULTILINE)
LENGTHS = ((0, 256), (256, 512))
WORDS = {"Copyleft Limited": "near", "Permissive": "far", "Proprietary Free": "bad"}


def licences(count: int) -> list[Document]:
    """Texts of 20 to 420 tokens that say their class again and again."""
    kinds = list(WORDS)
    return [
        Document(
            f"licence-{i}", f"{WORDS[kinds[i % 3]]} text is " * (6 + 135 * (i % 5 == 0)), {"category": kinds[i % 3]}
        )
        for i in range(count)
    ]


@pytest.fixture
def _small_material(tiny_tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tokenizer = copy.deepcopy(tiny_tokenizer)
    tokenizer.model_max_length = 512
    like_minilm = {"num_hidden_layers": 6, "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 512}
    folder = save_bert(tmp_path / "package", tokenizer, **like_minilm)
    weights = load_file(folder / "model.safetensors") | {"embeddings.position_ids": torch.arange(512)[None]}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    pooling = {"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True}
    make_sentence_transformer(folder, pooling=pooling, normalise=True)
    texts = licence_parts.LicenceTexts(
        train=licences(40), validation=[], test=licences(12), unlabelled=licences(20), labels=list(WORDS), groups=72,
        largest_group=1,
    )  # fmt: skip
    monkeypatch.setattr(shipped, "bundled_encoder_folder", lambda: folder)
    monkeypatch.setattr(licence_parts, "licence_texts", lambda: texts)


def form(printed: str) -> list[str]:
    """Lines with # for numbers, and for runs of them; frames of tables are as long as what they hold.

    Counts of what was cut stand in a summary only where there are some: in the tutorial, but not of these small texts.
    Whether so small a student is better after so short a healing depends on the machine's roundings, and with it which
    folder comes next.
    """
    printed = re.sub(r"^(next +longform finetune) \S+(.* embed) \S+", r"\1 STUDENT\2 STUDENT", printed, flags=re.M)
    shown = (line for line in printed.splitlines() if not line.startswith(("truncated", "worse")))
    lines = (NUMBER.sub("#", re.sub("[━─]+", "━", line)) for line in shown)
    # numpy leaves room for a sign before the first number of an array where any has one.
    return [re.sub(r"#( #)+", "#", " ".join(line.split())).replace("[ #", "[#") for line in lines]


def blocks() -> list[tuple[str, str]]:
    return BLOCK.findall(TUTORIAL.read_text())


@pytest.mark.usefixtures("_small_material")
def test_the_tutorial_runs_from_beginning_to_end_and_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    shared: dict[str, Any] = {"__name__": "__main__"}
    commands, compared = [], 0
    for language, code in blocks():
        if language == "python":
            exec(compile(code, str(TUTORIAL), "exec"), shared)
        elif language == "text":
            assert form(code) == form(capsys.readouterr().out)
            compared += 1
        elif language == "json":
            found = json.loads(Path("labels.jsonl").read_text().splitlines()[0])
            assert [list(found), list(found["scores"])] == [list(json.loads(code)), list(json.loads(code)["scores"])]
        else:
            for line in code.replace("\\\n", " ").splitlines():
                if line.startswith("longform "):
                    commands.append(line)
                    assert main(shlex.split(line)[1:]) == 0, line
    names = {line.split()[1] for line in commands}
    assert {"convert", "distill", "finetune", "predict", "evaluate"} <= names
    assert all(Path(name).exists() for name in ("minilm-4096", "healed", "classifier", "labels.jsonl"))
    assert compared >= 8


def test_what_it_counts_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files, texts of some lengths, tokens that are read and texts that are cut."""
    monkeypatch.chdir(tmp_path)
    said = [code for language, code in blocks() if language == "text"]
    exec(compile(blocks()[1][1], str(TUTORIAL), "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == said[0]
    tokenizer: Any = AutoTokenizer.from_pretrained("original")
    texts = [json.loads(line)["text"] for line in Path("test.jsonl").read_text().splitlines()]
    lengths = [len(tokenizer(text, verbose=False)["input_ids"]) for text in texts]
    for low, high in LENGTHS:
        counted = f"{sum(low < length <= high for length in lengths)} texts of {low} to {high} tokens: "
        assert sum(counted in block for block in said) == 2, counted  # before and after healing
    (most,) = (int(found) for found in re.findall(r"longform finetune [^`]*--max-length (\d+)", "".join(trainings())))
    read, cut = sum(min(length, most) for length in lengths), sum(length > most for length in lengths)
    (predicted,) = (block for block in said if "tokens per second" in block)
    assert COUNTS.findall(predicted) == [f"{read:,}", str(cut)]
    assert re.search(rf"│ first {most:,} tokens \(it takes 4,096\) │.*│ +{read:,} │ +{cut} │", "".join(said))
    longer = f"{cut} of the {len(texts)} texts are longer than the classifier reads, {most:,} tokens"
    assert longer in TUTORIAL.read_text()


def trainings() -> list[str]:
    return [code for language, code in blocks() if language == "sh" and code.startswith("longform finetune ")]
