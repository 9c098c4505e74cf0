"""``longform benchmark``: time and memory of Longform, its floor and its competitors, against length."""

from pathlib import Path
from typing import Any

from longform.cli.arguments import command_parser


def parser() -> Any:
    """The command's jsonargparse.ArgumentParser."""
    made = command_parser(
        "benchmark", "Time (median and spread, in seconds) and peak memory (MiB) of encoders against the length of "
        "their texts, competitors taking turns in one process after their outputs were checked. A competitor that is "
        "not installed, does not fit or takes too long gets a row that says so. Interrupted, it goes on when it is "
        "called again with the same folder. --preset small takes about 10 minutes on 2 CPU cores; bars, bars-train and "
        "paper about an hour each; full takes days and is meant to be cut with the other options.",
    )  # fmt: skip
    made.add_argument("--preset", default="small", help="small, bars, bars-train, million, paper or full; the options "
                      "below replace what it chooses")  # fmt: skip
    made.add_argument("--lengths", type=int, nargs="+", default=[], help="tokens of a text")
    made.add_argument("--sizes", nargs="+", default=[], help="minilm (6 layers x 384), base (12 layers x 768)")
    made.add_argument("--dtypes", nargs="+", default=[], help="float32, bfloat16, int8")
    made.add_argument("--modes", nargs="+", default=[], help="eager, compiled")
    made.add_argument("--passes", nargs="+", default=[], help="inference, train (forward, backward, AdamW)")
    made.add_argument("--batches", nargs="+", default=[], help="texts in a pass; full: as many as --batch-tokens holds")
    made.add_argument("--batch-tokens", type=int, default=0, help="tokens of a full batch; 0: the preset's (16,384)")
    made.add_argument("--slots", type=int, nargs="+", default=[], help="k of pure Linformers; n / 2 where that is less")
    made.add_argument("--competitors", nargs="+", default=[], help="all, a family (ours order full peer sparse) or "
                      "names, as in records")  # fmt: skip
    made.add_argument("--repeats", type=int, default=5, help="rounds of each competitor")
    made.add_argument("--cell-seconds", type=float, default=300.0, help="seconds for all passes of one competitor in "
                      "one cell: fewer rounds are run, or none, to keep it")  # fmt: skip
    made.add_argument("--memory", type=bool, default=True, help="measure peak memory (a pass in another process)")
    made.add_argument("--threads", type=int | None, default=None, help="CPU threads; null: as torch chooses")
    made.add_argument("--device", default="auto", help="auto, cpu, cuda")
    made.add_argument("--output", type=Path, default=Path("runs/benchmark"), help="folder for records and report")
    made.add_argument("--records", type=Path | None, default=None, help="another .jsonl file that new records are "
                      "appended to")  # fmt: skip
    return made


def run(settings: Any) -> None:
    """Measure what is lacking, write the report, and say where it is."""
    from longform.benchmarking.cell_run import Effort
    from longform.benchmarking.competitors import chosen_competitors
    from longform.benchmarking.grid import run_grid
    from longform.benchmarking.report import write_report
    from longform.benchmarking.selection import cells_of, chosen_device, chosen_threads, preset, with_choices

    names = ("lengths", "sizes", "dtypes", "modes", "passes", "batches", "batch_tokens", "slots", "competitors")
    selection = with_choices(preset(settings.preset), **{name: getattr(settings, name) for name in names})
    competitors = chosen_competitors(selection.competitors)
    effort = Effort(repeats=settings.repeats, cell_seconds=settings.cell_seconds, memory=settings.memory)
    cells = cells_of(selection, device=chosen_device(settings.device), threads=chosen_threads(settings.threads))
    records = run_grid(cells, competitors, effort, output=settings.output, also=settings.records)
    write_report(
        records, competitors, settings.output,
        {"repeats": effort.repeats, "cell seconds": effort.cell_seconds, "batch tokens": selection.batch_tokens},
    )  # fmt: skip
    print(f"saved  {settings.output} (report.html, tables.md, pictures, records.jsonl)")
