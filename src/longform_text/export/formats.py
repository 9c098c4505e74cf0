"""Graphs as ONNX files: how a model is traced, written, and its weights rounded to 8 bits."""

import contextlib
import io
import logging
import warnings
from collections.abc import Generator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim
from transformers import PreTrainedModel

from longform import kernels
from longform.errors import require
from longform_text.inference.exported import FILES

PLAIN = {  # kernels that are torch's operations and no more
    "attention": "sdpa",
    "window": "formula",
}
LARGEST_BATCH = 2**16
TREES = r"`isinstance\(treespec, LeafSpec\)` is deprecated"  # torch warns of its own code
SHARED_AXES = "# The axis name: "  # and that the axes of all inputs are the same


class OneOutput(nn.Module):
    """A model that gives one of its outputs."""

    def __init__(self, model: nn.Module, output: str) -> None:
        super().__init__()
        self.model, self.output = model, output

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Tensors long (B, n) -> (B, n, D) or (B, L)."""
        return self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)[
            self.output
        ]


MOST_INSIDE = int(1.5 * 2**30)  # bytes of weights in an .onnx file, which protobuf allows 2 GB; more stand beside it


def write(model: PreTrainedModel, folder: Path, *, inputs: tuple[str, ...], output: str) -> Path:
    """Write the graph of ``model`` into ``folder`` under the name that others look for; returns the path.

    ``inputs``: names of arguments of ``OneOutput``, which they keep in the graph; ``output``: which of the model's
    outputs it gives. Raises MissingDependencyError.
    """
    require("onnx", extra="onnx")
    require("onnxscript", extra="onnx")
    path, longest = folder / Path(FILES["onnx"]).name, model.config.max_position_embeddings
    axes = {0: Dim("batch", min=1, max=LARGEST_BATCH), 1: Dim("length", min=1, max=longest)}
    shape = (2, max(2, longest - 1))
    given = {name: torch.full(shape, int(name == "attention_mask")) for name in inputs}
    with torch.no_grad(), kernels.use(**PLAIN), _quiet():
        made = torch.onnx.export(
            OneOutput(model, output).eval(),
            kwargs=given,
            dynamic_shapes=dict.fromkeys(given, axes),
            output_names=[output],
            dynamo=True,
            verbose=False,
            external_data=False,
        )
    assert made is not None
    for node in made.model.graph.all_nodes():
        node.metadata_props.clear()  # lines of our source, with their paths on this machine
    weights = made.model.graph.initializers.values()
    size = sum(weight.const_value.nbytes for weight in weights if weight.const_value is not None)
    beside = f"{path.name}_data" if size > MOST_INSIDE else None  # optimum's name for it
    require("onnx_ir", extra="onnx").save(made.model, path, external_data=beside)
    return path


def write_int8(path: Path) -> Path:
    """The graph of the float32 file ``path`` with weights of 8 bits, by ONNX Runtime's quantizer, beside it.

    Returns its path. Raises MissingDependencyError.
    """
    quantization = require("onnxruntime.quantization", extra="onnx")
    made = path.with_name(Path(FILES["onnx-int8"]).name)
    with _quiet():
        quantization.quantize_dynamic(
            path,
            made,
            per_channel=True,
            use_external_data_format=len(files_of(path)) > 1,
            nodes_to_exclude=_narrowing_products(path),
            weight_type=quantization.QuantType.QUInt8,  # sums of signed weights overflow on CPUs without VNNI
        )
    return made


def _narrowing_products(path: Path) -> list[str]:
    """The products by a matrix that has more rows than columns, by name: the second ones of feed-forward layers.

    One scale for all activations of a call does not fit those behind GELU: with these in 8 bits too, the lowest cosine
    of a converted MiniLM to float32 was 0.987, without them it is above 0.99; the file is 10 MiB larger, no slower.
    """
    graph = require("onnx", extra="onnx").load(path, load_external_data=False).graph
    narrowing = {each.name for each in graph.initializer if len(each.dims) == 2 and each.dims[0] > each.dims[1]}
    return [node.name for node in graph.node if node.op_type == "MatMul" and node.input[1] in narrowing]


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Without what the converters log and print of their own progress; their errors are raised all the same."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            for said in (TREES, SHARED_AXES):
                warnings.filterwarnings("ignore", message=said)
            yield
    finally:
        logging.disable(before)


def files_of(path: Path) -> list[Path]:
    """Files of a graph: its own, and of a large graph also the weights, whose file has the same beginning."""
    return sorted(path.parent.glob(f"{path.name}*"))
