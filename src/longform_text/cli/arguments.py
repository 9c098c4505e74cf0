"""Options that commands share, settings as options, and what commands print."""

import re
import shlex
import sys
from argparse import SUPPRESS, ArgumentError
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from inspect import cleandoc
from typing import Any, Literal, TypeVar, get_args, get_origin

from longform.choices import STANDARD_OUTPUT
from longform.errors import ConfigurationError, require
from longform_text.cli.refusals import check_options, option_names, refusal
from longform_text.summary import summary, table

EXAMPLES = {  # the first line of the help of each command in this package
    "embed": "minilm-16k documents --output vectors.parquet",
    "search": 'documents "what happens to the mill?"',
    "serve": "minilm-16k --documents documents",
    "convert": "sentence-transformers/all-MiniLM-L6-v2 minilm-4096 --max-length 4096",
    "finetune": "minilm-16k labelled.jsonl --output classifier",
    "predict": "classifier documents --output labels.jsonl",
    "align": "minilm-16k pairs.jsonl --output aligned",
    "distill": "minilm-4096 sentence-transformers/all-MiniLM-L6-v2 texts.jsonl --output healed",
    "pretrain": "texts.jsonl --output model --preset small",
    "export": "minilm-16k --int8",
    "doctor": "minilm-16k",
}

GROUPS = {  # headings of a help, and what stands under them; all other options come before
    "texts": """--text-field --pair-field --label-field --query-field --document-field --relevant-field --id-field
        --title-field --fields --keep --max-length --length --passage-tokens --chunk-tokens --boundaries --on-long
        --strategy --overlap""",
    "training": """--num_train_epochs --max_steps --max-minutes --per_device_train_batch_size
        --documents-per-step --queries-per-document --learning_rate --learning-rate --metric_for_best_model --objective
        --lora-rank --seed --steps --batch-size --report_to --bf16""",
    "machine": "--device --dtype --backend --engine --batch-tokens --threads --workers",
    "advanced": """--print_config --encoding --stdin-format --max-characters --compile --graphs --vector-dtype
        --document-weight --on-error --part-rows --ray-address --actors --num-cpus --num-gpus --prompt
        --batch-wait-ms --max-concurrent-requests --max-texts --max-request-tokens --max-request-bytes
        --max-waiting-tokens --grace-seconds --root-path --projection-init --position-init
        --projection-sharing --sink-tokens --memory-budget --short-convolution --selected-slots --warmup
        --save_steps --eval_steps --activation_checkpointing --use_cpu --tokens-per-forward --tokens-per-step
        --evaluations --early-stopping-patience --head-learning-rate --first --sources.help
        --spans-field --passage-boundaries --same-document-negatives --similar-documents --temperature --keep-weight
        --keep-texts --train-word-embeddings --dropout --optimizer --teacher-length --min-length --tokenizer-kind
        --tokenizer-lowercase --tokenizer-min-frequency --head-dim --intermediate-size --num-key-value-heads
        --is-gated-act --hidden-act --rope-theta --normalization --norm-type --attention-bias --mlp-bias --norm-bias
        --initializer-range --max-position-embeddings --mask-fraction --packing --max-documents --validation-tokens
        --cache""",
}


def command_parser(command: str, description: str, *, example: str | None = None, texts: bool = True) -> Any:
    """A jsonargparse.ArgumentParser for ``longform COMMAND``, whose help begins with an ``example``.

    ``texts``: whether the command reads files of text. Options given after ``--config`` override the file.
    """
    jsonargparse, example = require("jsonargparse", extra="cli"), example or EXAMPLES.get(command)
    parser = jsonargparse.ArgumentParser(
        prog=f"longform {command}",
        usage=f"longform {command} {example}" if example else None,
        description=description,
        exit_on_error=False,
        allow_abbrev=False,
    )
    parser.add_argument("--config", action="config", help="YAML file with any of the options below")
    if texts:
        parser.add_argument(
            "--encoding", type=str | None, default=None, help="of files of text: cp1252, utf-16, ...; null: utf-8"
        )
    return parser


def add_options(parser: Any, *options: tuple[str, Any, Any, str]) -> None:
    """Options with a value: name of the argument, type or names that there are, default, help.

    Names of which the default is None may be null; ``--flag`` is ``--flag true`` where the default is False; an option
    takes several values where the default is a list.
    """
    for name, kind, default, said in options:
        how = one_of(kind, null=default is None) if isinstance(kind, tuple) else {"type": kind}
        if default is False:
            how |= {"nargs": "?", "const": True}
        if isinstance(default, list):
            how |= {"nargs": "+"}
        parser.add_argument(option(name), **how, default=default, help=said)


def add_device(parser: Any) -> None:
    """``--device``, where a model runs."""
    said = "auto: the first CUDA GPU if there is one, else the CPU; cpu, cuda, cuda:1, mps, xpu, ..."
    parser.add_argument("--device", default="auto", help=said)


