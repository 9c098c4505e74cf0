"""The program of docs/guides/ray.md: every text has its vector, and a second start goes on."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest

import longform

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "ray.md"


@pytest.mark.nightly  # starts a Ray
def test_the_program_embeds_and_goes_on(longform_folder: Path, tmp_path: Path) -> None:
    program = GUIDE.read_text().split("```python\n")[1].split("```")[0]
    program = program.replace('"minilm-16k"', repr(str(longform_folder)))
    rows = [{"id": f"doc {place}", "text": f"the {'near ' * (place % 9)}{place}"} for place in range(60)]
    lines = [json.dumps(row) + "\n" for row in rows]
    for count in (40, 60):  # the second start has more to do
        (tmp_path / "texts.jsonl").write_text("".join(lines[:count]))
        kept = program.replace(
            'CheckpointConfig("id", done)', 'CheckpointConfig("id", done, delete_checkpoint_on_success=False)'
        )
        subprocess.run([sys.executable, "-c", kept], cwd=tmp_path, check=True, timeout=300)
    found = pandas.read_parquet(tmp_path / "vectors").set_index("id")["embedding"]
    assert sorted(found.index) == sorted(row["id"] for row in rows)
    expected = longform.Encoder.from_pretrained(longform_folder).encode([row["text"] for row in rows])
    np.testing.assert_allclose(np.stack(found[[row["id"] for row in rows]]), expected, atol=1e-5)
