"""The program ``longform``: finds a command, runs it, and turns errors into one line.

A command is the module of its name in this package, listed in ``COMMANDS``, or a module of another package at an entry
point of the group ``longform.commands``, with a ``SUMMARY``. It is imported when it is called, and has ``parser() ->
jsonargparse.ArgumentParser`` (made by ``arguments.command_parser``) and ``run(settings: Namespace)``. What
computes is imported in ``run``, so that ``--help`` waits for neither torch nor transformers.
"""

import errno
import io
import os
import sys
from collections.abc import Sequence
from contextvars import copy_context
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from longform import __version__
from longform.choices import STANDARD_OUTPUT, did_you_mean
from longform.errors import ConfigurationError, LongformError, is_out_of_memory
from longform_text.cli.arguments import parse
from longform_text.data.files import ENCODING, in_utf8

GONE = (errno.EPIPE, errno.EIO)  # the reader of a pipe; a terminal
NUMBERS = {"stdout": 1, "stderr": 2}


class _Lasting(io.FileIO):
    """An open file whose output goes nowhere once nobody takes it; ``lossy``: nor does any other error stop it."""

    lossy = False

    def write(self, data: Any) -> Any:
        """The bytes that were taken, as FileIO has it."""
        try:
            return super().write(data) or (len(data) if self.lossy else None)
        except OSError as error:
            if not self.lossy and error.errno not in GONE:
                raise
        _lead_nowhere(self.fileno())
        return len(data)


def keep_open(name: str, *, lossy: bool = False) -> None:
    """Let "stdout" or "stderr" last, where it is the process's own; see ``_Lasting``."""
    stream: Any = getattr(sys, name)
    if stream is not getattr(sys, f"__{name}__"):
        return
    if stream is None:
        _lead_nowhere(NUMBERS[name])  # or the next file that is opened would have its number
    elif type(getattr(stream.buffer, "raw", stream.buffer)) is io.FileIO:
        stream.flush()
    else:  # a console of Windows
        return
    raw = _Lasting(NUMBERS[name], "w", closefd=False)
    raw.lossy = lossy
    lines = stream is None or stream.line_buffering or stream.write_through
    encoding = "utf-8" if stream is None else stream.encoding
    setattr(sys, name, io.TextIOWrapper(io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=lines))


def keep_stdout(output: str | None) -> None:
    """Let standard output last where a command does but report there; ``output``: of the command.

    Raises ConfigurationError where records go there and it is closed.
    """
    if output != STANDARD_OUTPUT:
        keep_open("stdout")
    elif sys.stdout is None:
        raise ConfigurationError("records go to standard output, which is closed: give a file (--output)")


def _lead_nowhere(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)


FAILED, INTERRUPTED, CLOSED = 2, 130, 141
AT_ONCE = (
    "convert",
    "evaluate",
    "export",
    "doctor",
)  # write all in the end: interrupted, nothing is there to go on with

# Shapes for which oneDNN and the layer above it in torch keep what they prepared, instead of 1,024: batches of texts
# have ever new ones, which came to hundreds of megabytes. torch reads these names when it is imported.
KEPT_SHAPES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}

GROUP = "longform.commands"
COMMANDS = {  # what each does
    "embed": "turn documents into vectors",
    "search": "find the passages of a folder's documents that answer a question",
    "serve": "answer HTTP requests: vectors, labels and chunks",
    "convert": "turn a pretrained encoder into a Longform, a model for long documents",
    "finetune": "train a classifier or regressor on labelled text",
    "predict": "label documents with a fine-tuned model",
    "align": "train an encoder to find long documents by queries",
    "distill": "train a converted model to imitate its original, on unlabelled text",
    "pretrain": "train a new masked-language model from scratch",
    "export": "write a Longform as a graph for ONNX Runtime and OpenVINO",
    "doctor": "what this machine has, which kernels serve on it, which extras are missing",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``longform`` with ``arguments`` (default: the process's own); returns the exit status."""
    keep_open("stderr", lossy=True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files need not be UTF-8
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0 if arguments else FAILED
    if arguments[0] == "--version":
        print(f"longform {__version__}")
        return 0
    name, *rest = arguments
    module = command_module(name)
    if module is None:
        known = [*COMMANDS, *(point.name for point in entry_points(group=GROUP))]
        near = did_you_mean(name, [*known, "--help", "--version"])
        return _fail(f'there is no command "{name}"; there are: {", ".join(known)}{near}')
    for variable, shapes in KEPT_SHAPES.items():
        os.environ.setdefault(variable, shapes)
    return _run(name, module, rest)


def command_module(name: str) -> ModuleType | None:
    """The module of a command; None where there is no such command."""
    if name in COMMANDS:
        return import_module(f"longform_text.cli.{name}")
    return next((point.load() for point in entry_points(group=GROUP, name=name)), None)


def all_commands() -> dict[str, str]:
    """Summaries of all commands by name, those of other packages after ours."""
    return {**COMMANDS, **{point.name: point.load().SUMMARY for point in entry_points(group=GROUP)}}


def _run(name: str, module: ModuleType, arguments: list[str]) -> int:
    settings = None
    try:
        settings = parse(module.parser(), arguments)
        keep_stdout(getattr(settings, "output", None))
        context, own = copy_context(), getattr(settings, str(getattr(settings, "task", "")), settings)
        in_utf8(io.BytesIO(), encoding := getattr(own, "encoding", None))  # refused before a model is loaded
        context.run(ENCODING.set, encoding)
        context.run(module.run, settings)
        sys.stdout.flush()
    except BrokenPipeError:  # what reads our output has enough of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains at its end
        return CLOSED
    except LongformError as error:
        return _fail(str(error))
    except OSError as error:  # a full disk, a folder that may not be written
        return _fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
    except Exception as error:
        if (lack := _lack(error)) is None:
            raise
        return _fail(lack)
    except KeyboardInterrupt:
        print(f"\nlongform: interrupted; {_going_on(name, settings)}", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as stop:  # the parser: --help, or arguments that it refuses
        return stop.code if isinstance(stop.code, int) else FAILED
    return 0


def _going_on(name: str, settings: Any) -> str:
    """Note on what the same command does after Ctrl-C; ``settings``: None before they are read."""
    at_once = name in AT_ONCE
    if settings is None or at_once or getattr(settings, "output", None) == STANDARD_OUTPUT:
        return "nothing is kept, the same command begins anew"
    without = " without --restart" if getattr(settings, "restart", False) else ""
    return f"the same command{without} goes on where it was"


def _lack(error: Exception) -> str | None:
    """Lack of memory or disk that a library's own error speaks of; None: a fault of the program."""
    if is_out_of_memory(error):
        return f"out of memory ({error}): fewer or shorter texts at once, or a smaller model"
    return str(error) if "(os error " in str(error) else None  # safetensors and tokenizers, on a full disk


def _fail(message: str) -> int:
    print(f"longform: error: {' '.join(message.split())}", file=sys.stderr)
    return FAILED


def _usage() -> str:
    summaries = all_commands()
    width = max(map(len, summaries))
    lines = {name: f"  {name:<{width}}  {summary}" for name, summary in summaries.items()}
    own = "\n".join(lines[name] for name in COMMANDS)
    others = "\n".join(line for name, line in lines.items() if name not in COMMANDS)
    return (
        "usage: longform COMMAND [options]\n\nLinear-time Transformer encoders for long documents.\n\n"
        f"commands:\n{own}\n\nmeasurements and demonstrations:\n{others}\n\n"
        "longform COMMAND --help   the command's options, with units\nlongform --version"
    )


if __name__ == "__main__":
    sys.exit(main())
