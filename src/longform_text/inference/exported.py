"""Exported graphs in the place of a model: ONNX Runtime or OpenVINO runs the file that ``longform export`` wrote.

Files have the names that other programs look for: text-embeddings-inference, sentence-transformers, Transformers.js.

Axes: B texts in a batch, n tokens.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification
from transformers.modeling_outputs import BaseModelOutput, SequenceClassifierOutput
from transformers.utils import cached_file

from longform.choices import BACKENDS
from longform.errors import CheckpointError, ConfigurationError, require
from longform.pretrained.weights import load_tokenizer, read_config

FILES = {  # of each backend of ONNX Runtime, inside the folder; "openvino" and "openvino-int8" read the same
    "onnx": "onnx/model.onnx",
    "onnx-int8": "onnx/model_quantized.onnx",
}
HIDDEN, LOGITS = "last_hidden_state", "logits"  # names of outputs
OUTPUTS: dict[str, type] = {HIDDEN: BaseModelOutput, LOGITS: SequenceClassifierOutput}
Infer = Callable[[dict[str, np.ndarray]], np.ndarray]


class ExportedModel:
    """A graph that is called as a Hugging Face model is, on a CPU in float32.

    ``infer`` gives its one output, ``output``, for arrays int64 (B, n) of the names in ``inputs``.
    """

    device = torch.device("cpu")

    def __init__(self, config: Any, infer: Infer, *, inputs: tuple[str, ...], output: str) -> None:
        self.config, self.infer, self.inputs, self.output = config, infer, inputs, output
        self.name_or_path = config.name_or_path

    def __call__(self, **given: Tensor) -> Any:
        """Its output for tensors long (B, n), by name: what it does not read is left out, missing types are 0."""
        ids = given["input_ids"].numpy()
        found = self.infer({name: given[name].numpy() if name in given else np.zeros_like(ids) for name in self.inputs})
        return OUTPUTS[self.output](**{self.output: torch.from_numpy(found)})


def load_exported(
    auto_class: Any,
    source: str | Path,
    *,
    backend: str,
    dtype: str = "float32",
    device: str = "auto",
    compile: bool = False,
) -> tuple[ExportedModel, Any]:
    """The exported graph of a folder or hub name as a model, and its tokenizer; torch's number of threads runs it.

    ``auto_class``: what is wanted of it, hidden states or a classifier's logits. The other options are those of
    ``load_pretrained``, as far as a graph has the choice. Raises ConfigurationError for another dtype or device,
    CheckpointError where there is no such export or it gives something else, MissingDependencyError.
    """
    _check_options(backend, dtype=dtype, device=device, compile=compile)
    runtime, _, quantized = backend.partition("-")
    file = FILES[backend.replace("openvino", "onnx")]
    path = cached_file(str(source), file, _raise_exceptions_for_missing_entries=False)
    if path is None:
        raise CheckpointError(
            f'"{source}" has no {file}: make it with longform export {source}{" --int8" if quantized else ""}'
        )
    config = read_config(source)
    tokenizer = load_tokenizer(source, config)
    config.name_or_path = str(source)
    model = open_graph(path, config, runtime)
    labels = (AutoModelForSequenceClassification, AutoModelForTokenClassification)
    wanted = LOGITS if auto_class in labels else HIDDEN
    if model.output != wanted:
        raise CheckpointError(
            f'"{path}" gives {model.output}, and {wanted} is needed: longform predict runs a classifier, longform '
            "embed an encoder"
        )
    return model, tokenizer


def open_graph(path: str | Path, config: Any, runtime: str = "onnx") -> ExportedModel:
    """The graph of a file, run by ONNX Runtime ("onnx") or "openvino"; raises CheckpointError where it is damaged."""
    threads = torch.get_num_threads()
    if runtime == "onnx":
        infer, inputs, outputs = _open_onnx(str(path), threads)
    else:
        infer, inputs, outputs = _open_openvino(str(path), threads)
    known = [name for name in outputs if name in OUTPUTS]
    if not known:
        raise CheckpointError(f'"{path}" gives {", ".join(outputs)}, and neither {" nor ".join(OUTPUTS)}: export again')
    return ExportedModel(config, infer, inputs=inputs, output=known[0])


def _open_onnx(path: str, threads: int) -> tuple[Infer, tuple[str, ...], tuple[str, ...]]:
    runtime = require("onnxruntime", extra="onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    try:
        session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the errors of its native part have no base of their own
        raise _unreadable(path, error) from error
    names: list[tuple[str, ...]] = [
        tuple(port.name for port in ports) for ports in (session.get_inputs(), session.get_outputs())
    ]

    def infer(given: dict[str, np.ndarray]) -> np.ndarray:
        return session.run(names[1][:1], given)[0]

    return infer, names[0], names[1]


def _open_openvino(path: str, threads: int) -> tuple[Infer, tuple[str, ...], tuple[str, ...]]:
    openvino = require("openvino", extra="openvino")
    hints: dict[str, Any] = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",  # else products are in bfloat16 where the CPU multiplies it
    }
    try:
        compiled = openvino.Core().compile_model(path, "CPU", hints)
    except RuntimeError as error:
        raise _unreadable(path, error) from error

    requests = threading.local()  # a request is the memory of its results, so each thread has its own

    def infer(given: dict[str, np.ndarray]) -> np.ndarray:
        if not hasattr(requests, "own"):
            requests.own = compiled.create_infer_request()
        return requests.own.infer(given, share_inputs=True)[0].copy()  # the next call writes into the same memory

    inputs, outputs = (tuple(port.any_name for port in ports) for ports in (compiled.inputs, compiled.outputs))
    return infer, inputs, outputs


def _unreadable(path: str, error: Exception) -> CheckpointError:
    said = (str(error).strip().splitlines() or [type(error).__name__])[-1]
    return CheckpointError(f'"{path}" cannot be opened ({said}): make it again with longform export --restart')


def _check_options(backend: str, *, dtype: str, device: str, compile: bool) -> None:
    if backend not in BACKENDS:
        raise ConfigurationError(f'backend is "{backend}"; it is one of {", ".join(BACKENDS)}')
    wrong = {"dtype": dtype not in ("float32", "auto"), "device": device not in ("cpu", "auto"), "compile": compile}
    given = {"dtype": dtype, "device": device, "compile": compile}
    if bad := [f"{name}={given[name]}" for name, is_bad in wrong.items() if is_bad]:
        raise ConfigurationError(
            f'backend "{backend}" runs a graph in float32 on the CPU, not with {", ".join(bad)}: leave that out, or '
            'the backend ("torch")'
        )
