"""A Ray of two CPUs for the tests of this folder, and texts on disk."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from json_lines import write_lines
from ray.cluster_utils import Cluster

os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray 2.60 warns of a change to come


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """Where it answers; this process is not connected."""
    tests = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])  # for modules of the tests
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    yield cluster.address
    cluster.shutdown()


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Sixty documents in two files."""
    folder = tmp_path / "given"
    folder.mkdir()
    for name in ("a", "b"):
        rows = [{"id": f"{name} {place}", "text": f"the {'near ' * (place % 9)}{place}"} for place in range(30)]
        write_lines(folder / f"{name}.jsonl", rows)
    return folder
