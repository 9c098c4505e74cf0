"""The server's process: its socket, uvicorn, a stop that answers what was accepted."""

import asyncio
import errno
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

import uvicorn

from longform.errors import ConfigurationError
from longform_text.serving.app import create_app
from longform_text.serving.engine import Engine
from longform_text.serving.service import Service
from longform_text.serving.settings import ServingSettings


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that has the port, and does not listen yet. Raises ConfigurationError where it cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigurationError(
                f"port {port} of {host} is in use: choose another (--port), 0 for any that is free"
            ) from error
        raise ConfigurationError(f"the server cannot listen on {host}, port {port}: {error.strerror}") from error
    return made


def address_of(listening: socket.socket) -> str:
    """Where the server is found, as a URL."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def allow_many_connections() -> None:
    """Let this process have as many open sockets as the system grants it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


KEPT_OPEN = 65  # seconds that a connection may be idle
AFTER = 2  # seconds for the last answers to leave, once nothing is computed any more


def run_server(
    folder: str, settings: ServingSettings, listening: socket.socket, ready: Callable[[Service], None]
) -> None:
    """Serve a folder until SIGTERM or Ctrl-C; ``ready`` is called once the model is loaded.

    Raises what loading raised.
    """
    allow_many_connections()
    app = create_app(settings, lambda: Engine.load(folder, settings))
    config = uvicorn.Config(
        app,
        http="h11",
        log_level="warning",
        access_log=False,
        lifespan="on",
        server_header=False,
        limit_concurrency=4 * settings.max_concurrent_requests,
        timeout_keep_alive=KEPT_OPEN,
        timeout_graceful_shutdown=int(settings.grace_seconds) + AFTER,
    )
    server = _Server(config, app.service)

    def loaded() -> None:
        if app.service.failure is None:
            ready(app.service)
        else:
            server.should_exit = True

    app.service.on_loaded = loaded
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stopped)
    server.run(sockets=[listening])
    if app.service.failure is not None:
        raise app.service.failure
    _leave(app.service)


def _stopped(number: int, frame: Any) -> None:
    """Nothing: uvicorn, which raises the signal again after its own stop, has done it all."""


def _leave(service: Service) -> None:
    """End the process here where a pass is still running in a thread: Python would tear down what it works on."""
    if any(worker.is_alive() for worker in service.workers):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse what comes, answer what was accepted, and after the time for that refuse what is left of it."""
        self.service.stopping = True
        end = asyncio.get_running_loop().call_later(self.service.settings.grace_seconds, self.service.stop)
        await super().shutdown(sockets)
        end.cancel()
