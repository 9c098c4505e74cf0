"""The compiled kernels under sanitizers, as loops that run on any machine; campaign/sanitized.py calls them.

Addresses and undefined behaviour are looked at with one thread and with three, then races between four. A compiler that
has no sanitizer fails the tests.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from campaign.counting import Tally, scaled

from longform.functional.native import library
from longform.functional.native.jobs import KERNELS

CAMPAIGN = Path(__file__).parent
SOURCES = Path(library.__file__).parent / "csrc"
ENDS = tuple(f"_{units}" for units in library.UNITS)
MEMORY, RACES = "address,undefined", "thread"
RUNTIMES = {MEMORY: ["asan", "ubsan", "stdc++"], RACES: ["tsan"]}
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0",  # Python's own
    "TSAN_OPTIONS": "halt_on_error=1 ignore_noninstrumented_modules=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
CASES = {MEMORY: scaled(15, 100), RACES: scaled(10, 30)}  # of four kinds
PLANTED = {  # file, what is there, what is put in its place, and what the sanitizer says
    "a tensor": (
        MEMORY,
        "linear.c",
        "job->x + (end - rows + i) * job->x_row",
        "job->x + (end + i) * job->x_row",
        "heap-buffer-overflow",
    ),
    "a workspace": (
        MEMORY,
        "linear.c",
        "job->inputs) - memory;",
        "job->inputs) - memory - 64;",
        "heap-buffer-overflow",
    ),
    "division": (
        MEMORY,
        "linear.c",
        "task / w->cut.sides *",
        "task / (w->cut.sides - w->cut.sides) *",
        "division by zero",
    ),
    "a race": (RACES, "tasks.h", "__atomic_fetch_add(tasks, 1, __ATOMIC_RELAXED)", "(*tasks)++", "data race"),
}


def compiler() -> str:
    """The compiler that built Python, and builds the library too."""
    return (sysconfig.get_config_var("CC") or "cc").split()[0]


def runtimes(sanitizer: str) -> str:
    """The sanitizer's libraries, which a process needs before all others."""
    found = []
    for name in RUNTIMES[sanitizer]:
        asked = [compiler(), f"-print-file-name=lib{name}.so"]
        found.append(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
        assert Path(found[-1]).is_absolute(), f"{compiler()} has no lib{name}.so: install GCC with its sanitizers"
    return " ".join(found)


def build(folder: Path, sanitizer: str, sources: Path = SOURCES) -> Path:
    """The library of the kernels as loops, which stand for those of all units, with a sanitizer; ``sources``: the C."""
    path, kernels = folder / "_kernels.so", [f"{name}{end}" for name in KERNELS.values() for end in ("", "_workspace")]
    files = [str(file) for file in sorted(sources.glob("*.c")) if not file.stem.endswith(ENDS)]
    team = [str(CAMPAIGN / "team.c")] if sanitizer == RACES else []
    stand_ins = [f"-Wl,--defsym=longform_{name}{end}=longform_{name}_portable" for name in kernels for end in ENDS]
    options = ["-std=gnu11", "-O0", "-g1", "-fno-strict-aliasing", "-fopenmp", "-fno-sanitize-recover=all"]
    include = f"-I{sysconfig.get_path('include')}"
    command = [compiler(), "-shared", "-fPIC", *options, f"-fsanitize={sanitizer}", include, *files, *team, *stand_ins]
    subprocess.run([*command, "-lm", "-o", str(path)], check=True)
    return path


def call_kernels(path: Path, sanitizer: str, *, seed: int, cases: int, threads: int) -> tuple[int, str]:
    """The exit code of a process that calls them, and what it printed."""
    environment = {**os.environ, **OPTIONS, "LD_PRELOAD": runtimes(sanitizer)}
    environment["PYTHONPATH"] = os.pathsep.join([str(CAMPAIGN.parent), *sys.path])
    command = [sys.executable, "-m", "campaign.sanitized", str(path), *map(str, (seed, cases, threads))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Of a sanitizer, and its name."""
    return build(tmp_path_factory.mktemp("library"), request.param), request.param


@pytest.mark.parametrize(("library", "threads"), [
    (MEMORY, 3), pytest.param(MEMORY, 1, marks=pytest.mark.nightly), pytest.param(RACES, 4, marks=pytest.mark.nightly),
], indirect=["library"])  # fmt: skip
def test_kernels_keep_to_their_memory_and_to_their_part(library: tuple[Path, str], threads: int, tally: Tally) -> None:
    path, sanitizer = library
    cases = CASES[sanitizer]
    code, printed = call_kernels(path, sanitizer, seed=0, cases=cases, threads=threads)
    assert (code, printed.splitlines()[-1:]) == (0, ["done"]), printed[-5000:]
    tally.inputs += cases


@pytest.mark.nightly  # it builds the kernels once more
@pytest.mark.parametrize("fault", scaled(["a race"], list(PLANTED)))
def test_a_planted_fault_is_found(tmp_path: Path, fault: str, tally: Tally) -> None:
    """Otherwise silence would say nothing."""
    sanitizer, file, there, planted, said = PLANTED[fault]
    sources = Path(shutil.copytree(SOURCES, tmp_path / "csrc"))
    text = (sources / file).read_text()
    assert there in text
    (sources / file).write_text(text.replace(there, planted))
    path, threads = build(tmp_path, sanitizer, sources), 4 if sanitizer == RACES else 1
    code, printed = call_kernels(path, sanitizer, seed=0, cases=14, threads=threads)
    assert code, printed[-5000:]
    assert said in printed
    tally.inputs += 1
