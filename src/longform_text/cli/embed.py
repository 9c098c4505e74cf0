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
    ("pooling", (*POOLINGS, "max"), None, "how tokens become one vector; null: as the folder says"),
    ("normalise", bool | None, None, "make vectors of length 1; null: as the folder says"),
    ("prompt_name", str | None, None, "one of the folder's prompts; null: its default"),
    ("prompt", str | None, None, "text before each document"),
    ("truncate_dim", int | None, None, "number of first dimensions to keep; null: all"),
    (
        "chunk_tokens",
        int | None,
        None,
        "tokens of a chunk; each chunk has a record, and is pooled from the whole document",
    ),
    ("boundaries", BOUNDARIES, "tokens", "where a chunk may begin"),
    ("document_weight", float, 0.0, "weight of the document's mean vector in each chunk's vector"),
    (
        "title_field",
        str | None,
        None,
        "field with a title (of a text file its name), read in front of the text and added to each chunk",
    ),
)


def parser() -> Any:
    """Options of the command."""
    made = command_parser(
        "embed",
        "Write one vector per document, or per chunk, in order. Call it again after an interruption, and it resumes.",
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
