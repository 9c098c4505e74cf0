"""``longform align MODEL PAIRS...``: an encoder learns to find long documents by queries."""

from typing import Any

from longform_text.cli.arguments import (
    TRAINS,
    add_options,
    add_restart,
    add_settings,
    add_training_settings,
    chosen_training_settings,
    command,
    command_parser,
    print_next,
)

FIELDS = (
    "query_field",
    "document_field",
    "relevant_field",
    "id_field",
    "text_field",
    "title_field",
    "spans_field",
    "first",
)


def parser() -> Any:
    """The command's jsonargparse.ArgumentParser."""
    from longform_text.training.alignment.settings import AlignmentSettings, AlignmentSource

    made = command_parser(
        "align",
        "Train an encoder to find long documents by queries: by pairs, by queries beside documents, or by "
        'pairs made of texts alone. Several sources are mixed by a recipe: --config FILE.yaml with a list "sources". '
        f"{TRAINS}align ...",
    )
    made.add_argument("model", type=str, help="sentence-transformers folder or hub name, a Longform or not")
    made.add_argument(
        "pairs",
        nargs="*",
        type=str,
        help="files of pairs (query, document); with --documents of queries; with --make "
        "of texts; .jsonl, .csv, .parquet, or hf:NAME[:CONFIG]:SPLIT",
    )
    made.add_argument("--output", type=str, required=True, help="folder for checkpoints, records and the result")
    make = "pairs made of texts: of sentence, passage, title, halves, as in '[passage, title]'; null: none"
    add_options(
        made,
        ("documents", str | None, None, "file with the documents of the queries"),
        ("make", list[str] | None, None, make),
    )
    add_settings(made, AlignmentSource, only=FIELDS)
    sources = "in a --config file: several sources, each with a weight, in place of PAIRS"
    add_options(made, ("sources", list[AlignmentSource] | None, None, sources))
    add_restart(made)
    add_training_settings(made, AlignmentSettings)
    return made


def run(settings: Any) -> None:
    """Align, save, and say how held-out documents are found."""
    from longform_text.cli.beforehand import check_models, check_texts
    from longform_text.training.alignment.settings import AlignmentSettings

    chosen, sources = chosen_training_settings(AlignmentSettings, settings), _sources(settings)
    check_models(settings.model)
    for given, fields in (read for each in sources for read in each.reads() if isinstance(read[0], str)):
        check_texts(given, fields=fields)
    from longform_text.training.alignment.run import align

    result = align(settings.model, sources, chosen, output=settings.output, restart=settings.restart)
    print(result.report)
    print_next(command("search", "documents", "a question", "--model", settings.output))


def _sources(settings: Any) -> list[Any]:
    """A source for each of PAIRS, or those of the recipe."""
    from longform.errors import ConfigurationError
    from longform_text.training.alignment.settings import AlignmentSource

    listed = [AlignmentSource(**vars(each)) for each in settings.sources or []]
    if bool(listed) == bool(settings.pairs):
        raise ConfigurationError('give PAIRS, or a recipe: --config FILE.yaml with a list "sources"')
    if settings.documents is not None and settings.make is not None:
        raise ConfigurationError("--documents goes with queries, --make with texts alone: give one of them")
    fields = {name: getattr(settings, name) for name in FIELDS}
    if settings.documents is not None:
        fields["documents"], kind = settings.documents, "queries"
    elif settings.make is not None:
        fields["make"], kind = settings.make, "texts"
    else:
        kind = "pairs"
    return listed or [AlignmentSource(**fields, **{kind: each}) for each in settings.pairs]
