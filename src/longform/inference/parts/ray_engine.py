"""Parts made on Ray: actors that hold one model each, wherever the cluster has room, and the driver that feeds them.

A part is one call of an actor, which reads, computes and writes it. The driver keeps a call or none for each actor, so
that its memory does not grow with the number of documents, and repeats the part of an actor that died.
"""

import json
import logging
import os
import pickle
import socket
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from longform.data.part_plans import FilePlan, Part, plan_file
from longform.data.places import InputFile
from longform.errors import ConfigurationError, InputError, require
from longform.inference.parts.worker import PartWorker
from longform.inference.prepared import Prepared
from longform.inference.settings import InferenceSettings
from longform.runs.folder import differences

ANSWER = 5.0  # seconds in which an address has to answer
CLIENT = "ray://"
# Ray itself waits for minutes where something listens that is no Ray. Its servers speak HTTP/2 (RFC 9113, section 3.4):
# both sides begin with their settings, of which there may be none.
SETTINGS = b"\x04"
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + SETTINGS + b"\0\0\0\0\0"


def connected(address: str | None) -> bool:
    """Connect to the cluster at ``address``, or start one here; whether the connection is ours to end.

    A connection that the program has already is used. Raises ConfigurationError for an address that does not answer.
    """
    ray = require("ray", extra="ray")
    if ray.is_initialized():
        return False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray 2.60 warns of a change to come
    if address is None:
        ray.init(address="local", include_dashboard=False, **quiet)
        return True
    if address != "auto":
        _check_answers(address)
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        said = " ".join(str(error).split())[:200]
        raise ConfigurationError(f'no Ray cluster at "{address}" ({said}): {_way_out()}') from error
    return True


def _way_out() -> str:
    return "start one with: ray start --head, or leave ray_address (--ray-address) out for a Ray on this machine alone"


def _check_answers(address: str) -> None:
    host, _, port = address.removeprefix(CLIENT).partition("/")[0].rpartition(":")
    if not host or not port.isdigit():
        raise ConfigurationError(f'ray_address is "{address}"; it is auto, HOST:PORT, or {CLIENT}HOST:PORT')
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER) as connection:
            connection.sendall(GREETING)
            if connection.recv(9)[3:4] != SETTINGS:  # the kind of a frame is its fourth byte
                raise OSError("something else is there")
    except (OSError, OverflowError) as error:
        raise ConfigurationError(f'no Ray cluster answers at "{address}" ({error}): {_way_out()}') from error


def disconnect(own: bool) -> None:
    """End the connection where it is ``own``, and with it a Ray that was started here."""
    if own:
        require("ray", extra="ray").shutdown()


