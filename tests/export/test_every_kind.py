"""Every kind of model, in ONNX Runtime and OpenVINO: one graph for every length from 1 to the maximum."""

from pathlib import Path
from typing import Any

import pytest
import torch
from model_kinds import KINDS, LONGEST, model, text

from longform.export.formats import write
from longform.inference.exported import open_graph
from tolerances import assert_close


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_every_length_up_to_the_maximum(kind: str, tmp_path: Path) -> None:
    made: Any = model(kind)
    file = write(made, tmp_path, inputs=("input_ids", "attention_mask"), output="last_hidden_state")
    graphs = [open_graph(file, made.config, runtime) for runtime in ("onnx", "openvino")]
    for length in range(1, LONGEST + 1):
        for batch in (1, 3):
            given = text(batch, length)
            kept = given["attention_mask"].bool()
            expected = made(**given).last_hidden_state[kept]
            for graph in graphs:
                assert_close(graph(**given).last_hidden_state[kept], expected, scope="model")
