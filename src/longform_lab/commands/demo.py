"""``longform demo``: a layer that learns, and a search, on data that packages bring."""

import argparse
from typing import Any

from longform_text.cli.arguments import add_restart, command_parser

SUMMARY = "a layer that learns, compared with full attention and the paper's E, and a search in long speeches"


def parser() -> Any:
    """The command's jsonargparse.ArgumentParser."""
    made = command_parser(
        "demo",
        "Show two things on data that come with packages. First, small stacks with several kinds of slots, and with "
        "full attention, learn to name one digit among many; the time of one layer is plotted against length. Second, "
        "questions about long speeches are answered as longform search does. This takes minutes on 2 CPU cores. After "
        "an interruption, the same command continues.",
        example="--output runs/demo",
        texts=False,
    )
    made.add_argument("--output", type=str, default="runs/demo", help="folder for documents, report and records")
    made.add_argument("--seed", type=int, default=0, help="seed of the digits and the stacks")
    add_restart(made, "what an earlier demo left in the folder")
    made.add_argument("--scale", type=str, default="full", help=argparse.SUPPRESS)
    return made


def run(settings: Any) -> None:
    """Run the demo, or continue it."""
    from longform_lab.demo.run import run_demo

    run_demo(settings.output, seed=settings.seed, scale=settings.scale, restart=settings.restart)
