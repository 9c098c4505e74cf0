"""The identity of the run that a folder or an unfinished output belongs to: only the same run may resume it.

The identity (settings, model, data) is a mapping that JSON can hold. It is written before the work begins and compared
at every start.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longform.data.storage import clear_leftovers
from longform.errors import ConfigurationError, some
from longform.runs.files import read_json, write_json
from longform.runs.output import entries


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """ "name: value there, value now" for all that differs, "settings.name: ..." inside mappings; absent is None."""
    now = json.loads(json.dumps(now))  # tuples become lists, as they are in ``before``
    found: list[str] = []
    for name in dict.fromkeys([*before, *now]):
        there, wanted = before.get(name), now.get(name)
        if isinstance(there, dict) and isinstance(wanted, dict):
            found += [f"{name}.{line}" for line in differences(there, wanted)]
        elif there != wanted:
            found.append(f"{name}: {there} there, {wanted} now")
    return found


def check_same(
    place: Path, before: Mapping[str, Any], now: Mapping[str, Any], *, otherwise: str = "another --output"
) -> None:
    """Raise ConfigurationError, naming each difference, where ``place`` was begun with another identity.

    ``otherwise``: the way out beside giving the same settings.
    """
    changed = differences(before, now)
    if changed:
        raise ConfigurationError(
            f'"{place}" was begun with other settings or data ({"; ".join(changed)}): give the same, or {otherwise}'
        )


@dataclass(frozen=True)
class RunFile:
    """The JSON file that says which run ``place``, a folder or an unfinished output, belongs to.

    ``what``: what such a place holds; ``otherwise``: the way out beside giving the same settings; for messages.
    """

    path: Path
    place: Path
    what: str
    otherwise: str = "another --output"

    def read(self, *, begun: Sequence[str]) -> dict[str, Any] | None:
        """Its content, None for a new place. ``begun``: what the place holds beside the file, for a run to lose.

        Raises ConfigurationError for a place of something else, CheckpointError for a damaged file.
        """
        if self.path.exists():
            return read_json(self.path, way_out=f"give {self.otherwise}")
        if begun:
            raise ConfigurationError(
                f'"{self.place}" is not empty ({some(begun)}), and holds no {self.what} ({self.path.name} is missing): '
                "give another output folder (--output)"
            )
        return None

    def open(self, identity: Mapping[str, Any], *, begun: Sequence[str]) -> None:
        """Begin the run, or go on with the same. Raises what ``read`` raises, and for another identity.

        Where nothing is begun, a file is that of a command that was refused before it did anything, and replaced.
        """
        before = self.read(begun=begun) if begun else None
        if before is None:
            write_json(self.path, identity)
        else:
            check_same(self.place, before, identity, otherwise=self.otherwise)


def check_begun(folder: Path, name: str, *, what: str) -> None:
    """Raise ConfigurationError for a folder of something else: what opening it would say, before all is known."""
    RunFile(folder / name, folder, what).read(begun=entries(folder, but=(name,)))


def open_run_folder(
    folder: Path, name: str, identity: Mapping[str, Any], *, what: str, otherwise: str = "another --output"
) -> None:
    """Begin a run in ``folder``, whose file ``name`` holds its identity, or go on with it. Raises as RunFile.open."""
    RunFile(folder / name, folder, what, otherwise).open(identity, begun=entries(folder, but=(name,)))
    clear_leftovers(folder)
