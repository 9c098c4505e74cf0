"""The check of an exported graph: it gives what the model gives, at the lengths where a graph would go wrong first.

Axes: B batch, n tokens.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from longform.errors import CheckpointError
from longform.inference.exported import HIDDEN, ExportedModel
from longform.models.configuration_linformer import LinformerConfig

BATCHES = (1, 3)
TOLERANCE = 1e-4  # the largest difference of a hidden state or logit, float32


class Checked(NamedTuple):
    """``length`` n, ``batch`` B, and the largest ``difference`` between the graph's output and the model's."""

    length: int
    batch: int
    difference: float


def critical_lengths(config: LinformerConfig) -> list[int]:
    """Lengths around which something changes: the ends, the window, the slots of any head."""
    longest, window = config.max_position_embeddings, config.attention_window
    slots = {k for layer in config.head_slots() for k in layer}
    found = {1, 2, longest - 1, longest} | {k + step for k in slots for step in (-1, 0, 1)}
    if window is not None:
        found |= {window - 1, window, 2 * window, 2 * window + 1}
    return sorted(n for n in found if 1 <= n <= longest)


def padded_texts(config: LinformerConfig, inputs: tuple[str, ...], *, batch: int, length: int) -> dict[str, Tensor]:
    """Random tokens long (B, n) by name of the input; the first text fills its row, the others end before."""
    generator = torch.Generator().manual_seed(length)
    lengths = torch.tensor([max(1, length * (batch - row) // batch) for row in range(batch)])
    mask = (torch.arange(length) < lengths[:, None]).long()
    ids = torch.randint(config.vocab_size, (batch, length), generator=generator)
    if config.pad_token_id is not None:
        ids = torch.where(mask.bool(), ids, config.pad_token_id)
    made = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
    return {name: made[name] for name in inputs}


@torch.inference_mode()
def check_graph(model: Any, graph: ExportedModel, *, tolerance: float = TOLERANCE) -> list[Checked]:
    """How far ``graph`` is from ``model`` (eager, float32) at each critical length, alone and with padded texts.

    Raises CheckpointError where they differ by more than ``tolerance``, or by NaN.
    """
    rows = []
    for length in critical_lengths(model.config):
        for batch in BATCHES:
            given = padded_texts(model.config, graph.inputs, batch=batch, length=length)
            found, expected = (run(**given)[graph.output] for run in (graph, model))
            if graph.output == HIDDEN:
                kept = given["attention_mask"].bool()
                found, expected = found[kept], expected[kept]
            rows.append(Checked(length, batch, float((found - expected).abs().max())))
    if wrong := [row for row in rows if not row.difference <= tolerance]:
        named = ", ".join(f"n={row.length} (batch {row.batch}): {row.difference:.2g}" for row in wrong)
        raise CheckpointError(
            f"the exported graph differs from the model by more than {tolerance} at {named}; nothing is written: "
            "please report the model's config.json and the versions that longform doctor prints"
        )
    return rows


def as_table(rows: list[Checked]) -> list[dict[str, Any]]:
    """A row a length, a column a batch."""
    found = {(row.length, row.batch): row.difference for row in rows}
    return [
        {"length": length, **{f"batch {batch}": f"{found[length, batch]:.1e}" for batch in BATCHES}}
        for length in dict.fromkeys(row.length for row in rows)
    ]
