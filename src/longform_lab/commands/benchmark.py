"""``longform benchmark``: time and memory of Longform and its competitors, against length."""

from pathlib import Path
from typing import Any

from longform.choices import DTYPES
from longform.errors import require
from longform_text.cli.arguments import add_options, add_restart, command_parser, print_next

SUMMARY = "time and memory against text length, compared with other encoders"

# What the tables of longform_lab.speed have, which import torch; a test compares them.
PRESETS = ("small", "bars", "million", "paper", "full")
SIZES = ("tiny", "minilm", "base")
FAMILIES = ("ours", "full", "peer", "sparse")
COMPETITORS = (
    "ours-window", "ours-linear", "ours-linear-key-value", "ours-linear-headwise", "ours-linear-none", "ours-mean",
    "ours-convolution", "sdpa", "bert-sdpa", "unfused", "lucidrains", "lucidrains-share-kv", "tatp22", "longformer",
    "bigbird", "nystromformer", "modernbert", "reformer", "performer", "recurrent",
)  # fmt: skip


def parser() -> Any:
    """The command's jsonargparse.ArgumentParser."""
    made = command_parser(
        "benchmark",
        "Measure time (median and spread, in seconds) and peak memory (MiB) of encoders against text length. "
        "Competitors take turns in one process after their outputs were checked. A competitor that is not installed, "
        "does not fit or takes too long gets a row that says so. After an interruption, the same command continues. It "
        "keeps finished rows, even if the code has changed since (see --restart), and repeats rows that lacked a "
        "package, a compiler, memory or time. On 2 CPU cores --preset small takes about 10 minutes, bars about 60, "
        "million about 20, paper about 90. full takes days; shorten it with the other options.",
        example="--preset small --output runs/benchmark",
    )
    add_options(
        made,
        (
            "preset",
            PRESETS,
            "small",
            "what is measured; --lengths to --competitors replace the choices of its first stage and leave out the "
            "other stages",
        ),
        ("lengths", int, [], "tokens of a text"),
        ("sizes", SIZES, [], "minilm: 6 layers x 384; base: 12 layers x 768; tiny: for a trial"),
        ("dtypes", DTYPES, [], "auto: bfloat16 if the hardware multiplies it, else float32"),
        ("modes", ("eager", "compiled"), [], "how a model runs"),
        ("passes", ("inference", "train"), [], "train: forward, backward, AdamW"),
        ("batches", None, [], "texts in a pass; full: as many as --batch-tokens holds"),
        ("batch_tokens", int, 0, "tokens of a full batch; 0: the preset's"),
        ("slots", int, [], "k of pure Linformers; n / 2 where that is less"),
        (
            "competitors",
            ("all", *FAMILIES, *COMPETITORS),
            [],
            f"all, a family ({' '.join(FAMILIES)}), or names as in the records",
        ),
        ("repeats", int, 5, "rounds of each competitor"),
        (
            "cell_seconds",
            float,
            0.0,
            "limit in seconds for all passes of one competitor in one cell; it may run fewer rounds or none; 0: the "
            "preset's",
        ),
        ("threads", int | None, None, "CPU threads; leave out for torch's choice"),
        ("device", ("auto", "cpu", "cuda"), "auto", "auto: the first GPU if there is one, else the CPU"),
        ("output", str, "runs/benchmark", "folder for records and report"),
    )
    add_restart(made, "the rows that are there; the records so far stay in the folder as records-until-TIME.jsonl")
    add_options(
        made,
        ("records", Path | None, None, "a .jsonl file to append new records to as well"),
    )
    return made


def run(settings: Any) -> None:
    """Measure missing rows, write the report, and print where it is."""
    from longform.files import check_output, sole_output
    from longform_lab.speed.cells import Effort
    from longform_lab.speed.competitors import chosen_competitors
    from longform_lab.speed.presets import chosen_stages
    from longform_lab.speed.selection import cells_of, chosen_threads
    from longform_text.inference.loading import pick_device

    names = ("lengths", "sizes", "dtypes", "modes", "passes", "batches", "batch_tokens", "slots", "competitors")
    what = {name: getattr(settings, name) for name in names}
    how = {"cell_seconds": settings.cell_seconds}
    device, threads = pick_device(settings.device).type, chosen_threads(settings.threads)
    stages = []
    for selection in chosen_stages(settings.preset, what, how):
        effort = Effort(settings.repeats, selection.cell_seconds, selection.memory)
        cells = cells_of(selection, device=device, threads=threads)
        stages.append((cells, chosen_competitors(selection.competitors), effort))
    require("matplotlib", extra="train")  # all of this is better known before the first hour
    if settings.records is not None:
        check_output(settings.records)
    with sole_output(settings.output, folder=True) as output:
        _measure(stages, settings, output)
    print(f"saved  {output} (report.html, table.md, pictures, records.jsonl)")
    print_next(f"open {output}/report.html")


def _measure(stages: Any, settings: Any, output: Path) -> None:
    from longform_lab.speed.competitors import chosen_competitors
    from longform_lab.speed.grid import key_of, open_grid, run_grid, set_aside
    from longform_lab.speed.report import report_benchmark

    open_grid(output)
    if settings.restart and (aside := set_aside(output)):
        print(f"set aside  {aside}")
    shown = chosen_competitors(["all"])
    records: dict[str, Any] = {}
    for cells, competitors, effort in stages:
        rows = run_grid(cells, competitors, effort, output=output, also=settings.records)
        records |= {key_of(row.settings): row for row in rows}
        report_benchmark(list(records.values()), shown, output, {"at most": f"{settings.repeats} rounds"})
