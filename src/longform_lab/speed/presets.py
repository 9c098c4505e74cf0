"""Presets of the benchmark: stages that are measured one after another, what says most first."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from longform_lab.speed.selection import FULL, LENGTHS, LONGEST, Selection, with_choices

MAIN = ("ours-window", "ours-linear", "sdpa")
PEERS = ("lucidrains", "tatp22")
BESIDE_PEERS = (*MAIN[:2], *PEERS)
BARS = Selection(lengths=(512,), sizes=("base",), competitors=MAIN, memory=False)

PRESETS: dict[str, tuple[Selection, ...]] = {
    # make bench: minutes on two cores
    "small": (
        Selection(lengths=(128, 512, 4_096), competitors=(*MAIN, "unfused", *PEERS), cell_seconds=20.0),
        Selection(lengths=(2_048,), competitors=(*MAIN, "unfused", *PEERS, "sparse"), cell_seconds=20.0),
        Selection(lengths=(512, 2_048), passes=("train",), competitors=MAIN, cell_seconds=20.0),
    ),
    # what the project promises
    "bars": (
        replace(BARS, lengths=(128, 256, 512, 1_024, 2_048, 4_096), competitors=(*MAIN, "unfused", *PEERS)),
        replace(BARS, lengths=(4_096,), sizes=("minilm",), passes=("train",), competitors=(*MAIN, *PEERS)),
        replace(BARS, lengths=(8_192,), competitors=(*MAIN, *PEERS), cell_seconds=120.0),
        replace(BARS, lengths=(16_384, 65_536), competitors=BESIDE_PEERS, cell_seconds=130.0),
        replace(BARS, lengths=(32_768,), cell_seconds=400.0),
        # apart, so that a folder that has the row of SDPA, 5 minutes a pass, does not measure it again beside these
        replace(BARS, lengths=(32_768,), competitors=BESIDE_PEERS, cell_seconds=130.0),
    ),
    # one document of a million tokens
    "million": (Selection(lengths=(LONGEST,), competitors=("ours-window",), cell_seconds=3_600.0),),
    # the paper's Table 3
    "paper": tuple(
        Selection(lengths=(length,), sizes=("base",), slots=(128, 256, 512, 1_024, 2_048),
                  competitors=("ours-linear", "unfused"))
        for length in (512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536)
    ),
    # everything
    "full": (
        Selection(
            lengths=(*LENGTHS, LONGEST), sizes=("minilm", "base"), dtypes=("float32", "bfloat16"),
            modes=("eager", "compiled"), passes=("inference", "train"), batches=("1", FULL), competitors=("all",),
        ),
    ),
}  # fmt: skip


def chosen_stages(name: str, what: Mapping[str, Any], how: Mapping[str, Any]) -> list[Selection]:
    """The stages of a preset, all changed by ``how`` to measure.

    Where something is chosen in ``what`` to measure, it is the first stage alone, changed so.
    """
    stages = [with_choices(stage, **how) for stage in PRESETS[name]]
    return [with_choices(stages[0], **what)] if any(what.values()) else stages
