"""One pass of a prepared model: a forward pass, or a training step."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from longform.studies.speed.precision import input_dtype, precision
from longform.studies.speed.shapes import Cell

LEARNING_RATE = 1e-5


def make_pass(prepared: nn.Module, cell: Cell) -> Callable[[Tensor], None]:
    """What is timed: takes hidden states (B, n, D) of ``input_dtype``; waits for the device.

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


def random_states(cell: Cell, *, length: int | None = None) -> Tensor:
    """Hidden states (B, n, D) on the cell's device, in the dtype that the model takes."""
    generator = torch.Generator().manual_seed(cell.length)
    shape = (cell.batch, length or cell.length, cell.shape.size.hidden)
    return torch.randn(shape, generator=generator).to(cell.device, input_dtype(cell))


def wait(device: str) -> None:
    """Until a GPU has finished."""
    if device != "cpu":
        torch.cuda.synchronize()
