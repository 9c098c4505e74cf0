"""``longform demo``: a layer that learns, and a search, on data that packages bring."""

import argparse
from typing import Any

from longform_text.cli.arguments import add_restart, command_parser

SUMMARY = "a layer that learns, beside full attention and the paper's E, and questions to long speeches"


def parser() -> Any:
    """The command's jsonargparse.ArgumentParser."""
    made = command_parser(
        "demo",
        "On data that come with packages. A layer that learns: small stacks with several kinds of slots, and full "
        "attention, name one digit among many; and one layer's time against length. Questions to long speeches, "
        "answered as longform search does. Minutes on 2 CPU cores. Interrupted, it goes on when it is called again.",
    )
    made.add_argument("--output", type=str, default="runs/demo", help="folder for documents, report and records")
    made.add_argument("--seed", type=int, default=0, help="of the digits and the stacks")
    add_restart(made, "what an earlier demo left in the folder")
    made.add_argument("--scale", type=str, default="full", help=argparse.SUPPRESS)
    return made


def run(settings: Any) -> None:
    """Run the demo, or go on with it."""
    from longform_lab.demo.run import run_demo

    run_demo(settings.output, seed=settings.seed, scale=settings.scale, restart=settings.restart)
