"""``longform finetune MODEL TEXTS``: train a classifier or regressor on labelled text."""

from typing import Any

from longform_text.cli.arguments import (
    TRAINS,
    add_options,
    add_restart,
    add_training_settings,
    chosen_training_settings,
    command,
    command_parser,
    print_next,
)


def parser() -> Any:
    """The command's jsonargparse.ArgumentParser."""
    from longform_text.training.finetuning.settings import FinetuningSettings

    made = command_parser(
        "finetune",
        f"Train a classifier (of texts or of their words) or regressor on labelled text: a Longform, or any other "
        f"encoder. {TRAINS}finetune ...",
    )
    made.add_argument("model", type=str, help="folder or hub name of the encoder")
    made.add_argument(
        "train", type=str, help=".parquet, .jsonl or .csv file with texts and labels, or hf:NAME[:CONFIG]:SPLIT"
    )
    made.add_argument("--output", type=str, required=True, help="folder for checkpoints, records and the result")
    add_options(
        made,
        ("validation", str | None, None, "file like TRAIN; null: hold a part out"),
        ("text_field", None, "text", "field with the text"),
        ("pair_field", str | None, None, "field with the second text of a pair"),
        ("label_field", None, "label", "field with the label, the number, or the list of labels"),
    )
    add_restart(made)
    add_training_settings(made, FinetuningSettings)
    return made


def run(settings: Any) -> None:
    """Fine-tune, save, and say how good the best model is."""
    from longform_text.cli.beforehand import check_models, check_texts
    from longform_text.training.finetuning.settings import FinetuningSettings

    chosen = chosen_training_settings(FinetuningSettings, settings)
    check_models(settings.model)
    fields = settings.text_field, settings.pair_field, settings.label_field
    check_texts(settings.train, settings.validation, fields=fields)
    from longform_text.training.finetuning.run import finetune

    result = finetune(
        settings.model,
        settings.train,
        chosen,
        validation=settings.validation,
        text_field=settings.text_field,
        pair_field=settings.pair_field,
        label_field=settings.label_field,
        output=settings.output,
        restart=settings.restart,
    )
    print(result.report)
    print_next(command("predict", settings.output, "texts.jsonl", "--output", "labels.jsonl"))
