"""Memory of embedding does not grow with the length of a text file."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_models import save_longform

LONG, SHORT = 200 * 2**20, 8 * 2**10  # characters
WORDS = "the near and far text is good or bad 12, it's long. "
CHILD = f"""
import io, json, resource, sys
from pathlib import Path
from longform_text.inference.run import InferenceSettings, embed

model, folder = sys.argv[1], Path(sys.argv[2])
words, long = {WORDS!r}, {LONG}

def write(name, size):
    with (folder / name).open("w") as file:
        for _ in range(size // 2**16):
            file.write((words * 2**11)[: 2**16])
        file.write((words * 2**11)[: size % 2**16])
    return folder / name

def peak(source, **options):
    summary = embed(model, source, folder / "out.jsonl", InferenceSettings(restart=True, **options))
    return {{"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, "truncated": summary.truncated,
            "unread": summary.unread_characters, "replaced": summary.replaced_characters}}

found = {{"short": peak(write("a.txt", {SHORT}))}}
found["text"] = peak(write("b.txt", long))
print(json.dumps(found))
"""


@pytest.mark.nightly
def test_200_megabytes_take_the_memory_of_8_kilobytes(tiny_tokenizer: Any, tmp_path: Path) -> None:
    model = save_longform(tmp_path / "model", tiny_tokenizer, max_position_embeddings=1024)
    settings = model / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"model_max_length": 1024}))
    command = [sys.executable, "-c", CHILD, str(model), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    short = found.pop("short")
    for name, one in found.items():
        assert one["peak"] < 1.2 * short["peak"], (name, one, short)
        assert (one["truncated"], one["replaced"]) == (1, 0)
        assert one["unread"] == pytest.approx(LONG, rel=0.01)
