"""``longform convert SOURCE OUTPUT``: a pretrained encoder turned into a Longform and saved in a folder."""

from pathlib import Path
from typing import Any, Literal, NamedTuple

from longform.choices import (
    DEFAULT_PROJECTION,
    DEFAULT_SHARING,
    EXTENSIONS,
    POOLED,
    POOLINGS,
    PROJECTION_INITS,
    PROJECTION_NAMES,
    SHARINGS,
    TASKS,
)
from longform.conversion import defaults
from longform.conversion.defaults import slots_that_fit
from longform.errors import DataError, require
from longform_text.cli.arguments import add_options, add_restart, command, command_parser, print_next

AT_ONCE = True

NAME, SHARING = "projected_length", "projection_sharing"


class GivenLengths(NamedTuple):
    """``lengths``: k as ``convert`` takes it. ``name``: of the file it stood in, or None.

    ``sharing`` and ``max_length`` (tokens at which k was measured): what stands beside it in the file, or None.
    """

    lengths: Any
    name: str | None = None
    sharing: str | None = None
    max_length: int | None = None

    def fitted(self, max_length: int, window: int | None, sinks: int) -> tuple["GivenLengths", str | None]:
        """With each k of a file raised to one that goes with these options, and what to say of that."""
        if self.name is None:
            return self, None
        fitting = slots_that_fit(self.lengths, max_length=max_length, window=window, sinks=sinks)
        if fitting == self.lengths:
            return self, None
        said = (
            f'k in "{self.name}" is raised where its slots do not divide a window of {window} or hold no more than '
            f"{sinks} sinks: {self.lengths} became {fitting}"
        )
        return self._replace(lengths=fitting), said

    def measured_elsewhere(self, max_length: int) -> str | None:
        """Note for a k that was measured at another length than ``max_length``; None for one that was not."""
        if self.max_length in (None, max_length):
            return None
        return (
            f'k in "{self.name}" was measured at {self.max_length:,} tokens, and the model is for {max_length:,}: it '
            f"keeps less of longer maps. --max-length {self.max_length} is the length measured"
        )


def read_lengths(given: Any) -> GivenLengths:
    """``given`` as it is, or, where it is the name of a file, what stands in it.

    The file holds a number, a list per layer or lists per head, alone or as ``projected_length`` among other things.
    Raises DataError where it cannot be read as that.
    """
    if not isinstance(given, str) or given == "auto":
        return GivenLengths(given)
    content = _content(given)
    fields = content if isinstance(content, dict) else {NAME: content}
    if not _is_lengths(fields.get(NAME)):
        raise DataError(
            f'"{given}" has no {NAME} that is a whole number, a list of them (one a layer) or a list of lists (heads)'
        )
    return GivenLengths(fields[NAME], given, fields.get(SHARING), fields.get("max_length"))


def _content(name: str) -> Any:
    path = Path(name).expanduser()
    if not path.is_file():
        raise DataError(f'{NAME}="{name}" is neither a number, a list nor a file that exists')
    yaml = require("yaml", extra="cli")
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: of a date, of digits
        raise DataError(f'"{path}" is neither JSON nor YAML: {error}') from error


def _is_lengths(value: Any, *, deep: int = 2) -> bool:
    if isinstance(value, list):
        return deep > 0 and bool(value) and all(_is_lengths(entry, deep=deep - 1) for entry in value)
    return isinstance(value, int) and not isinstance(value, bool)


Lengths = int | Literal["auto"] | list[int] | list[list[int]] | str


