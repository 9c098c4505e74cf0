"""A model prepared for a cell (device, dtype, packed or compiled), and one pass of it: forward, or a training step."""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from longform.functional.conditions import native_bfloat16
from longform.layers.linear import PackedLinear, pack_linear
from longform.models.inference import pack_weights, replace_linears
from longform.models.modeling_linformer import LinformerPreTrainedModel
from longform_lab.speed.competitor import FromEmbeddings
from longform_lab.speed.shapes import Cell
from longform_text.inference.loading import missing_compiler

LEARNING_RATE = 1e-5


def impossible(cell: Cell) -> str:
    """Why no competitor can run in this cell on this machine; "" where they can."""
    device = torch.device(cell.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        return "no CUDA device"
    if cell.dtype == "bfloat16" and not native_bfloat16(device):
        return "this machine does not multiply bfloat16 matrices"
    return missing_compiler(device) if cell.mode == "compiled" else ""


class Autocast(nn.Module):
    """float32 weights, matrix products in bfloat16."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden (B, n, D) in any dtype -> (B, n, D)."""
        with torch.autocast(hidden.device.type, dtype=torch.bfloat16):
            return self.model(hidden.float())


def prepare(model: nn.Module, cell: Cell, *, autocast: bool = False) -> nn.Module:
    """The model for a cell, on its device; the given one may be changed. ``autocast``: not by casting its weights."""
    model = model.to(cell.device)
    if cell.work == "inference" and cell.dtype == "bfloat16":
        model = Autocast(model) if autocast else model.to(torch.bfloat16)
    if cell.mode != "compiled":
        if cell.work == "inference" and not autocast:
            _pack(model)
        return model
    # Longform's own models are one graph, or a fault; other packages may break where they like.
    return torch.compile(model, dynamic=False, fullgraph=_is_linformer(model))  # ty: ignore[invalid-explicit-return]


def input_dtype(cell: Cell) -> torch.dtype:
    """Dtype of the hidden states that a prepared model takes."""
    return torch.bfloat16 if cell.dtype == "bfloat16" and cell.work == "inference" else torch.float32


def precision(cell: Cell) -> contextlib.AbstractContextManager[Any]:
    """Context that a pass runs in: autocast in bfloat16 training, none otherwise."""
    if cell.work == "train" and cell.dtype == "bfloat16":
        return torch.autocast(cell.device, dtype=torch.bfloat16)
    return contextlib.nullcontext()


def forward_of(prepared: nn.Module, cell: Cell) -> Callable[[Tensor], Tensor]:
    """Hidden states (B, n, D) in float32 -> the prepared model's output (B, n, D), without gradients."""

    @torch.no_grad()
    def forward(hidden: Tensor) -> Tensor:
        with precision(cell):
            return prepared(hidden.to(cell.device, input_dtype(cell))).cpu()

    return forward


def _pack(model: nn.Module) -> None:
    """Linear layers with packed weights: Longform chooses which; of other architectures all are packed."""
    if isinstance(model, FromEmbeddings) and _is_linformer(model):
        pack_weights(model.model)
    else:
        replace_linears(model, partial(pack_linear, kernel="onednn"))


def weight_bytes(model: nn.Module) -> int:
    """Bytes of parameters and buffers, packed ones too."""
    opaque = sum(part.weight_bytes for part in model.modules() if isinstance(part, PackedLinear))
    return opaque + sum(x.nbytes for x in (*model.parameters(), *model.buffers()))


def _is_linformer(model: nn.Module) -> bool:
    return isinstance(model, FromEmbeddings) and isinstance(model.model, LinformerPreTrainedModel)


def make_pass(prepared: nn.Module, cell: Cell) -> Callable[[Tensor], None]:
    """Pass that is timed: takes hidden states (B, n, D) of ``input_dtype``; waits for the device.

    Inference is a forward pass in inference mode; training is forward, backward and an AdamW step (fused).
    """
    if cell.work == "inference":
        prepared.eval()

        @torch.inference_mode()
        def inference(hidden: Tensor) -> None:
            prepared(hidden)
            wait(cell.device)

        return inference
    prepared.train()
    optimiser = torch.optim.AdamW(prepared.parameters(), lr=LEARNING_RATE, fused=True)

    def step(hidden: Tensor) -> None:
        with precision(cell):
            out = prepared(hidden)
        out.float().square().mean().backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        wait(cell.device)

    return step


def random_states(cell: Cell) -> Tensor:
    """Hidden states (B, n, D) on the cell's device, in the dtype that the model takes."""
    generator = torch.Generator().manual_seed(cell.length)
    shape = (cell.batch, cell.length, cell.shape.size.hidden)
    return torch.randn(shape, generator=generator).to(cell.device, input_dtype(cell))


def wait(device: str) -> None:
    """Until a GPU has finished."""
    if device != "cpu":
        torch.cuda.synchronize()
