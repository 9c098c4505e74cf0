"""``longform export FOLDER``: the graph of a Longform for ONNX Runtime and OpenVINO."""

from typing import Any

from longform_text.cli.arguments import (
    add_options,
    add_restart,
    command,
    command_parser,
    print_next,
    print_summary,
    print_table,
)

AT_ONCE = True


def parser() -> Any:
    """Options of the command."""
    made = command_parser(
        "export",
        "Write the encoder or classifier of a folder as one ONNX graph (onnx/model.onnx, float32) for every batch and "
        "length. ONNX Runtime and OpenVINO read it.",
        texts=False,
    )
    made.add_argument("folder", type=str, help="folder of a Longform, a sentence-transformers folder or a classifier")
    add_options(
        made,
        ("output", str | None, None, "new folder for a copy with the graph; null: write into the model's folder"),
        ("int8", bool, False, "also write a graph with weights of 8 bits"),
        ("check", bool, False, "compare graph and model at critical lengths"),
    )
    add_restart(made, "an earlier export")
    return made


def run(settings: Any) -> None:
    """Export, and say what was done."""
    from longform_text.cli.beforehand import check_folder

    check_folder(settings.folder)
    from longform_text.export.run import TOLERANCE, as_table, export_model

    result = export_model(
        settings.folder,
        settings.output,
        int8=settings.int8,
        check=settings.check,
        restart=settings.restart,
    )
    if result.checked:
        print_table(f"largest difference from the model, all within {TOLERANCE}", as_table(result.checked))
    print_summary(result)
    print_next(_next(settings, result))


def _next(settings: Any, result: Any) -> str:
    does = "predict" if result.output == "logits" else "embed"
    folder, output = settings.output or settings.folder, "labels.jsonl" if does == "predict" else "vectors.jsonl"
    return command(does, folder, "texts.jsonl", "--output", output, "--backend", "onnx")
