"""The Ray cluster of a run: one that is there, found out within seconds, or one of its own on this machine."""

import logging
import os
import socket
from typing import Any

from longform.errors import ConfigurationError, require
from longform.inference.settings import InferenceSettings

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
