"""The result of one architecture in a comparison: a file in the comparison's folder, and a line of its records."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from longform.files import read_json, reading, write_json
from longform_lab.records import Record

RESULT = "result.json"
UNITS = {"seconds": "s", "cpu_seconds": "s", "milliseconds_per_text": "ms", "memory_mib": "MiB"}


@dataclass(frozen=True)
class Result:
    """One row. ``accuracy``, ``macro_f1`` (0 to 1): of the test part; ``validation_accuracy``: of the weights kept.

    ``seconds``, ``cpu_seconds``: of the training steps. ``milliseconds_per_text``: testing, of the process.
    ``memory_mib``: peak of one training step of full length; None where it was not measured, and ``memory_reason``
    says why it could not be.
    ``tokens``: trained on, without padding. ``skipped``: why there is no result. ``rows``: loss and validation.
    ``facts``: what it ran on (longform_text.facts.record_facts).
    """

    name: str
    title: str
    family: str = "baseline"
    source: str = ""
    pads: str = ""
    skipped: str = ""
    accuracy: float | None = None
    macro_f1: float | None = None
    validation_accuracy: float | None = None
    seconds: float | None = None
    cpu_seconds: float | None = None
    milliseconds_per_text: float | None = None
    memory_mib: float | None = None
    memory_reason: str = ""
    parameters: int | None = None
    tokens: int | None = None
    steps: int | None = None
    best_step: int | None = None
    rows: list[dict[str, float]] = field(default_factory=list, repr=False)
    confusion: list[list[int]] = field(default_factory=list, repr=False)
    labels: list[str] = field(default_factory=list, repr=False)
    facts: dict[str, Any] = field(default_factory=dict, repr=False)

    def record(self, settings: dict[str, Any]) -> Record:
        """The result as benchmarks/records/compare.jsonl takes it; ``settings``: of the comparison."""
        names = ("accuracy", "macro_f1", "validation_accuracy", *UNITS, "parameters", "tokens", "steps", "best_step")
        metrics = {name: getattr(self, name) for name in names}
        chosen = {"architecture": self.name, **settings}
        return Record(name="compare", metrics=metrics, units=UNITS, settings=chosen, **self.facts)


def folder_of(output: Path, name: str) -> Path:
    """Where an architecture's checkpoint and result are."""
    return output / "architectures" / name


def read_result(output: Path, name: str) -> Result | None:
    """A finished result, or None. Raises CheckpointError when the file is damaged."""
    path = folder_of(output, name) / RESULT
    if not path.exists():
        return None
    way_out = f"delete it to measure {name} again"
    with reading(path, way_out=way_out):
        return Result(**read_json(path, way_out=way_out))


def write_result(output: Path, result: Result) -> None:
    """Write the file of a finished result."""
    write_json(folder_of(output, result.name) / RESULT, asdict(result))