def add_inference_settings(parser: Any, *, but: Collection[str] = ()) -> None:
    """Options of commands that read documents and write a record for each; none for ``but``."""
    from longform_text.inference.settings import InferenceSettings  # not above, for quick help: it imports numpy

    places = (
        "text, .jsonl, .json, .csv, .tsv (all also .gz, .zst) or .parquet files, folders, hf:NAME[:CONFIG]:SPLIT, or - "
        "(one document a line)"
    )
    parser.add_argument("sources", nargs="+", help=places)
    parser.add_argument(
        "--output",
        type=str,
        required=True,
        help=".jsonl or .parquet file to write; -: standard output; a name without suffix: a folder of parquet parts, "
        "for which sources are .jsonl or .parquet files, folders, globs or URIs (s3://...)",
    )
    kept = field_helps(InferenceSettings)["keep"]
    parser.add_argument("--keep", type=str, nargs="+", default=[], help=kept)
    add_restart(parser, "a finished output, or what an interrupted start left of one")
    add_settings(parser, InferenceSettings, but=("keep", "restart", "progress", *but))


def one_of(choices: Sequence[str], *, null: bool = False) -> dict[str, Any]:
    """Options of ``add_argument`` for one of the ``choices`` (or null), which usage and help show."""
    kind: Any = Literal[tuple(choices)]  # ty: ignore[invalid-type-form]
    names = [*choices, "null"] if null else choices
    return {"type": kind | None if null else kind, "metavar": f"{{{','.join(names)}}}"}


def add_restart(
    parser: Any, forgotten: str = "what an earlier start left in the output folder, the result too"
) -> None:
    """``--restart``, the one word for starting anew; ``forgotten``: what is not gone on with."""
    flag = require("jsonargparse", extra="cli").ActionYesNo(no_prefix=None)
    parser.add_argument("--restart", action=flag, default=False, help=f"begin anew: forget {forgotten}")


def parse(parser: Any, arguments: Sequence[str]) -> Any:
    """The parsed Namespace; ``--some-name`` and ``--some_name`` are the same option.

    Raises ConfigurationError, in one line, for what cannot be meant.
    """
    put_in_groups(parser)
    known = option_names(parser)
    options = list(arguments).index("--") if "--" in arguments else len(arguments)  # what comes after it is none
    spelled = [*(_spelled(argument, known) for argument in arguments[:options]), *arguments[options:]]
    check_options(parser, known, spelled[:options])
    try:
        return parser.parse_args(spelled)
    except ArgumentError as error:
        raise ConfigurationError(refusal(str(error), parser)) from error
    except (ValueError, RecursionError) as error:  # what YAML makes of some values: 5,000 digits, bytes not UTF-8
        raise ConfigurationError(f"the options or their --config file cannot be read: {error}") from error


def put_in_groups(parser: Any) -> None:
    """Put options under the headings of ``GROUPS``, those of subcommands too."""
    headings = {name: heading for heading, names in GROUPS.items() for name in names.split()}
    options, groups = parser._optionals._group_actions, defaultdict(list)
    for option in options:
        groups[headings.get(option.option_strings[0].removesuffix("+"))].append(option)
    options[:] = groups[None]
    for heading in GROUPS:
        parser.add_argument_group(heading)._group_actions[:] = groups[heading]
    for action in parser._actions:
        if isinstance(action.choices, dict):  # subcommands: name -> parser
            for each in action.choices.values():
                put_in_groups(each)


def _spelled(argument: str, known: set[str]) -> str:
    name, equals, value = argument.partition("=")
    if name.startswith("--") and name not in known:
        for other in ("--" + name[2:].replace("_", "-"), "--" + name[2:].replace("-", "_")):
            if other in known:
                return other + equals + value
    return argument


def output_stream(output: str) -> Any:
    """Where a command reports: not among the records, where they go to standard output."""
    return sys.stderr if output == STANDARD_OUTPUT else sys.stdout


Settings = TypeVar("Settings")


def add_settings(
    parser: Any,
    settings: Any,
    *,
    only: Collection[str] | None = None,
    but: Collection[str] = (),
    prefix: str = "",
    preset: bool = False,
) -> None:
    """One option a field of the dataclass ``settings``: ``--learning-rate`` for ``learning_rate``.

    ``only``: for these fields, ``but``: for all others. ``preset``: what is not given is None, and a preset's.
    """
    helps = field_helps(settings)
    for field in fields(settings):
        if field.name in but or (only is not None and field.name not in only):
            continue
        kind: Any = field.type
        if get_origin(kind) is list:
            kind = kind | get_args(kind)[0]  # one item may stand for a list of one
        default, said = field.default, helps[field.name]
        if preset:
            default, said = None, f"{said.rstrip('.')}; null: the preset's"
        kind = kind | None if preset else kind
        add_options(parser, (prefix + field.name, field.metadata.get("choices", kind), default, said))


