"""Parts made on a Ray cluster: Ray Data gives them to a pool of actors that hold one model each.

A row of the data set is the number of a part. Ray Data starts actors wherever the cluster has room, replaces those that
die, and has what they had begun done again, which writes the same file.
"""

import contextlib
import json
import logging
import os
import pickle
import socket
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from longform.errors import ConfigurationError, InputError, require
from longform.files import differences
from longform_text.data.parts import Part
from longform_text.inference.parts.output import BEGUN
from longform_text.inference.parts.worker import PartWorker
from longform_text.inference.settings import InferenceSettings

ANSWER = 5.0  # seconds in which an address has to answer
PATIENCE = 300.0  # seconds in which some machine has to have loaded the model
STARTS = 3  # at one part, that end with the death of the actor


Task = tuple[Callable[[], PartWorker], str]  # what makes a worker, and the version of Longform where the command runs


def started(make: Callable[[], PartWorker], there: str) -> PartWorker:
    """A worker on this machine. Raises ConfigurationError where Longform is not the version that it is ``there``."""
    if (here := version("longform")) != there:
        raise ConfigurationError(
            f"longform is {here} on a worker ({socket.gethostname()}) and {there} where the command runs: install the "
            "same version on all machines"
        )
    return make()


def _identity(make: Callable[[], PartWorker], there: str) -> dict[str, Any]:
    return json.loads(json.dumps(started(make, there).identity))  # as ``differences`` has it


class PartActor:
    """A PartWorker in a process of the cluster, as ``ray.data`` calls it.

    What goes wrong is a result: it ends the run as it is, where Ray Data would wrap it.
    """

    def __init__(self, task: Task, parts: Sequence[Part], place: Path, identity: dict[str, Any]) -> None:
        self._task, self._parts, self._place, self._identity = task, parts, place, identity

    def __call__(self, row: dict[str, Any]) -> dict[str, bytes]:
        """The line of the manifest of the part that ``row`` numbers, or the error that ended it."""
        try:
            made: Any = self._made(self._parts[row["item"]])
        except Exception as error:
            made = error
        return {"made": pickle.dumps(made)}

    def _made(self, part: Part) -> dict[str, Any]:
        begun = self._place / f".{part.name}{BEGUN}"
        with begun.open("ab") as file:
            file.write(b".")  # one more start, which stays written where this process dies of the part
            starts = file.tell()
        if starts > STARTS:
            raise InputError(
                f"{STARTS} actors ended while they computed rows {part.first:,} to {part.first + part.rows - 1:,} of "
                f"{part.file.name}: give an actor more memory, or take the document that does it out"
            )
        made = self._worker.work(part)
        begun.unlink(missing_ok=True)  # the actor of a command that was killed may have done it
        return made

    @cached_property
    def _worker(self) -> PartWorker:
        worker = started(*self._task)
        if other := differences(self._identity, worker.identity):
            raise ConfigurationError(f"machines of the cluster have different models ({'; '.join(other)})")
        return worker


class RayEngine:
    """Actors on ``ray``, which is connected, that ``make`` workers for the folder ``place``; as a PartWorker.

    Raises ConfigurationError where no machine has room, and what loading the model raises, which one does at once.
    """

    def __init__(self, ray: Any, make: Callable[[], PartWorker], place: Path, settings: InferenceSettings) -> None:
        self._errors, self._place, self._task = ray.exceptions, place, (make, version("longform"))
        self._actors = settings.actors or _room(ray, settings)
        self._needs = {"num_cpus": settings.num_cpus, "num_gpus": settings.num_gpus}
        identity = ray.remote(**self._needs)(_identity).remote(*self._task)
        try:
            self.identity = ray.get(identity, timeout=PATIENCE)
        except self._errors.GetTimeoutError as error:
            raise ConfigurationError(
                f"no machine with {settings.num_cpus:g} CPUs and {settings.num_gpus:g} GPUs to spare has loaded the "
                f"model in {PATIENCE:g} seconds: lower num_cpus and num_gpus, or add machines"
            ) from error
        except self._errors.RayTaskError as error:
            raise error.cause from None
        except self._errors.RayError as error:
            raise ConfigurationError(f"processes end while they load the model: {_said(error)}") from error

    def made(self, parts: Sequence[Part]) -> Iterator[dict[str, Any]]:
        """The line of the manifest of each part, when it is written, in any order.

        Raises what ended a part, and ConfigurationError where Ray gives up.
        """
        if not parts:  # of which Ray Data makes no data set
            return
        data = require("ray.data", extra="ray")
        logging.getLogger("ray.data").setLevel(logging.ERROR)  # which its import has set
        made = data.from_items(list(range(len(parts))), override_num_blocks=len(parts)).map(
            PartActor,
            fn_constructor_args=(self._task, parts, self._place, self.identity),
            compute=data.ActorPoolStrategy(size=min(self._actors, len(parts))),
            **self._needs,
        )
        made.context.enable_progress_bars = False
        try:
            for row in made.iter_rows():
                found = pickle.loads(row["made"])
                if isinstance(found, Exception):
                    raise found
                yield found
        except self._errors.RayError as error:
            raise ConfigurationError(f"Ray has ended the run: {_said(error)}") from error


def _room(ray: Any, settings: InferenceSettings) -> int:
    """The number of actors that the cluster has room for. Raises ConfigurationError where no machine could hold one."""
    needed = {name: least for name, least in (("CPU", settings.num_cpus), ("GPU", settings.num_gpus)) if least}
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    room = sum(min((int(has.get(name, 0) // least) for name, least in needed.items()), default=1) for has in machines)
    if not room:
        raise ConfigurationError(
            f"no machine of the cluster has {settings.num_cpus:g} CPUs and {settings.num_gpus:g} GPUs for an actor: "
            "lower num_cpus and num_gpus, or say how many actors there will be room for (--actors)"
        )
    return room


@contextlib.contextmanager
def connected(address: str | None) -> Generator[Any]:
    """Ray, connected to the cluster at ``address``, None: to one that starts here and ends with it.

    A connection that the program has already is used. Raises MissingDependencyError without Ray, ConfigurationError
    where no cluster answers.
    """
    ray = require("ray", extra="ray")
    if ray.is_initialized():
        yield ray
        return
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray 2.60 warns of a change to come,
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # and of how Ray Data starts its actors
    try:
        if address not in (None, "auto"):  # where nothing listens Ray itself waits for two minutes
            host, _, port = address.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER).close()
        ray.init(address or "local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, OverflowError, RuntimeError, ValueError, SystemExit) as error:  # Ray exits at something else
        raise ConfigurationError(
            f'no Ray cluster answers at "{address}" ({_said(error)}): it is auto or HOST:PORT on a machine of the '
            "cluster, which begins with: ray start --head; without ray_address (--ray-address) Ray starts here"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _said(error: BaseException) -> str:
    return " ".join(str(error).split())[:400]
