"""``longform reproduce SUBJECT``: the paper's tables and figures, measured here."""

from pathlib import Path
from typing import Any

from longform.errors import require
from longform_text.cli.arguments import add_options, command_parser, one_of, print_next, print_table
from longform_text.data.token_store import input_paths

SUMMARY = "measure the paper's tables and figures on this machine"

FIGURE3_SEEDS, TABLE2_SEEDS = [0, 1], [0, 1, 2]
GIVEN: dict[str, Any] = {  # what "all" takes, and a subject's value where it makes no use of it
    "text": [],
    "data": None,
    "text_field": None,
    "from_twin": None,
    "seeds": [],
    "device": None,
}
TINY = 64  # tokens of figure 1's texts at that scale
Done = tuple[Any, int]  # a Report, or None where nothing is finished; how many parts another process is at


def parser() -> Any:
    """The command's jsonargparse.ArgumentParser."""
    from longform_lab.paper.reproduce import SCALES, SUBJECTS

    subjects = "; ".join(f"{name}: {subject.shows} ({subject.small})" for name, subject in SUBJECTS.items())
    made = command_parser(
        "reproduce",
        "Measure a table or figure of the Linformer paper (arXiv 2006.04768) on this machine, and write records, "
        "pictures and report.html to a folder. After an interruption, the same command continues; each finished part "
        "is a file. A training takes one process, without torchrun. To use several processes, run the same command "
        f"several times. Subjects, with the time of --scale small on 2 CPU cores: {subjects}. --scale paper has the "
        "paper's sizes, for GPUs and days.",
        example="table3 --output runs/table3",
    )
    made.add_argument("subject", **one_of(tuple(SUBJECTS)), help="table or figure to measure")
    add_options(
        made,
        ("output", Path | None, None, "folder to write; null: runs/SUBJECT"),
        (
            "scale",
            SCALES,
            "small",
            "tiny: minutes, to check that everything runs; small: two CPU cores; paper: the paper's sizes",
        ),
        (
            "text",
            str,
            [],
            "text, .jsonl or .parquet files, folders, or hf:NAME[:CONFIG]:SPLIT; figures 1 and 3 measure or train on "
            "them, table2 heals converted models on them before fine-tuning",
        ),
        ("text_field", str | None, None, "field with the text; null: text"),
        (
            "data",
            str | None,
            None,
            "table2: folder with sst2_train, sst2_dev, imdb_train, qnli_part, mrpc_train, rte_train (.parquet, .jsonl "
            "or .csv), or hf",
        ),
        (
            "seeds",
            int,
            [],
            "figure 3, table2: seeds, one after another for all models; leave out for 0 1, or 0 1 2 (table2)",
        ),
        (
            "from_twin",
            int | None,
            None,
            "figure 3: optimiser steps of full attention whose weights all models then start from; leave out to train "
            "all from scratch",
        ),
        (
            "preset",
            str | None,
            None,
            "figure 3: name or YAML file of a longform pretrain preset for model and training; null: the scale's",
        ),
        (
            "also",
            str,
            [],
            "figure 3: additional models (window, convolution, mean) with k = n / 4, in figure3d at each n, else at "
            "the first",
        ),
        (
            "shared",
            Path | None,
            None,
            "figure 3: folder of tokens and trainings for several figures; several processes may train in it; leave "
            "out to use the output",
        ),
        ("tasks", str, [], "table2: some of SST-2 IMDB QNLI MRPC RTE; null: all"),
        ("models", str, [], "table2: original, window, linear-K-SHARING, weighted-K; null: all"),
        (
            "model",
            str | None,
            None,
            "figure1, table2: folder or hub name of the original; null: the scale's (small: the demo's MiniLM)",
        ),
        (
            "lengths",
            int,
            [],
            "tables 1 and 3, figures 1 and 2: tokens of a text; table2: length that texts are cut to; one length for "
            "figure1 and table2; leave out for the scale's, and for 512 in figure1",
        ),
        ("device", str | None, None, "tables 1 and 3, figures 1 and 2: cpu, cuda"),
    )
    return made


def run(settings: Any) -> None:
    """Measure missing parts, and print the table."""
    from longform.files import check_begun, check_output
    from longform_lab.paper.reproduce import check_options

    given = frozenset(
        name
        for name, value in vars(settings).items()
        if name not in ("subject", "output", "scale", "config") and value not in (None, False, [])
    )
    check_options(settings.subject, given)
    require("matplotlib", extra="train")  # before hours of work, not after
    output = settings.output or Path("runs") / settings.subject
    for place in filter(None, (settings.shared, output)):
        output = check_output(place, inputs=input_paths((settings.text, settings.data, settings.model)), folder=True)
    if settings.subject not in ("figure1", "all"):  # whose folders are that of longform spectrum, and none of its own
        check_begun(output, "reproduce.json", what=settings.subject)
    report, lacking = DOERS[settings.subject.rstrip("abcd")](settings, output)
    if report is not None:
        _print(report)
    if lacking:
        print(f"{lacking} parts are not finished: another process is at them; call again when it has ended")
    parts = "a folder for each subject" if settings.subject == "all" else "table.md, records.jsonl, pictures"
    print(f"saved  {output} (report.html, {parts})")
    print_next("call the same again" if lacking else f"open {output}/report.html")


