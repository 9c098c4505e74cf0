"""Twenty kills of a job on a cluster of two nodes: its command, its actors, its nodes. Every row is there once."""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pandas
import psutil
import pytest
from json_lines import read_lines, write_lines
from ray.cluster_utils import Cluster
from ray_tasks import run, settings_for

KILLS, DOCUMENTS, PAUSE = 20, 6_000, 0.02
ALIVE = 240.0  # seconds in which a part has to be done, whatever was killed before


class Job:
    """The command, running over ``source`` on a cluster, and what is killed of it."""

    def __init__(self, cluster: Any, source: Path, output: Path) -> None:
        self.cluster, self.source, self.output = cluster, source, output
        self.nodes = [self.new_node() for _ in range(2)]
        self.command: Any = None

    def start(self) -> None:
        line = [sys.executable, "-m", "ray_tasks", str(self.source), str(self.output), self.cluster.address]
        with self.output.with_name("log.txt").open("a") as log:
            self.command = subprocess.Popen([*line, str(PAUSE)], stdout=log, stderr=log)

    def parts(self) -> int:
        path = self.output / "_manifest.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def wait(self, more: int) -> bool:
        """Until as many more parts are done; False where the job has ended."""
        wanted, until = self.parts() + more, time.monotonic() + ALIVE
        while self.parts() < wanted:
            assert time.monotonic() < until, self.output.with_name("log.txt").read_text()[-3000:]
            if (status := self.command.poll()) is not None:
                assert status == 0, self.output.with_name("log.txt").read_text()[-3000:]
                return False
            time.sleep(0.05)
        return True

    def kill_command(self) -> None:
        self.command.kill()
        self.command.wait()
        self.start()

    def kill_actor(self) -> None:
        found = [each for each in psutil.process_iter() if _title(each).startswith("ray::MapWorker")]
        random.choice(found).kill()

    def kill_node(self) -> None:
        self.cluster.remove_node(self.nodes.pop(random.randrange(2)), allow_graceful=False)
        self.nodes.append(self.new_node())

    def new_node(self) -> Any:
        """One more node; where the machine is so busy that Ray gives it up after 30 seconds, once more."""
        for _ in range(5):
            try:
                return self.cluster.add_node(num_cpus=1)
            except Exception as error:  # Ray raises no other
                print(error)
        raise TimeoutError("no node has started")


def _title(process: Any) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.mark.nightly
def test_every_row_is_there_once_after_twenty_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tests = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")]))
    source, output = tmp_path / "given.jsonl", tmp_path / "out"
    rows = [{"id": str(place), "text": f"{chr(97 + place % 26)}{'x' * (place % 50)}"} for place in range(DOCUMENTS)]
    write_lines(source, rows)
    run(source, tmp_path / "unbroken", settings_for(None))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    killed: Counter[str] = Counter()
    try:
        job = Job(cluster, source, output)
        job.start()
        kinds = [kind for kind in ("command", "actor", "node") for _ in range(7)][: KILLS + 1]
        random.shuffle(kinds)
        for kind in kinds[:KILLS]:
            assert job.wait(1), f"the job has ended after {killed}"
            time.sleep(random.uniform(0, 1.5))
            getattr(job, f"kill_{kind}")()
            killed[kind] += 1
            print(time.strftime("%X"), kind, job.parts(), flush=True)
        while job.wait(1):
            pass
    finally:
        job.command.kill()
        cluster.shutdown()
    assert killed.total() == KILLS
    assert list(pandas.read_parquet(output)["id"]) == [row["id"] for row in rows]
    parts, wanted = (
        {path.name: path.read_bytes() for path in folder.glob("part-*")} for folder in (output, tmp_path / "unbroken")
    )
    assert parts == wanted
    lines = read_lines(output / "_manifest.jsonl")
    assert Counter(line["part"] for line in lines).most_common(1)[0][1] == 1