def room_for(settings: InferenceSettings) -> int:
    """How many actors are asked for: as many as were named, else those that there is room for.

    Raises ConfigurationError where no machine could hold one, and none were named.
    """
    ray = require("ray", extra="ray")
    needed = {"CPU": settings.num_cpus, "GPU": settings.num_gpus}
    if settings.actors is not None:
        return settings.actors
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    fits = [
        min(int(there.get(name, 0) // least) for name, least in needed.items() if least) if any(needed.values()) else 1
        for there in machines
    ]
    if not sum(fits):
        raise ConfigurationError(
            f"no machine of the cluster has {settings.num_cpus:g} CPUs and {settings.num_gpus:g} GPUs for an actor: "
            "lower num_cpus and num_gpus, or say how many actors there will be room for (--actors)"
        )
    return sum(fits)


AHEAD = 4  # files that are being planned
ATTEMPTS = 3  # at one part, or at a first model, that end with the death of the actor
PATIENCE = 300.0  # seconds in which some actor has to start, where none has work


def own_version() -> str:
    """The version of Longform on this machine."""
    return version("longform")


class PartActor:
    """A PartWorker in a process of the cluster."""

    def load(self, there: str, task: bytes) -> dict[str, Any]:
        """Load the model, and give the run's identity.

        ``there``: the driver's version; ``task``: pickled arguments of PartWorker.

        Raises ConfigurationError where this machine has another version of Longform than the driver.
        """
        if (here := own_version()) != there:
            raise ConfigurationError(
                f"longform is {here} on a worker ({socket.gethostname()}) and {there} where the command runs: "
                "install the same version on all machines"
            )
        arguments = pickle.loads(task)
        self._worker = PartWorker(**arguments)
        return self._worker.identity()

    def work(self, part: Part) -> dict[str, Any]:
        """Write a part, and give its line of the manifest."""
        return self._worker.work(part)


class _Call(NamedTuple):
    """Work of an actor: a part, or None while it loads its model."""

    actor: Any
    part: Part | None


class RayEngine:
    """Actors on Ray, in a ``with`` statement; see ``longform.inference.parts.run.Engine`` for what it does.

    Raises MissingDependencyError without Ray, ConfigurationError where no cluster answers, or none has room.
    """

    def __init__(self, prepare: Callable[[], Prepared], model: str, place: Path, settings: InferenceSettings) -> None:
        self._ray = require("ray", extra="ray")
        self._settings = settings
        skip = settings.on_error == "skip"
        self._task = pickle.dumps({"prepare": prepare, "model": model, "place": place.absolute(), "skip": skip})
        self._identity: dict[str, Any] | None = None
        self._running: dict[Any, _Call] = {}
        self._idle: list[Any] = []
        self._again: deque[Part] = deque()
        self._deaths: Counter[str | None] = Counter()  # by the name of a part; None: while a model was loaded

    def __enter__(self) -> Self:
        self._own = connected(self._settings.ray_address)
        try:
            for _ in range(room_for(self._settings)):
                self._start()
        except BaseException:
            disconnect(self._own)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for actor in [*self._idle, *(call.actor for call in self._running.values())]:
            self._ray.kill(actor)
        disconnect(self._own)

    def identity(self) -> dict[str, Any]:
        """Facts that the run must have in common with an interrupted one, beside its inputs."""
        while self._identity is None:
            self._next()
        return self._identity

    def plans(self, files: Sequence[InputFile]) -> Iterator[FilePlan]:
        """The plans of the files, in order, made by tasks of the cluster."""
        task = self._ray.remote(num_cpus=0)(plan_file)
        started = (task.remote(number, file, self._settings.part_rows) for number, file in enumerate(files))
        ahead = deque(islice(started, AHEAD))
        while ahead:
            plan = self._ray.get(ahead.popleft())
            ahead.extend(islice(started, 1))
            yield plan

    def made(self, parts: Iterator[Part]) -> Iterator[dict[str, Any]]:
        """The line of the manifest of each part, when it is written; parts are asked for as actors are free."""
        while True:
            while self._idle and (part := self._again.popleft() if self._again else next(parts, None)):
                self._give(part)
            if not any(call.part for call in self._running.values()) and self._idle and not self._again:
                return
            row = self._next()
            if row is not None:
                yield row

    def _start(self) -> None:
        options = {"num_cpus": self._settings.num_cpus, "num_gpus": self._settings.num_gpus}
        actor = self._ray.remote(**options)(PartActor).remote()
        self._running[actor.load.remote(own_version(), self._task)] = _Call(actor, None)

    def _give(self, part: Part) -> None:
        actor = self._idle.pop()
        self._running[actor.work.remote(part)] = _Call(actor, part)

    def _next(self) -> dict[str, Any] | None:
        """Wait until a call has ended: the line of its part, None where it was another or has failed."""
        ready, _ = self._ray.wait(list(self._running), timeout=PATIENCE)
        if not ready:
            if any(call.part for call in self._running.values()):
                return None
            raise ConfigurationError(
                f"no actor with {self._settings.num_cpus:g} CPUs and {self._settings.num_gpus:g} GPUs has started in "
                f"{PATIENCE:g} seconds: the cluster has {_resources(self._ray)}"
            )
        call = self._running.pop(ready[0])
        errors = self._ray.exceptions
        try:
            found = self._ray.get(ready[0])
        except errors.RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None
        except errors.RayError as error:
            self._lost(call, error)
            return None
        self._idle.append(call.actor)
        if call.part is not None:
            return found
        self._compare(found)
        return None

    def _compare(self, identity: dict[str, Any]) -> None:
        self._deaths[None] = 0
        identity = json.loads(json.dumps(identity))  # as differences has it
        if self._identity is not None and (other := differences(self._identity, identity)):
            raise ConfigurationError(f"machines of the cluster have different models ({'; '.join(other)})")
        self._identity = identity

    def _lost(self, call: _Call, error: Exception) -> None:
        """An actor has died, by itself or with its machine: another one takes its place, and its part."""
        self._ray.kill(call.actor)
        name = call.part and call.part.name
        self._deaths[name] += 1
        said = " ".join(str(error).split())[:400]
        if call.part is None and self._deaths[None] >= ATTEMPTS:
            raise ConfigurationError(f"{ATTEMPTS} actors ended while they loaded the model; the last one: {said}")
        if call.part is not None:
            if self._deaths[name] >= ATTEMPTS:
                raise InputError(
                    f"{ATTEMPTS} actors ended while they computed rows {call.part.first:,} to "
                    f"{call.part.first + call.part.rows - 1:,} of {call.part.file.name} ({said}): give an actor more "
                    "memory, or take the document that does it out"
                )
            self._again.append(call.part)
        self._start()


def _resources(ray: Any) -> str:
    found = ray.cluster_resources()
    return ", ".join(f"{found[name]:g} {name}" for name in ("CPU", "GPU") if name in found) or "none"
