"""The socket that the server listens on, bound before anything slow begins."""

import errno
import resource
import socket

from longform.errors import ConfigurationError


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
