"""``longform embed``: turn documents into vectors."""

from typing import Any

from longform.choices import BOUNDARIES, POOLINGS
from longform.cli.arguments import add_input_options, add_model_options, command_parser
from longform.cli.printing import print_summary
from longform.cli.settings_options import chosen_settings


def parser() -> Any:
    """Options of the command."""
    made = command_parser(
        "embed", "One vector a document, or one a chunk, in order. Interrupted, it goes on when it is called again."
    )
    made.add_argument("model", help="folder or hub name of an encoder, or a sentence-transformers folder")
    add_input_options(made)
    poolings = f"{', '.join(POOLINGS)} or max; null: as the folder says"
    made.add_argument("--pooling", type=str | None, default=None, help=poolings)
    made.add_argument(
        "--normalise", type=bool | None, default=None, help="vectors of length 1; null: as the folder says"
    )
    made.add_argument(
        "--prompt-name", type=str | None, default=None, help="one of the folder's prompts; null: its default"
    )
    made.add_argument("--prompt", type=str | None, default=None, help="text before each document")
    made.add_argument("--truncate-dim", type=int | None, default=None, help="first dimensions that are kept; null: all")
    made.add_argument("--chunk-tokens", type=int | None, default=None,
                      help="tokens of a chunk: one record a chunk, each of which knows its whole document")  # fmt: skip
    made.add_argument(
        "--boundaries", type=str, default="tokens", help=f"where a chunk may begin: {', '.join(BOUNDARIES)}"
    )
    add_model_options(made, compiling=True)
    return made


def run(settings: Any) -> None:
    """Embed and print what was done."""
    from longform.data.given import Files
    from longform.inference.run import InferenceSettings, embed

    chosen = chosen_settings(InferenceSettings, settings, progress=True)
    names = ("pooling", "normalise", "prompt_name", "prompt", "truncate_dim", "chunk_tokens", "boundaries")
    how = {name: settings[name] for name in names}
    print_summary(embed(settings.model, Files(tuple(settings.sources)), settings.output, chosen, **how))
