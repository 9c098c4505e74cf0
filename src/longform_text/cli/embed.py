"""``longform embed``: turn documents into vectors."""

from typing import Any

from longform.choices import BOUNDARIES, POOLINGS, STANDARD_OUTPUT
from longform_text.cli.arguments import (
    add_inference_settings,
    add_options,
    chosen_settings,
    command_parser,
    output_stream,
    print_next,
    print_summary,
)

OPTIONS = (
    ("pooling", (*POOLINGS, "max"), None, "null: as the folder says"),
    ("normalise", bool | None, None, "vectors of length 1; null: as the folder says"),
    ("prompt_name", str | None, None, "one of the folder's prompts; null: its default"),
    ("prompt", str | None, None, "text before each document"),
    ("truncate_dim", int | None, None, "first dimensions that are kept; null: all"),
    (
        "chunk_tokens",
        int | None,
        None,
        "tokens of a chunk: one record a chunk, each of which knows its whole document",
    ),
    ("boundaries", BOUNDARIES, "tokens", "where a chunk may begin"),
    ("document_weight", float, 0.0, "weight of the mean of a document's chunks beside each chunk's own vector"),
    (
        "title_field",
        str | None,
        None,
        "title that is read in front of a text and added to each chunk; of a text file its name",
    ),
)


def parser() -> Any:
    """Options of the command."""
    made = command_parser(
        "embed",
        "One vector a document, or one a chunk, in order. Interrupted, it goes on when it is called again.",
    )
    made.add_argument("model", help="folder or hub name of an encoder, or a sentence-transformers folder")
    add_inference_settings(made)
    add_options(made, *OPTIONS)
    return made


def run(settings: Any) -> None:
    """Embed and print what was done."""
    from longform_text.cli.beforehand import check_models
    from longform_text.data.given import Files
    from longform_text.inference.settings import InferenceSettings, check_suffix, look_at
    from longform_text.settings import check_least

    chosen = chosen_settings(InferenceSettings, settings, progress=True)
    check_least(settings, chunk_tokens=1, truncate_dim=1)
    check_suffix(settings.output)
    check_models(settings.model)
    look_at(settings.sources, settings.output, chosen, {"title_field": settings.title_field})
    from longform_text.inference.run import embed

    how = {name: settings[name] for name, *_ in OPTIONS}
    shown = output_stream(settings.output)
    sources = Files(tuple(settings.sources))
    result = embed(settings.model, sources, settings.output, chosen, **how)
    print_summary(result, shown)
    print_next(_next(settings.output), shown)


def _next(output: str) -> str:
    if output == STANDARD_OUTPUT:
        return 'each line\'s "embedding" is the vector of its "id"'
    if output.endswith(".jsonl"):
        return f"in Python: [json.loads(line)['embedding'] for line in open({output!r})] are the vectors"
    return f"in Python: numpy.stack(pandas.read_parquet({output!r})['embedding']) has the vectors"
