"""An encoder in the runtimes that people serve it with: exported to ONNX or OpenVINO, and called as its torch model is.

Axes: B texts, n tokens, D hidden size.
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from longform.errors import require

NAMES = ("input_ids", "attention_mask", "token_type_ids")
TRACED = (2, 16)  # B and n of the example that the graph is made from; both vary in it
Run = Callable[[dict[str, Any]], Any]


class Runtime:
    """``run`` (arrays by name -> last hidden state) with what an Encoder asks of its model."""

    def __init__(self, config: Any, run: Run) -> None:
        self.config, self.run, self.device = config, run, torch.device("cpu")

    def __call__(self, **inputs: Tensor) -> BaseModelOutput:
        """token ids (B, n) by name -> last_hidden_state (B, n, D)."""
        given = {name: inputs.get(name, torch.zeros_like(inputs["input_ids"])).numpy() for name in NAMES}
        hidden: Any = torch.from_numpy(self.run(given))
        return BaseModelOutput(last_hidden_state=hidden)


class _Traced(nn.Module):
    """A Hugging Face encoder with tensors in and a tensor out."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """(B, n) each -> (B, n, D)."""
        return self.model(input_ids, attention_mask, token_type_ids).last_hidden_state


def onnx_file(model: Any, path: Path) -> Path:
    """``model`` (float32, on the CPU) as an ONNX graph with a batch and a length that vary."""
    require("onnxscript", extra="onnx")
    example = tuple(torch.ones(TRACED, dtype=torch.long) for _ in NAMES)
    varying = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with _quiet():
        torch.onnx.export(
            _Traced(model).eval(), example, path, dynamo=True, dynamic_shapes=tuple(varying for _ in NAMES),
            input_names=list(NAMES), output_names=["last_hidden_state"], verbose=False, external_data=False,
        )  # fmt: skip
    return path


def int8_file(path: Path, made: Path) -> Path:
    """The ONNX graph with products in 8 bits, rounded at each call (dynamic quantisation)."""
    with _quiet():
        require("onnxruntime.quantization", extra="onnx").quantize_dynamic(path, made, per_channel=True)
    return made


def onnx_runtime(path: Path, config: Any, threads: int) -> Runtime:
    """The graph in ONNX Runtime."""
    package = require("onnxruntime", extra="onnx")
    options = package.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
    session = package.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    taken = {each.name for each in session.get_inputs()}
    return Runtime(config, lambda given: session.run(None, {name: given[name] for name in taken})[0])


def openvino_runtime(path: Path, config: Any, threads: int) -> Runtime:
    """The graph in OpenVINO, which chooses the precision: bfloat16 where the CPU multiplies it."""
    package = require("openvino", extra="openvino")
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    compiled = package.Core().compile_model(str(path), "CPU", settings)
    taken = {each.any_name for each in compiled.inputs}
    return Runtime(config, lambda given: compiled({name: given[name] for name in taken})[0])


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Without what converters log and print of their progress; errors are raised all the same."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
