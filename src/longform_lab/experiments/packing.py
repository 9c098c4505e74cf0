"""What packed weights bring: whole encoders, plain and packed in turn, at short and long texts; appends records.

::

    python -m longform_lab.experiments.packing

One thread, and the processor's time: what other processes do disturbs little. The outputs are compared first.
"""

import statistics
import time
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity
from tqdm import tqdm

import longform
from longform import LinformerConfig, LinformerModel
from longform.functional.conditions import native_bfloat16
from longform.layers.packed_linear import PackedLinear
from longform_lab.records import RECORDS, Record, append_record

LENGTHS = (16, 64, 128, 256, 512, 2_048)
SIZES = {"minilm": (6, 384, 12, 1_536), "base": (12, 768, 12, 3_072)}
TURNS = 7
CLOSE = 0.9999  # least cosine of what both give


def encoder(size: str, dtype: torch.dtype) -> LinformerModel:
    """Random weights; window 256, as conversion chooses."""
    layers, hidden, heads, wide = SIZES[size]
    torch.manual_seed(0)
    config = LinformerConfig(
        vocab_size=1_000, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=wide, max_position_embeddings=max(LENGTHS), projection="mean", projected_length=256,
        attention_window=256,
    )  # fmt: skip
    return LinformerModel(config).eval().to(dtype)


def seconds(model: LinformerModel, ids: Tensor, passes: int) -> float:
    """Processor time of one pass."""
    began = time.process_time()
    for _ in range(passes):
        model(ids)
    return (time.process_time() - began) / passes


@torch.no_grad()
def measured(size: str, dtype: torch.dtype) -> Iterator[Record]:
    """A record for each length."""
    plain, packed = encoder(size, dtype), longform.pack_weights(encoder(size, dtype))
    if not any(isinstance(part, PackedLinear) for part in packed.modules()):
        raise SystemExit(f"{dtype}: this torch packs nothing on this machine")
    for length in LENGTHS:
        ids = torch.randint(5, 1_000, (1, length))
        outputs = [model(ids).last_hidden_state.double().flatten() for model in (plain, packed)]
        alike = float(cosine_similarity(*outputs, dim=0))
        if alike < CLOSE:
            raise SystemExit(f"{size}, {dtype}, {length} tokens: packed and plain have cosine {alike}")
        passes = max(1, 512 // length)
        turns = [(seconds(plain, ids, passes), seconds(packed, ids, passes)) for _ in range(TURNS)]
        times = [statistics.median(each) for each in zip(*turns, strict=True)]
        yield Record(
            name="packing",
            settings={"size": size, "dtype": str(dtype).removeprefix("torch."), "tokens": length, "threads": 1},
            metrics={
                "plain_ms": 1000 * times[0], "packed_ms": 1000 * times[1], "ratio": times[0] / times[1],
                "lowest_ratio": min(a / b for a, b in turns), "highest_ratio": max(a / b for a, b in turns),
                "cosine": alike, "turns": TURNS,
            },
        )  # fmt: skip


def main() -> None:
    """Measure, append, print."""
    torch.set_num_threads(1)
    dtypes = [torch.float32] + ([torch.bfloat16] if native_bfloat16(torch.device("cpu")) else [])
    with tqdm(total=len(SIZES) * len(dtypes) * len(LENGTHS), desc="packed weights", unit="length") as bar:
        for size in SIZES:
            for dtype in dtypes:
                for record in measured(size, dtype):
                    append_record(RECORDS / "packing.jsonl", record)
                    bar.update()
                    tqdm.write(f"{record.settings} {record.metrics}")


if __name__ == "__main__":
    main()
