"""``longform COMMAND``: finds the command, runs it, and turns errors into one line.

A command is one module of this package, listed in ``COMMANDS`` and imported when it is called. It has
``parser() -> jsonargparse.ArgumentParser`` (made by ``arguments.command_parser``) and ``run(settings: Namespace)``.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

import longform  # registers the models with Hugging Face's Auto classes
from longform.cli.arguments import parse
from longform.errors import LongformError

FAILED, INTERRUPTED = 2, 130


class Command(NamedTuple):
    """Where a command is, and what it does in one line."""

    module: str
    summary: str


COMMANDS = {
    "convert": Command("longform.cli.convert", "turn a pretrained encoder into a Longform"),
    "distill": Command("longform.cli.distill", "teach a Longform what its original knows, on unlabelled text"),
    "finetune": Command("longform.cli.finetune", "train a classifier or regressor on labelled text"),
    "pretrain": Command("longform.cli.pretrain", "train a new masked-language model from scratch"),
    "evaluate": Command("longform.cli.evaluate", "measure models side by side"),
    "predict": Command("longform.cli.predict", "label documents with a fine-tuned model"),
    "embed": Command("longform.cli.embed", "turn documents into vectors"),
    "spectrum": Command("longform.cli.spectrum", "singular values of attention, and the k that they ask for"),
    "bound": Command("longform.cli.bound", "the theorems' k and bounds, and the error against k"),
    "compare": Command("longform.cli.compare", "several architectures on one task, with one budget"),
    "reproduce": Command("longform.cli.reproduce", "the paper's tables and figures, measured here"),
    "benchmark": Command("longform.cli.benchmark", "time and memory against length, the floor and other encoders"),
    "demo": Command("longform.cli.demo", "the whole way on a bundled data set, with a report"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``longform`` with ``arguments`` (default: the process's own); returns the exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0 if arguments else FAILED
    if arguments[0] == "--version":
        print(f"longform {longform.__version__}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        return _fail(f'there is no command "{name}"; there are: {", ".join(COMMANDS)}')
    return _run(COMMANDS[name], rest)


def _run(command: Command, arguments: list[str]) -> int:
    try:
        module = import_module(command.module)
        module.run(parse(module.parser(), arguments))
    except LongformError as error:
        return _fail(str(error))
    except OSError as error:  # a full disk, a folder that may not be written
        return _fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
    except KeyboardInterrupt:
        print("\nlongform: interrupted", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as stop:  # the parser: --help, or arguments that it refuses
        return stop.code if isinstance(stop.code, int) else FAILED
    return 0


def _fail(message: str) -> int:
    print(f"longform: error: {' '.join(message.split())}", file=sys.stderr)
    return FAILED


def _usage() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items())
    return (
        "usage: longform COMMAND [options]\n\nLinear-time Transformer encoders for long documents.\n\n"
        f"commands:\n{commands}\n\n"
        "longform COMMAND --help   the command's options, with units\nlongform --version"
    )


if __name__ == "__main__":
    sys.exit(main())
