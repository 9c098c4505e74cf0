"""``longform serve``: a server of vectors, labels and chunks, for OpenAI's client and others."""

import gc
import os
import time
import webbrowser
from dataclasses import replace
from typing import Any

from longform.errors import require
from longform_text.cli.arguments import add_settings, chosen_settings, command_parser
from longform_text.serving.settings import ServingSettings

KEY = "LONGFORM_API_KEY"
PACKAGES = ("fastapi", "uvicorn", "prometheus_client", "orjson")


def parser() -> Any:
    """Options of the command."""
    made = command_parser(
        "serve", "A server over one model: OpenAI's routes, labels and scores, chunks, search.", texts=False
    )
    made.add_argument("model", help="folder or hub name of an encoder, a sentence-transformers folder or a classifier")
    add_settings(made, ServingSettings, but=("cors_origins",))
    made.add_argument(
        "--cors-origins",
        type=str,
        nargs="*",
        default=[],
        help="origins whose pages may use the server, as https://example.org",
    )
    made.add_argument("--open", action="store_true", help="open the page in a browser once the model is loaded")
    return made


def run(settings: Any) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    from longform_text.cli.beforehand import check_models

    started = time.perf_counter()
    gc.disable()  # looking for garbage among what is being imported is a tenth of the start
    check_models(settings.model)
    chosen = chosen_settings(ServingSettings, settings, cors_origins=tuple(settings.cors_origins))
    chosen = replace(chosen, api_key=chosen.api_key or os.environ.get(KEY) or None)
    for package in PACKAGES:
        require(package, extra="serve")
    from longform_text.serving.server import address_of, bound_socket

    with bound_socket(chosen.host, chosen.port) as listening:
        address = address_of(listening)
        print(f"loading {settings.model} ...", flush=True)
        from longform_text.serving.server import run_server

        def ready(service: Any) -> None:
            gc.freeze()  # what is loaded stays: later searches leave it out
            gc.enable()
            engine = service.engine
            took = time.perf_counter() - started
            print(f"{engine.name} ({engine.kind}, {engine.runner.limit:,} tokens) is ready after {took:.1f} seconds")
            print(f"{address}/ui is a page, {address}/docs has the routes", flush=True)
            if settings.open:
                webbrowser.open(f"{address}/ui")

        run_server(settings.model, chosen, listening, ready)
    print("stopped")