OPTIONS = (
    ("max_length", int, defaults.MAX_LENGTH, "tokens of the longest text, special ones included"),
    (
        "positions",
        EXTENSIONS,
        defaults.POSITIONS,
        "position embeddings for more tokens than the source has: tile repeats them, interpolate stretches them",
    ),
    (
        "projection",
        PROJECTION_NAMES,
        DEFAULT_PROJECTION,
        "how keys and values are shortened to slots: linear: learned matrices E and F (the paper's); mean, max, "
        "convolution: of runs of neighbouring tokens; weighted_mean: means of runs weighted by content, which begin as "
        "means; random: fixed random matrices",
    ),
    (
        NAME,
        Lengths,
        "auto",
        "slots k: a number, a list per layer, lists per head, or a JSON or YAML file with one of these as its "
        f"projected_length (longform spectrum writes such files); auto: about {defaults.SLOTS}, fewer "
        "for short texts with selection",
    ),
    (
        SHARING,
        (*SHARINGS, "auto"),
        "auto",
        "what shares a projection: none: each head has its own; headwise: the heads of a layer; key_value: its "
        "keys and values, too; layerwise: all layers, too; auto: as the --projected-length file says, else "
        f"{DEFAULT_SHARING}",
    ),
    (
        "attention_window",
        int | Literal["auto"] | None,
        "auto",
        f"tokens seen exactly on each side, beside the slots; null: slots only; auto: {defaults.WINDOW} with the "
        f"projections {', '.join(POOLED)}, else null",
    ),
    (
        "selected_slots",
        int | Literal["auto"],
        "auto",
        "number of far slots that each block of tokens sees token by token; 0: none; auto: up to "
        f"{defaults.SELECTED} where a text is no longer than the source's own, else none",
    ),
    (
        "memory_budget",
        float | Literal["auto"] | None,
        "auto",
        "most tokens that all slots stand for together; null: no limit; auto: the source's own length",
    ),
    (
        "sink_tokens",
        int,
        defaults.SINKS,
        "attention sinks: number of first tokens that every query sees exactly (for linear and random projections "
        "they take rows of E and F)",
    ),
    (
        "short_convolution",
        int,
        defaults.TAPS,
        "taps (an odd number) of a convolution over neighbouring tokens in front of attention, zero until it is "
        "trained; 0: none",
    ),
    (
        "projection_init",
        PROJECTION_INITS,
        "block_mean",
        "how linear projections begin: normal: N(0, 1/k); block_mean: means of k blocks of tokens",
    ),
    ("task", TASKS, None, "task of the result; null: the source's own"),
    ("num_labels", int | None, None, "labels of a new classification head"),
    (
        "classifier_pooling",
        POOLINGS,
        None,
        "what a classification head reads: the first token, the mean of all, lead: a mean in which early tokens "
        "weigh more, cls_mean or cls_lead: the first token and one of the means side by side",
    ),
)
POOLING_OPTIONS = (
    (
        "sublinear_tf",
        bool,
        False,
        "pool by a mean in which a token that occurs c times weighs sqrt(c), not c",
    ),
    (
        "adapter",
        str | None,
        None,
        "minilm-16k, or the output of longform align --lora-rank, to merge into the converted source",
    ),
)


def parser() -> Any:
    """The command's jsonargparse.ArgumentParser."""
    made = command_parser(
        "convert",
        "Turn a pretrained encoder into a Longform, whose attention takes time linear in the length of the "
        "text: keys and values are shortened to k slots, and near tokens are seen exactly. Weights and head are kept. "
        "Of a Longform the length alone is changed, in the model, its tokenizer and sentence-transformers' settings.",
    )
    made.add_argument(
        "source", type=str, help="folder of a saved model or a Longform, sentence-transformers folder, or hub name"
    )
    made.add_argument("output", type=str, help="folder for the result")
    add_restart(made, "an earlier conversion in the output folder, in which nothing was changed since")
    add_options(made, *OPTIONS)
    made.add_argument(
        "--idf",
        nargs="+",
        default=[],
        metavar="TEXTS",
        help="files or folders of texts: a vector is a mean in which tokens that few of these texts have weigh more "
        "(inverse document frequency, in the field text of records)",
    )
    add_options(made, *POOLING_OPTIONS)
    return made


def run(settings: Any) -> None:
    """Convert, save, and say what was done."""
    from longform_text.cli.beforehand import check_models, check_texts
    from longform_text.settings import check_least

    check_least(settings, max_length=3, num_labels=1, sink_tokens=0, short_convolution=0)
    check_models(settings.source)
    check_texts(*settings.idf)
    from longform.conversion.convert import convert
    from longform.conversion.local import local_source
    from longform.conversion.report import conversion_folder
    from longform_text.data.text import read_documents

    output = Path(settings.output).expanduser()
    with conversion_folder(output, local_source(settings.source), overwrite=settings.restart):
        pass  # what is refused in the end is better refused now
    k = read_lengths(settings.projected_length)
    sharing = (k.sharing or DEFAULT_SHARING) if settings[SHARING] == "auto" else settings[SHARING]
    automatic = settings.attention_window == "auto"
    window = defaults.default_window(settings.projection) if automatic else settings.attention_window
    k, raised = k.fitted(settings.max_length, window, settings.sink_tokens)
    for said in filter(None, (k.measured_elsewhere(settings.max_length), raised)):
        print(f"note: {said}")
    given = {name: settings[name] for name, *_ in (*OPTIONS, *POOLING_OPTIONS)}
    given |= {NAME: k.lengths, SHARING: sharing}
    counted = (each.text for each in read_documents(settings.idf)) if settings.idf else None
    result = convert(settings.source, **given, idf=counted)
    result.save_pretrained(output, overwrite=settings.restart)
    print(result.report.summary())
    print(f"  saved       {output} (every tensor's account: conversion_report.json)")
    use = command("embed", output, "texts.jsonl", "--output", "vectors.jsonl")
    aligning = command("align", output, "pairs.jsonl", "--output", f"{output}-aligned")
    healing = command("distill", output, settings.source, "texts.jsonl", "--output", f"{output}-healed")
    if settings.adapter is None:
        print_next(f"{healing} (the original teaches it), or {use} (as it is)")
    else:  # the original would take from it what the adapter has taught
        print_next(f"{use}, or {aligning} (pairs of your own teach it more)")
