"""Options that commands share: ``--config FILE.yaml``, how a model is run, what is read and written."""

import sys
from collections.abc import Collection, Sequence
from typing import Any

from longform.errors import ConfigurationError, require

REMEMBERED = "null: as in the model's fine-tuning"


def command_parser(command: str, description: str) -> Any:
    """A jsonargparse.ArgumentParser for ``longform COMMAND``; options given after ``--config`` override the file."""
    jsonargparse = require("jsonargparse", extra="cli")
    parser = jsonargparse.ArgumentParser(prog=f"longform {command}", description=description)
    parser.add_argument("--config", action="config", help="YAML file with any of the options below")
    return parser


def add_model_options(parser: Any, *, lengths: bool = True, compiling: bool = False) -> None:
    """Options that say how a model is run."""
    parser.add_argument("--dtype", default="float32", help="float32; bfloat16; auto: bfloat16 where it is fast")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, ...")
    if compiling:
        parser.add_argument("--compile", type=bool, nargs="?", const=True, default=False,
                            help="torch.compile, Longforms only: tens of seconds once, for long runs")  # fmt: skip
    parser.add_argument("--batch-tokens", type=int, default=8192, help="tokens in a batch, padding included")
    if lengths:
        parser.add_argument("--max-length", type=int | None, default=None,
                            help=f"tokens taken of a text; {REMEMBERED}, else all that fit")  # fmt: skip


def parse(parser: Any, arguments: Sequence[str]) -> Any:
    """The parsed Namespace; ``--some-name`` and ``--some_name`` are the same option."""
    known = _option_names(parser)
    spelled = [_spelled(argument, known) for argument in arguments]
    try:
        return parser.parse_args(spelled)
    except SystemExit as stop:
        if stop.code:
            _print_near_options(spelled, known)
        raise
    except (ValueError, RecursionError) as error:  # what YAML makes of some values: 5,000 digits, bytes not UTF-8
        raise ConfigurationError(f"the options or their --config file cannot be read: {error}") from error


def did_you_mean(name: str, known: Collection[str]) -> str:
    """The end of a message about an unknown name: what is near it, or nothing."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    return f'; did you mean "{near[0]}"?' if near else ""


def _print_near_options(arguments: Sequence[str], known: set[str]) -> None:
    given = [argument.partition("=")[0] for argument in arguments if argument.startswith("--")]
    for name in given:
        if name not in known and (near := did_you_mean(name, known)):
            print(f'there is no option "{name}"{near}', file=sys.stderr)


def _spelled(argument: str, known: set[str]) -> str:
    name, equals, value = argument.partition("=")
    if name.startswith("--") and name not in known:
        for other in ("--" + name[2:].replace("_", "-"), "--" + name[2:].replace("-", "_")):
            if other in known:
                return other + equals + value
    return argument


def _option_names(parser: Any) -> set[str]:
    names = set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action.choices, dict):  # subcommands: name -> parser
            names.update(*(_option_names(each) for each in action.choices.values()))
    return names


def add_input_options(parser: Any) -> None:
    """Options of commands that read documents and write a record for each."""
    places = (
        "text, .jsonl, .json, .csv, .tsv (all also .gz, .zst) or .parquet files, folders, hf:NAME[:CONFIG]:SPLIT, or - "
        "(one document a line)"
    )
    parser.add_argument("sources", nargs="+", help=places)
    parser.add_argument("--output", type=str, required=True, help=".jsonl or .parquet file to write")
    parser.add_argument("--text-field", type=str | None, default=None,
                        help=f'field of a record that holds its text; {REMEMBERED}, else "text"')  # fmt: skip
    parser.add_argument("--pair-field", type=str | None, default=None,
                        help=f"field with the second text of a pair; {REMEMBERED}")  # fmt: skip
    parser.add_argument("--id-field", type=str | None, default=None, help="field with the id; null: file and line")
    parser.add_argument("--stdin-format", type=str, default="lines", help="what - is: lines or jsonl")
    parser.add_argument("--max-characters", type=int | None, default=None,
                        help="read of a document, what is beyond is counted; null: what is enough")  # fmt: skip
    parser.add_argument(
        "--on-long", type=str, default="truncate", help="a text over the limit: truncate (and count), or error"
    )
    parser.add_argument(
        "--strategy", type=str, default="whole", help="whole: one pass; chunk-average: mean over windows"
    )
    parser.add_argument("--overlap", type=int, default=0, help="tokens that neighbouring chunks share")
    parser.add_argument("--restart", type=bool, default=False, help="forget what an interrupted run left")