def _print(report: Any) -> None:
    for section in report.sections:
        table = section.table
        if table is not None and table.rows:
            title = report.title if section.title == "Results" else section.title
            print_table(title, [dict(zip(table.heads, row, strict=True)) for row in table.rows])


def _everything(settings: Any, output: Path) -> Done:
    from longform_lab.paper.everything import write_everything
    from longform_lab.paper.reproduce import STAGES, SUBJECTS

    reports: dict[str, Any] = {}
    lacking, page = 0, None
    for number, name in enumerate(STAGES, start=1):
        print(f"[{number}/{len(STAGES)}] {name}: {SUBJECTS[name].shows}")
        one, subject = settings.clone(), SUBJECTS[name]
        for option in set(GIVEN) - {*subject.needs, *subject.takes}:
            one[option] = GIVEN[option]
        one.subject, one.lengths = name, [TINY] if (name, settings.scale) == ("figure1", "tiny") else []
        one.shared = output / "figure3" if name.startswith("figure3") else None
        report, missing = DOERS[name.rstrip("abcd")](one, output / name)
        lacking += missing
        if report is not None:
            reports[name] = report
            page = write_everything(output, reports, lacking=lacking)
    return page, lacking


def _figure3(settings: Any, output: Path) -> Done:
    from longform_lab.paper.figure3 import reproduce_figure3
    from longform_lab.paper.figure3_plan import planned, preset_of
    from longform_lab.paper.figure3_report import page_of_figure3

    preset = preset_of(settings.scale, settings.preset)
    plan = planned(settings.subject, preset, also=settings.also, from_twin=settings.from_twin)
    seeds = settings.seeds or FIGURE3_SEEDS
    finished, lacking = reproduce_figure3(
        plan,
        settings.text,
        output,
        seeds=seeds,
        shared=settings.shared,
        text_field=settings.text_field or "text",
    )
    return page_of_figure3(plan, seeds, finished) if finished else None, lacking


def _table2(settings: Any, output: Path) -> Done:
    from dataclasses import replace

    from longform_lab.paper.table2 import SCALES, Table2, reproduce_table2
    from longform_lab.paper.table2_models import variants
    from longform_lab.paper.table2_report import page_of_table2
    from longform_lab.paper.table2_tasks import TASKS

    scale = SCALES[settings.scale]
    if settings.model is not None:
        scale = replace(scale, model=settings.model)
    if settings.lengths:
        scale = scale.cut_at(settings.lengths)
    finished, lacking = reproduce_table2(
        Table2(
            scale,
            settings.data,
            output,
            seeds=tuple(settings.seeds or TABLE2_SEEDS),
            tasks=tuple(settings.tasks or TASKS),
            models=tuple(settings.models or variants()),
            healing_text=tuple(settings.text or ()),
            text_field=settings.text_field or "text",
        )
    )
    rows = [one.row for one in finished]
    return page_of_table2(rows, asked=len(rows) + lacking) if rows else None, lacking


def _figure1(settings: Any, output: Path) -> Done:
    from longform.conversion.local import local_source
    from longform.errors import ConfigurationError
    from longform_lab.commands.spectrum import eager_encoder
    from longform_lab.paper.figure1 import page_of_figure1, reproduce_figure1

    device = settings.device or "auto"
    if len(settings.lengths) > 1:
        raise ConfigurationError(f"figure1 is measured at one length, not {len(settings.lengths)}")
    results = reproduce_figure1(
        settings.scale,
        settings.text,
        output,
        max_length=(settings.lengths or [512])[0],
        device=device,
        text_field=settings.text_field or "text",
        models=[settings.model] if settings.model else (),
        opener=lambda name: eager_encoder(local_source(name), device),
    )
    return page_of_figure1(results), 0


def _grid(settings: Any, output: Path) -> Done:
    from longform_lab.paper.grids import reproduce_grid

    subject = "table1" if settings.subject == "table1" else "table3"  # which has figure2 too
    device = settings.device or "auto"
    return reproduce_grid(subject, settings.scale, output, lengths=settings.lengths, device=device), 0


DOERS = {
    "all": _everything,
    "figure1": _figure1,
    "figure2": _grid,
    "figure3": _figure3,
    "table1": _grid,
    "table2": _table2,
    "table3": _grid,
}
