"""Every example runs, says what it promises, and stays short."""

import re
import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
PROMISES = {
    "images.py": r"pixels: 0\.9\d+\nfull attention: 0\.\d+\ndefault: 0\.\d+\nby place: 0\.\d+\npatches, .*: 0\.\d+",
    "signals.py": r"full attention: .*\ndefault: .*\nby place: .*",
    "byte_language_model.py": r"bits a byte\nfull .* bits a byte\na window .* bits a byte\nThe people ",
    "attention_layer_in_your_network.py": (
        r"accuracy on new signals: (0\.[89]\d|1\.00)\nweights over slots: \(1, 4, 256, 32\)"
    ),
    "classify_long_documents.py": (
        r"accuracy on whole documents: (0\.9\d|1\.00)\naccuracy on their first 128 words: 0\.[2-5]\d"
    ),
    "convert_and_embed.py": r"4096 tokens, .*\n[\s\S]* 2417 tokens: [\s\S]*a text inside the window: 1\.0000",
    "passages_in_langchain.py": r"retriever: council.txt .*the museum\.\nvector store: river.txt .*until May\.",
    "passages_in_qdrant.py": r"council.txt, .*the museum\.\nriver.txt, .*until May\.\ncouncil.txt, ",
    "pretrain_tiny.py": r"parameters, saved in model\n.* river runs to the \[MASK\] -> sea .*\n.* in winter -> snow",
}
LONGEST = 80  # lines
SLOW = {"classify_long_documents.py", "images.py", "signals.py", "byte_language_model.py"}


def test_every_example_is_here():
    assert {path.name for path in FOLDER.glob("*.py")} == set(PROMISES)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.nightly if name in SLOW else ()) for name in PROMISES],
)  # it takes half a minute, and the tutorial runs the same functions
def test_it_runs_and_is_short(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *(["model"] if name == "pretrain_tiny.py" else [])])
    runpy.run_path(str(FOLDER / name), run_name="__main__")
    printed = capsys.readouterr().out
    assert re.search(PROMISES[name], printed), printed
    assert len((FOLDER / name).read_text().splitlines()) < LONGEST
