"""Settings of the server, with units, checked when made."""

from dataclasses import dataclass
from pathlib import Path

from longform.choices import DTYPES, ON_LONG
from longform.errors import ConfigurationError
from longform_text.settings import check_choices, check_device, check_least, check_positive, one_of

MIB = 2**20


@dataclass(frozen=True)
class ServingSettings:
    """Where the server listens, how it batches, and its limits.

    Args:
        host: address to listen on; 0.0.0.0 is every network.
        port: port to listen on; 0 is any free one.
        name: name of the model in answers; null: the folder's name.
        documents: folder that /v1/search and the page search; null: none.
        text_field: field with the text of documents that are records.
        max_length: tokens taken of a text; null: all that fit.
        on_long: a text over that, cut it (and say so in a header), or refuse it.
        dtype: auto is bfloat16 where it is fast.
        device: auto is the first CUDA GPU if there is one, else the CPU.
        graphs: capture and replay passes on CUDA (Longforms only).
        batch_tokens: tokens in a batch, padding included.
        batch_wait_ms: milliseconds that a text waits for others to share its batch.
        workers: threads that run the model; each has PyTorch's threads.
        max_concurrent_requests: most requests answered at a time; more get 429.
        max_texts: most texts in a request.
        max_request_tokens: most tokens in a request.
        max_request_bytes: most bytes of a request's body.
        max_waiting_tokens: most tokens of all requests that wait for the model; more get 429.
        root_path: path prefix that a proxy removes, as /longform.
        grace_seconds: time after SIGTERM for answering accepted requests.
        api_key: key that requests must send as "Bearer KEY"; null: LONGFORM_API_KEY of the environment, or none.
        cors_origins: origins whose pages may use the server, as https://example.org; none: no other than its own.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    name: str | None = None
    documents: str | None = None
    text_field: str = "text"
    max_length: int | None = None
    on_long: str = one_of(ON_LONG, "truncate")
    dtype: str = one_of(DTYPES, "float32")
    device: str = "auto"
    graphs: bool = True
    batch_tokens: int = 8192
    batch_wait_ms: float = 3.0
    workers: int = 1
    max_concurrent_requests: int = 1024
    max_texts: int = 2048
    max_request_tokens: int = 2**19
    max_request_bytes: int = 4 * MIB
    max_waiting_tokens: int = 2**21
    root_path: str = ""
    grace_seconds: float = 60.0
    api_key: str | None = None
    cors_origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_choices(self)
        if not 0 <= self.port < 2**16:
            raise ConfigurationError(f"port is {self.port}; it is from 0 (any that is free) to 65535")
        if self.root_path and not self.root_path.startswith("/"):
            raise ConfigurationError(f'root_path is "{self.root_path}"; it begins with a slash, as /longform')
        check_device(self.device)
        if self.documents is not None and not Path(self.documents).expanduser().is_dir():
            raise ConfigurationError(f'documents is "{self.documents}", which is no folder')
        positive = (
            "batch_tokens",
            "workers",
            "max_concurrent_requests",
            "max_texts",
            "max_request_tokens",
            "max_request_bytes",
            "max_waiting_tokens",
            "grace_seconds",
        )
        check_positive(self, "max_length", *positive)
        check_least(self, batch_wait_ms=0)
        if self.api_key is not None:
            object.__setattr__(self, "api_key", _checked_key(self.api_key))


def _checked_key(key: str) -> str:
    """The key without white space around it: one that comes from a file ends with its line."""
    key = key.strip()
    if not (key and key.isascii() and key.isprintable()):
        raise ConfigurationError("api_key is empty, or has characters that no HTTP header takes; give ASCII")
    return key
