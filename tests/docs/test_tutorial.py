"""docs/tutorial.md from beginning to end, Python and commands in order, with a tiny encoder and made-up licences."""

import copy
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from tiny_models import make_sentence_transformer, save_bert

from longform.cli.main import main
from longform.data import bundled
from longform.data.text import Document

TUTORIAL = Path(__file__).parents[2] / "docs/tutorial.md"
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
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
    folder = save_bert(tmp_path / "package", tokenizer, max_position_embeddings=512)
    pooling = {"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True}
    make_sentence_transformer(folder, pooling=pooling, normalise=True)
    texts = bundled.LicenceTexts(
        train=licences(40), validation=[], test=licences(12), unlabelled=licences(20), labels=list(WORDS), groups=72,
        largest_group=1,
    )  # fmt: skip
    monkeypatch.setattr(bundled, "bundled_encoder_folder", lambda: folder)
    monkeypatch.setattr(bundled, "licence_texts", lambda: texts)


@pytest.mark.usefixtures("_small_material")
def test_the_tutorial_runs_from_beginning_to_end() -> None:
    shared: dict[str, Any] = {"__name__": "__main__"}
    commands = []
    for language, code in BLOCK.findall(TUTORIAL.read_text()):
        if language == "python":
            exec(compile(code, str(TUTORIAL), "exec"), shared)
            continue
        for line in code.replace("\\\n", " ").splitlines():
            if line.startswith("longform "):
                commands.append(line)
                assert main(shlex.split(line)[1:]) == 0, line
    names = {line.split()[1] for line in commands}
    assert {"convert", "distill", "finetune", "predict", "evaluate"} <= names
    assert all(Path(name).exists() for name in ("minilm-4096", "healed", "classifier", "labels.jsonl"))
