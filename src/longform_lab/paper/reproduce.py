"""The tables and figures of the paper that ``longform reproduce`` can measure, with the time and options of each."""

import os
from dataclasses import dataclass

from longform.choices import SCALES as CHOICES
from longform.errors import ConfigurationError


@dataclass(frozen=True)
class Subject:
    """``shows``: what it is. ``small``: its time at the small scale. ``needs``, ``takes``: options, by name."""

    shows: str
    small: str
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


SCALES = ("tiny", *CHOICES)
_FIGURE3 = ("text_field", "seeds", "from_twin", "preset", "also", "shared")
_GRID = ("lengths", "device")
SUBJECTS = {
    "figure1": Subject(
        "the spectrum of attention",
        "2 minutes on two cores, 4 on one",
        ("text",),
        ("text_field", "model", "device", "lengths"),
    ),
    "figure2": Subject("time of a pass against length", "with table3", (), _GRID),
    "figure3a": Subject(
        "perplexity against updates, several k", "an hour, two processes, estimated", ("text",), _FIGURE3
    ),
    "figure3b": Subject("the same for texts twice as long", "an hour, two processes, estimated", ("text",), _FIGURE3),
    "figure3c": Subject(
        "perplexity against updates, sharing E and F", "an hour, two processes, estimated", ("text",), _FIGURE3
    ),
    "figure3d": Subject(
        "perplexity against updates, several n at one k", "two hours, two processes, estimated", ("text",), _FIGURE3
    ),
    "table1": Subject("growth of time and memory with length", "6 minutes to 4,096 tokens", (), _GRID),
    "table2": Subject(
        "accuracy after fine-tuning",
        "7 hours of one core, 14 with --text, which heals, estimated; half in two processes",
        ("data",),
        ("text", "text_field", "seeds", "tasks", "models", "model", "lengths"),
    ),
    "table3": Subject(
        "time and largest batch against full attention", "20 minutes at most, estimated from timed passes", (), _GRID
    ),
    "all": Subject(
        "all of these, and one page of them",
        "11 hours, two processes, estimated",
        ("text", "data"),
        ("text_field", "from_twin", "seeds", "device"),
    ),
}
STAGES = ("figure1", "table1", "table3", "figure3a", "figure3c", "figure3b", "figure3d", "table2")  # of "all"


def refuse_process_groups() -> None:
    """Raise ConfigurationError in one of several processes of torchrun, which would wait for each other's locks."""
    size = os.environ.get("WORLD_SIZE", "1")
    if size not in ("", "1"):
        raise ConfigurationError(
            f"longform reproduce takes one process a training, and this is one of WORLD_SIZE={size}: start it without "
            "torchrun; the same command several times shares the trainings of a folder out"
        )


def check_options(name: str, given: frozenset[str]) -> None:
    """Raise ConfigurationError for an option that the subject needs and did not get, or got and cannot use.

    Also under torchrun.
    """
    subject = SUBJECTS[name]
    refuse_process_groups()
    missing = [option for option in subject.needs if option not in given]
    if missing:
        raise ConfigurationError(f"{name} needs {', '.join(f'--{option}' for option in missing)}")
    unused = sorted(given - {*subject.needs, *subject.takes})
    if unused:
        options = ", ".join(f"--{option.replace('_', '-')}" for option in unused)
        raise ConfigurationError(f"{name} makes no use of {options}: leave it out")
