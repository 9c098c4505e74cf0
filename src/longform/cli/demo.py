"""``longform demo``: conversion, distillation, fine-tuning and comparison on a bundled data set."""

import argparse
from pathlib import Path
from typing import Any

from longform.cli.arguments import add_restart, command_parser


def parser() -> Any:
    """The command's jsonargparse.ArgumentParser."""
    made = command_parser(
        "demo", "Convert an encoder, distil it, fine-tune it on licence texts, compare it with the original, time it "
        "and write a report: about 10 minutes on 2 CPU cores. Interrupted, it goes on when it is called again.",
    )  # fmt: skip
    made.add_argument("--output", type=Path, default=Path("runs/demo"), help="folder for model, report and records")
    made.add_argument("--seed", type=int, default=0, help="of the split, the order of texts, the head")
    add_restart(made, "what an earlier demo left in the folder")
    made.add_argument("--scale", type=str, default="full", help=argparse.SUPPRESS)
    return made


def run(settings: Any) -> None:
    """Run the demo, or go on with it."""
    from longform.studies.demo.run import run_demo

    run_demo(settings.output, seed=settings.seed, scale=settings.scale, restart=settings.restart)
