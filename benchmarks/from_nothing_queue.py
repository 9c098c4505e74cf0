"""Trainings of benchmarks.from_nothing in order of worth, several at once, as many as end in the time that there is.

::

    python -m benchmarks.from_nothing_queue --seconds 420 --processes 3 --output runs/from-nothing

A result is a record in OUTPUT/from_nothing.jsonl as soon as it is there; trainings write to OUTPUT/training.log.
Nothing is begun that cannot end in time, by what those before it took; what still runs at the end is asked for what it
has. A training that fails, as of a field that this version does not have, costs its own turn alone.
"""

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from longform_lab.records import ROOT, Record, read_records

RECORDS, LOG = "from_nothing.jsonl", "training.log"
MARGIN = 1.1  # of what a training took, for the next
LAST_WORDS = 12.0  # seconds that trainings have to write what they have
FULL = "full"  # as benchmarks.from_nothing has it, which takes seconds to import
BEST = "weighted_mean+conv5"
LENGTHS = ("512", "1024", "2048", "4096")  # at one k: Figure 3d
QUEUE: tuple[tuple[str, ...], ...] = (  # arguments of benchmarks.from_nothing, what is worth most first
    *((BEST, "--slots", "256", "--length", length) for length in LENGTHS),
    *(
        (name,)
        for name in (FULL, BEST, "weighted_mean+conv3", "weighted_mean+conv7", "weighted_mean", "linear", "mean")
    ),
    *((name,) for name in ("weighted_mean_window16", "weighted_mean_window32", "window", "full+conv5")),
    *((name, "--length", length) for name in (FULL,) for length in LENGTHS[1:]),
    *((BEST, "--slots", "256", "--length", length, "--seed", "1") for length in LENGTHS),
    *((name, "--seed", "1") for name in (FULL, BEST, "weighted_mean+conv3", "weighted_mean+conv7", "weighted_mean")),
    *((BEST, "--slots", slots) for slots in ("32", "64")),
    *((name,) for name in ("linear@network", "mean+conv5", "linear+conv5", "window+conv5")),
)


@dataclass
class Queue:
    """Trainings that wait and that run. ``given``: arguments of all; ``log``: where they write."""

    waiting: list[tuple[str, ...]]
    given: list[str]
    processes: int
    deadline: float  # of time.monotonic, when all has to have ended
    log: TextIO
    running: dict[subprocess.Popen[bytes], float] = field(default_factory=dict)  # and when they began
    longest: float = 0.0  # seconds of one that ended well

    def run(self) -> None:
        """Run as many trainings as the time allows."""
        try:
            while (self.waiting and self._fits()) or self.running:
                while self.waiting and len(self.running) < self.processes and self._fits():
                    self._begin(self.waiting.pop(0))
                self._collect()
                if time.monotonic() > self.deadline - LAST_WORDS:
                    break
                time.sleep(0.1)
        finally:
            self._end()

    def _fits(self) -> bool:
        return time.monotonic() + MARGIN * self.longest < self.deadline - LAST_WORDS

    def _begin(self, training: tuple[str, ...]) -> None:
        command = [sys.executable, "-m", "benchmarks.from_nothing", *training, *self.given]
        begun = subprocess.Popen(command, cwd=ROOT, stdout=self.log, stderr=self.log)
        self.running[begun] = time.monotonic()

    def _collect(self) -> None:
        for process in [process for process in self.running if process.poll() is not None]:
            took = time.monotonic() - self.running.pop(process)
            if process.returncode == 0:
                self.longest = max(self.longest, took)

    def _end(self) -> None:
        """Stop all trainings: those that run write what they have first."""
        for process in self.running:
            process.terminate()
        last = time.monotonic() + LAST_WORDS / 2
        for process in self.running:
            try:
                process.wait(max(0.0, last - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()


def table(records: Sequence[Record]) -> str:
    """A line for each training; losses as parts of full attention's of the same seed and length."""
    full = {place(record): loss(record) for record in records if record.settings["variant"] == FULL}
    lines = [f"{'':22} seed     n    k   steps    loss  of full's  tokens/s   min  mode"]
    for record in records:
        chosen, found, reached = record.settings, record.metrics, loss(record)
        beside = full.get(place(record))
        ratio = f"{reached / beside:.3f}" if reached and beside else "-"
        lines.append(
            f"{chosen['variant']:22} {chosen['seed']:4} {chosen['length']:5} {chosen['slots']:4} "
            f"{found['steps_done']:7} {f'{reached:.3f}' if reached else '-':>7}  {ratio:>9}  "
            f"{found['tokens_per_second']:8,.0f} {found['minutes']:5.2f}  {chosen['mode']}"
        )
    return "\n".join(lines)


def place(record: Record) -> tuple[int, int]:
    """The seed and the length: what a loss may be compared by."""
    return record.settings["seed"], record.settings["length"]


def loss(record: Record) -> float | None:
    """The final loss, None of a training that did not end."""
    found = record.metrics["loss"]
    return found if isinstance(found, float) else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the queue, then print the table; other options are handed on to every training."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.from_nothing_queue", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--seconds", type=float, default=420.0)
    parser.add_argument("--processes", type=int, default=3, help="trainings that share the GPU")
    parser.add_argument("--first", type=int, default=len(QUEUE), help="so many of the queue")
    parser.add_argument("--after", type=int, default=0, help="so many that were done before")
    parser.add_argument("--output", type=Path, default=Path("runs/from-nothing"))
    options, given = parser.parse_known_args(arguments)
    deadline = time.monotonic() + options.seconds
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    output = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    records = output / RECORDS
    try:
        with (output / LOG).open("a") as log:
            waiting = list(QUEUE[options.after : options.after + options.first])
            Queue(waiting, [*given, "--records", str(records)], options.processes, deadline, log).run()
    finally:
        print(
            table(read_records([records])) if records.exists() else f"no training ended; see {output / LOG}", flush=True
        )
    return 0 if records.exists() else 1


if __name__ == "__main__":
    sys.exit(main())
