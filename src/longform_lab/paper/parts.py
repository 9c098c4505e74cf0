"""Parts of a long reproduction, each a finished file: what is lacking is done, one process a part."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from longform.files import check_same, locked, read_json, reading, write_json
from longform_lab.records import Record
from longform_text.data.progress import hidden
from longform_text.facts import commit

FINISHED, LOCKS = "finished", "locks"


@dataclass(frozen=True)
class Part:
    """``name``: of its files. ``identity``: what must be the same for its result to be taken.

    ``work``: does it, and returns the record and anything else that is to be kept (JSON). ``clean``: removes what is
    not needed once the result is on the disk; called again for a result that is there, since a process may have been
    killed between the two. ``again``: whether a record on the disk is to be made anew.
    """

    name: str
    identity: Mapping[str, Any]
    work: Callable[[], tuple[Record, Any]]
    clean: Callable[[], None] = lambda: None
    again: Callable[[Record], bool] = lambda record: False


@dataclass(frozen=True)
class Finished:
    """Result of a part."""

    record: Record
    kept: Any

    @property
    def row(self) -> dict[str, Any]:
        """Row of a table: settings and metrics of the record."""
        return {"settings": dict(self.record.settings), "metrics": dict(self.record.metrics)}


def _done(finished: Sequence[Finished | None]) -> list[Finished]:
    return [one for one in finished if one is not None]


def work_through(
    parts: Sequence[Part], folder: Path, report: Callable[[list[Finished]], None], *, described: str, progress: bool
) -> tuple[list[Finished], int]:
    """Do what ``folder`` lacks; ``report`` is called with all that is finished, after every part and at the end.

    A part that another process is at is left to it. Returns what is finished, and how many parts are not.

    Raises ConfigurationError where a part was finished with another identity, CheckpointError for a damaged file.
    """
    commit()  # of the code that runs, whatever is checked out by the end
    finished = [read_part(folder, part) for part in parts]
    with tqdm(total=len(parts), unit="part", desc=described, disable=hidden(progress)) as bar:
        for place, part in enumerate(parts):
            bar.set_postfix_str(part.name)
            with locked(folder / LOCKS / part.name) as mine:
                finished[place] = finished[place] or read_part(folder, part)
                if mine and finished[place] is None:
                    finished[place] = _write(folder, part, *part.work())
                    report(_done(finished))
                if mine:
                    part.clean()
            bar.update()
    finished = [found or read_part(folder, part) for found, part in zip(finished, parts, strict=True)]
    done = _done(finished)
    if done:
        report(done)
    return done, len(parts) - len(done)


def read_part(folder: Path, part: Part) -> Finished | None:
    """The result of a part; None where it is not finished, or is to be made anew."""
    path = folder / FINISHED / f"{part.name}.json"
    if not path.exists():
        return None
    way_out = f"delete it to do {part.name} again"
    found = read_json(path, way_out=way_out)
    with reading(path, way_out=way_out):
        finished = Finished(Record(**found["record"]), found["kept"])
        identity = found["identity"]
    check_same(path, identity, part.identity, otherwise="another folder")
    return None if part.again(finished.record) else finished


def _write(folder: Path, part: Part, record: Record, kept: Any) -> Finished:
    found = {"identity": part.identity, "record": asdict(record), "kept": kept}
    write_json(folder / FINISHED / f"{part.name}.json", found)
    return Finished(record, kept)
