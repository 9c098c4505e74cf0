"""``longform predict``: label documents with a fine-tuned model."""

from typing import Any

from longform_text.cli.arguments import (
    add_inference_settings,
    chosen_settings,
    command,
    command_parser,
    output_stream,
    print_next,
    print_summary,
)


def parser() -> Any:
    """Options of the command."""
    made = command_parser("predict", "Label documents in order. Call it again after an interruption, and it resumes.")
    made.add_argument("model", help="folder or hub name of a model with a trained classification head")
    add_inference_settings(made, but=("vector_dtype",))
    made.add_argument(
        "--threshold", type=float, default=0.5, help="least probability of a label, for models of several labels"
    )
    return made


def run(settings: Any) -> None:
    """Predict and print what was done."""
    from longform_text.cli.beforehand import check_models, remembered
    from longform_text.data.given import Files
    from longform_text.inference.settings import InferenceSettings, check_suffix, look_at
    from longform_text.settings import check_between

    chosen = chosen_settings(InferenceSettings, settings, progress=True, vector_dtype=InferenceSettings.vector_dtype)
    check_between(settings, 0, 1, "threshold")
    check_suffix(settings.output)
    check_models(settings.model)
    look_at(settings.sources, settings.output, chosen, remembered(settings.model))
    from longform_text.inference.run import predict

    sources = Files(tuple(settings.sources))
    summary = predict(settings.model, sources, settings.output, chosen, threshold=settings.threshold)
    shown = output_stream(settings.output)
    print_summary(summary, shown)
    labelled = ("--data", "labelled.jsonl", "--longform", settings.model)
    print_next(f"{command('evaluate', 'classification', *labelled)} (how often labels are right)", shown)