# Fields of transformers.TrainingArguments that a help shows; all others are understood too.
SHOWN_ARGUMENTS = {
    "num_train_epochs": "passes over the training part",
    "max_steps": "optimiser steps, in place of passes",
    "per_device_train_batch_size": "texts of one optimiser step, of each process",
    "learning_rate": "highest learning rate",
    "metric_for_best_model": "the measurement that says which step is kept",
    "seed": "of all that is drawn",
    "report_to": "where the log goes beside records.jsonl: tensorboard, wandb, trackio, ...",
    "save_steps": "steps between two checkpoints; a tenth of the run where nothing is said",
    "eval_steps": "steps between two measurements, or a part of them (0.1)",
    "bf16": "products in bfloat16; where nothing is said, where CPU or GPU has it natively",
    "activation_checkpointing": "recompute activations in the backward pass: less memory, a third more time",
    "use_cpu": "no GPU",
}
OF_TEXTS = ("num_train_epochs", "per_device_train_batch_size", "metric_for_best_model")  # not of steps made otherwise
TRAINS = (
    "Interrupted, it goes on when it is called again with the same output folder and options. Beside the options below "
    "any field of transformers.TrainingArguments is one, by its own name (--report_to wandb, --save_total_limit 3). "
    "Several processes: torchrun --nproc-per-node N -m longform "
)
KINDS: dict[str, Any] = {"int": int | None, "float": float | None, "bool": bool | None, "str": str | None}


def add_training_settings(parser: Any, settings: Any, *, preset: bool = False) -> None:
    """One option a field of a TrainingSettings class, and one a field of transformers.TrainingArguments, by its name
    there; names of before are understood, and not shown.
    """
    from longform_text.training.settings import BEFORE, argument_types

    add_settings(parser, settings, but=("arguments",), preset=preset)
    own = {each.name for each in fields(settings)}
    others = {name: kind for name, kind in argument_types().items() if name not in own}
    for name, kind in others.items():
        taken = KINDS.get(kind.removesuffix(" | None"), Any)
        how: dict[str, Any] = {"nargs": "?", "const": True} if taken == bool | None else {}
        parser.add_argument(f"--{name}", type=taken, default=SUPPRESS, help=_said(settings, name, preset), **how)
    for name in set(BEFORE).difference(own, others):
        parser.add_argument(option(name), type=Any, default=SUPPRESS, help=SUPPRESS, nargs="?", const=True)


def _said(settings: Any, name: str, preset: bool) -> str:
    """Help for a field of TrainingArguments, SUPPRESS where it is not shown."""
    recipe = settings.recipe.get(name)
    if name not in SHOWN_ARGUMENTS or (name in OF_TEXTS and recipe in (None, 1)):
        return SUPPRESS
    if preset:
        return f"{SHOWN_ARGUMENTS[name]}; null: the preset's"
    return SHOWN_ARGUMENTS[name] if recipe is None else f"{SHOWN_ARGUMENTS[name]} (recipe: {recipe})"


def chosen_training_settings(settings: type[Settings], parsed: Any) -> Settings:
    """The settings that the parsed options ask for, fields of TrainingArguments among them."""
    return settings(**_training_options(settings, parsed))


def _training_options(settings: Any, parsed: Any) -> dict[str, Any]:
    from longform_text.training.settings import BEFORE, argument_types

    own = [each.name for each in fields(settings) if each.name != "arguments"]
    found = {name: getattr(parsed, name) for name in own}
    others = {name: getattr(parsed, name, None) for name in (*argument_types(), *BEFORE) if name not in own}
    return found | {name: value for name, value in others.items() if value is not None}


def given_training_options(settings: Any, parsed: Any) -> dict[str, Any]:
    """Options that were given, where what is not given is a preset's."""
    return {name: value for name, value in _training_options(settings, parsed).items() if value is not None}


def option(name: str) -> str:
    """The option for a field: "--learning-rate" for "learning_rate"."""
    return f"--{name.replace('_', '-')}"


def chosen_settings(settings: type[Settings], parsed: Any, **others: Any) -> Settings:
    """The settings that the parsed options ask for, and ``others``."""
    dataclass: Any = settings
    asked = {field.name: getattr(parsed, field.name) for field in fields(dataclass) if field.name not in others}
    return settings(**asked, **others)


def field_helps(settings: type) -> dict[str, str]:
    """Help for each field, from the ``Args:`` parts of the docstrings of the class and its bases."""
    helps: dict[str, str] = {}
    for kind in reversed(settings.__mro__):
        _, _, described = cleandoc(kind.__doc__ or "").partition("Args:\n")
        described = described.split("\n\n")[0]
        parts = re.split(r"^ {4}(\w+): ", described, flags=re.MULTILINE)[1:]
        helps |= {name: " ".join(text.split()) for name, text in zip(parts[::2], parts[1::2], strict=True)}
    return helps


def print_summary(result: Any, file: Any = None) -> None:
    """The fields of a dataclass, one a line."""
    print(summary(result), file=file)


def print_next(said: str, file: Any = None) -> None:
    """The last line of a command: what one would do next."""
    print(f"next  {said}", file=file)


def command(*words: Any) -> str:
    """A line of ``longform`` as it is typed, with quotes where a name needs them."""
    return shlex.join(map(str, ("longform", *words)))


def print_table(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows that share their keys, which are the heads of the columns."""
    print(table(title, rows))
