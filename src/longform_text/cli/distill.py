"""``longform distill STUDENT TEACHER TEXTS...``: a converted model trained to imitate its original."""

from typing import Any

from longform_text.cli.arguments import (
    TRAINS,
    add_restart,
    add_training_settings,
    chosen_training_settings,
    command,
    command_parser,
    print_next,
)


def parser() -> Any:
    """The command's jsonargparse.ArgumentParser."""
    from longform_text.training.distillation.settings import DistillationSettings

    made = command_parser(
        "distill",
        f"Train a converted model to imitate its original, on unlabelled text. {TRAINS}distill ...",
    )
    made.add_argument("student", type=str, help="folder of the converted model (longform convert)")
    made.add_argument("teacher", type=str, help="folder or hub name of the original encoder")
    made.add_argument("texts", nargs="+", help="text, .jsonl or .parquet files, folders, or hf:NAME[:CONFIG]:SPLIT")
    made.add_argument("--output", type=str, required=True, help="folder for checkpoints, records and the result")
    made.add_argument("--text-field", default="text", help="field of a record that holds its text")
    add_restart(made)
    add_training_settings(made, DistillationSettings)
    return made


def run(settings: Any) -> None:
    """Distil, save, and say how the student agrees with its teacher."""
    from longform_text.cli.beforehand import check_models
    from longform_text.data.text import look
    from longform_text.training.distillation.settings import DistillationSettings

    chosen = chosen_training_settings(DistillationSettings, settings)
    check_models(settings.student, settings.teacher)
    look(settings.texts, settings.text_field)
    from longform_text.data.token_store import CorpusFiles
    from longform_text.training.distillation.run import distill

    texts = CorpusFiles(tuple(settings.texts), settings.text_field)
    result = distill(
        settings.student,
        settings.teacher,
        texts.read_again(),
        chosen,
        output=settings.output,
        restart=settings.restart,
    )
    print(result.report)
    better = settings.student if result.worse else settings.output
    print_next(
        f"{command('finetune', better, 'labelled.jsonl', '--output', 'classifier')}, or "
        f"{command('embed', better, 'texts.jsonl', '--output', 'vectors.jsonl')}"
    )
