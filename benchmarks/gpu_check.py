"""First measurements on a GPU, in a few minutes on a bare machine; the same as ``make gpu-check``.

::

    python3 -m benchmarks.gpu_check --seconds 540

In order of worth, with results written as they come: times of passes, then of the window's kernels, of captured
encoders and of the paper's Table 3 (alone, since trainings would disturb them), then at once the trainings of
benchmarks.from_nothing_queue and the tests that only a GPU can run. Nothing needs a network or an installed Longform,
but torch, transformers and pytest have to be there; wheels in ``.whl/`` are unpacked beside them (of linformer for the
times, of jsonargparse for the tests of commands). The data that trainings read is made by
``python -m benchmarks.from_nothing --prepare TEXTS.parquet``.

All results are in $OUT, or runs/gpu-check: gpu_timings.jsonl, gpu_kernels.jsonl, from_nothing.jsonl, tests.xml, and a
log of each part.
``--dry`` shows on a CPU in under three minutes that all of it runs.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
SETTLING = 10.0  # seconds that a part has to end by itself
MEASURED = {"timings": 0.3, "kernels": 0.25}  # shares of the time
TESTS = [
    "-m",
    "pytest",
    "tests/longform/device",
    "-v",
    "-p",
    "no:cacheprovider",
    "-W",
    "default",
    "-W",
    "error:Triton fails here",
    "-W",
    "error:passes cannot be captured",
]
DRY_TRAINING = ["--size", "tiny", "--steps", "10", "--tokens-per-step", "512", "--length", "128", "--slots", "16"]


@dataclass
class Check:
    """The parts of a check. ``out``: where everything goes; ``seconds``: for all of it."""

    out: Path
    seconds: float
    processes: int
    dry: bool
    environment: dict[str, str]
    began: float = field(default_factory=time.monotonic)
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def left(self) -> float:
        """Seconds that are left."""
        return self.seconds - (time.monotonic() - self.began)

    def run(self) -> None:
        """Times, then trainings and tests at once."""
        dry = ["--dry"] if self.dry else []
        for name, share in MEASURED.items():
            seconds = share * self.seconds
            command = ["-m", f"benchmarks.gpu_{name}", "--records", str(self.out / f"gpu_{name}.jsonl"), *dry]
            self._finish(self._begin(name, [*command, "--seconds", f"{seconds:.0f}"]), seconds + SETTLING)
        tests = self._begin("tests", [*TESTS, *self._workers(), f"--junitxml={self.out / 'tests.xml'}"])
        training = self._begin("training", self._training())
        self._finish(training, self.left())
        self._finish(tests, self.left())

    def _training(self) -> list[str]:
        queue = ["-m", "benchmarks.from_nothing_queue", "--output", str(self.out), "--processes", str(self.processes)]
        queue += ["--seconds", f"{max(0.0, self.left() - SETTLING):.0f}"]
        return [*queue, *([] if not self.dry else ["--first", "6", *DRY_TRAINING, "--data", str(self._made_up())])]

    def _made_up(self) -> Path:
        """Tokens that cost nothing to make: sawteeth."""
        import numpy as np

        path = self.out / "made_up.npy"
        np.save(path, (np.arange(16_384) % 97 * (np.arange(16_384) % 7 + 1)).astype(np.uint16))
        return path

    def _workers(self) -> list[str]:
        """Several processes where there are the cores and the package; most of the time goes into compiling."""
        cores = os.cpu_count() or 1
        return ["-n", str(cores // 2)] if find_spec("xdist") and not self.dry and cores >= 8 else []

    def _begin(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        """A process group of its own, so that it ends whole; what it says is in ``name``.log."""
        print(f"{name}: begins after {time.monotonic() - self.began:.0f} s", flush=True)
        with (self.out / f"{name}.log").open("ab") as log:
            begun = subprocess.Popen(
                [sys.executable, *command], cwd=ROOT, env=self.environment, stdout=log, stderr=log, process_group=0
            )
        self.running.append(begun)
        return begun

    def _finish(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        """Wait so long, then ask it to end (pytest writes what it has), then make it."""
        for number in (signal.SIGINT, signal.SIGKILL):
            try:
                process.wait(max(0.0, seconds))
                break
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, number)
                seconds = SETTLING / 2
        process.wait()
        self.running.remove(process)

    def end(self) -> None:
        """End the parts that run, where the check itself is ended."""
        for process in list(self.running):
            self._finish(process, 0.0)

    def report(self) -> None:
        """The end of each log: the tables."""
        for name, lines in {"timings": 40, "kernels": 90, "tests": 25, "training": 32}.items():
            path = self.out / f"{name}.log"
            said = path.read_text(errors="replace").splitlines()[-lines:] if path.exists() else []
            print(f"\n== {name}", *said, sep="\n", flush=True)
        print(f"\n{time.monotonic() - self.began:.0f} s; everything is in {self.out}", flush=True)


def environment(scratch: Path) -> dict[str, str]:
    """Variables under which this checkout has its version and commands where it is not installed."""
    if not is_installed("longform"):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        described = scratch / f"longform-{project['version']}.dist-info"
        described.mkdir()
        (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: longform\nVersion: {project['version']}\n")
        groups = {
            name: [f"{key} = {value}" for key, value in group.items()]
            for name, group in project["entry-points"].items()
        }
        said = "\n".join(line for name, lines in groups.items() for line in (f"[{name}]", *lines))
        (described / "entry_points.txt").write_text(f"{said}\n")
    wheels = [str(path) for path in (ROOT / ".whl").glob("*.whl") if not is_installed(path.name.split("-")[0])]
    if wheels:
        options = ["--quiet", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir", "--target", str(scratch)]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, *wheels], check=False)
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    places = [str(ROOT / "src"), str(ROOT), str(scratch), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | quiet | {"PYTHONPATH": os.pathsep.join(places), "LONGFORM_TEST_DEVICE": "1"}


def is_installed(package: str) -> bool:
    """Whether this Python has the package, of whatever version."""
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all parts and print what they found; an interrupted check prints what there is."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_check", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=480.0, help="for all of it")
    parser.add_argument("--processes", type=int, default=3, help="trainings at once")
    parser.add_argument("--dry", action="store_true", help="small sizes")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    out = Path(os.environ.get("OUT") or ROOT / "runs" / "gpu-check").resolve()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        check = Check(out, options.seconds, options.processes, options.dry, environment(Path(scratch)))
        try:
            check.run()
        finally:
            check.end()
            check.report()
    return 0


if __name__ == "__main__":
    sys.exit(main())
