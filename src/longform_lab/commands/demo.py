"""``longform demo``: what a long encoder finds beside its original, on bundled texts."""

import argparse
from typing import Any

from longform.cli.arguments import add_restart, command_parser

SUMMARY = "a layer that learns, and passages found in long speeches, beside what people do today, on bundled data"


def parser() -> Any:
    """The command's jsonargparse.ArgumentParser."""
    made = command_parser(
        "demo",
        "On data that come with packages. A layer that learns: small stacks with several kinds of slots, and full "
        "attention, name one digit among many; and one layer's time against length. Find in long documents: each "
        "passage that was taken out of a speech is to find it again, by "
        "the vectors of minilm-16k, of its original on as many tokens as that takes and in chunks, and by a search "
        "for words (BM25); a report says how they do. Minutes on 2 CPU cores. Interrupted, it goes on when it is "
        "called again.",
    )
    made.add_argument("--output", type=str, default="runs/demo", help="folder for model, report and records")
    made.add_argument("--seed", type=int, default=0, help="of the digits, the stacks and the passages")
    add_restart(made, "what an earlier demo left in the folder")
    made.add_argument("--scale", type=str, default="full", help=argparse.SUPPRESS)
    return made


def run(settings: Any) -> None:
    """Run the demo, or go on with it."""
    from longform_lab.demo.run import run_demo

    run_demo(settings.output, seed=settings.seed, scale=settings.scale, restart=settings.restart)
