"""Refusals of a command line or ``--config`` file, in one line: which option, what it takes, what is near."""

import re
from collections.abc import Collection, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from longform.choices import did_you_mean
from longform.errors import ConfigurationError

TAKES = {int: "a whole number", float: "a number", str: "text", bool: "true or false", NoneType: "null"}
# What jsonargparse says; of what else it says the words are kept.
_KEY = re.compile(r'(?:Parser key "|argument )(?P<name>[\w.-]+)')
_UNKNOWN_KEY = re.compile(r"Option '(?P<name>.+)' is not accepted|No action for key \"(?P<other>.+)\"")
_VALUE = re.compile(r"(?:Got value|Given value): (?P<value>.*)$", re.DOTALL)
_LACKING = re.compile(r"the following arguments are required: (?P<names>.*)$")
_LEFT_OVER = re.compile(r"unrecognized arguments: (?P<rest>.*)$", re.DOTALL)


def actions(parser: Any) -> list[Any]:
    """The options and positional arguments of a parser, and of those of its subcommands."""
    found: list[Any] = []
    for action in parser._actions:
        if isinstance(action.choices, dict):  # subcommands: name -> parser
            for each in action.choices.values():
                found += actions(each)
        else:
            found.append(action)
    return found


def option_names(parser: Any) -> set[str]:
    """Names of the options, as they are written on the command line."""
    return {name for action in actions(parser) for name in action.option_strings}


FORGETS = "--restart"  # which no hint names: it deletes
ELSEWHERE = {  # what options are called elsewhere
    "--lr": "--learning_rate",
    "--eval-file": "--validation",
    "--validation-file": "--validation",
    "--train-file": "TRAIN",
    "--num-epochs": "--num_train_epochs",
    "--resume": "--resume_from_checkpoint",
    "--output-dir": "--output",
}
RESUMES = " (an interrupted run goes on by itself when it is called again)"


def check_options(parser: Any, known: Collection[str], arguments: Sequence[str]) -> None:
    """Raise ConfigurationError for an option that is not among the ``known`` ones of the parser."""
    for name in (argument.partition("=")[0] for argument in arguments if argument.startswith("--")):
        if name not in known and " " not in name:  # a text that begins with a dash, as argparse has it too
            near = _near(name, known) or f'{_help(parser)}; a text that begins with a dash comes after " -- "'
            raise ConfigurationError(f'there is no option "{name}"{near}')


def _near(name: str, known: Collection[str]) -> str:
    there = ELSEWHERE.get("--" + name[2:].replace("_", "-"))
    if there in known:
        return f'; did you mean "{there}"?{RESUMES if there == ELSEWHERE["--resume"] else ""}'
    return did_you_mean(name, [each for each in known if each != FORGETS])


def refusal(said: str, parser: Any) -> str:
    """One line, in the words of other errors, for what the parser ``said`` of arguments or a file."""
    if found := _UNKNOWN_KEY.search(said):
        name = (found["name"] or found["other"]).rpartition(".")[2]
        near = did_you_mean(name, [action.dest for action in actions(parser)])
        return f'the --config file has "{name}", and there is no such option{near or _help(parser)}'
    if found := _LACKING.search(said):
        names = ", ".join(_written(parser, name) for name in found["names"].split(", "))
        return f"{names} must be given{_help(parser)}"
    if found := _LEFT_OVER.search(said):
        return f'unexpected argument "{found["rest"]}": arguments without a name come before options{_help(parser)}'
    return _of_value(said, parser) or " ".join(said.split())


def _of_value(said: str, parser: Any) -> str | None:
    """The refusal of an option's value; None where nothing is said of one, or its type is not known."""
    found, value = _KEY.search(said), _VALUE.search(said)
    if not (found and value):
        return None
    name, given = found["name"].rpartition(".")[2], value["value"]
    kind = next((getattr(each, "_typehint", None) for each in actions(parser) if each.dest == name), None)
    if kind is None:
        return None
    return f'{_written(parser, name)} is "{given}"; it is {takes(kind)}{did_you_mean(given, _names(kind))}'


def takes(kind: Any) -> str:
    """Values that an option of a type takes, in words."""
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(map(takes, get_args(kind)))
    if get_origin(kind) is Literal:
        names = get_args(kind)
        return f'"{names[0]}"' if len(names) == 1 else f"one of {', '.join(map(str, names))}"
    if get_origin(kind) is list:
        return f"a list, each of it {takes(get_args(kind)[0])}"
    return TAKES.get(kind, getattr(kind, "__name__", str(kind)))


def _names(kind: Any) -> list[str]:
    """The names that an option of a type may have."""
    if get_origin(kind) is Literal:
        return [str(name) for name in get_args(kind)]
    return [name for part in get_args(kind) for name in _names(part)]


def _written(parser: Any, name: str) -> str:
    """An option or positional argument as the usage has it."""
    action = next((each for each in actions(parser) if each.dest == name.rpartition(".")[2]), None)
    return name if action is None else (action.option_strings or [name.upper()])[0]


def _help(parser: Any) -> str:
    return f"; {parser.prog} --help lists all options"
