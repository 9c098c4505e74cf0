"""``--engine ray``: the local engine's output, and what may go wrong on the way."""

import json
import pickle
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pandas
import pytest
from json_lines import read_lines, write_lines
from ray_tasks import prepare, run, settings_for

import longform
from longform.errors import ConfigurationError, DataError, InputError, MissingDependencyError
from longform_text.cli.main import main
from longform_text.data.parts import parts_of
from longform_text.data.places import input_files
from longform_text.inference.parts.ray_engine import PartActor
from longform_text.inference.parts.worker import PartWorker
from longform_text.inference.settings import InferenceSettings

SETTINGS = InferenceSettings(text_field="text", progress=False, part_rows=7)


def parts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*"))}


@pytest.mark.nightly  # starts a cluster
def test_a_folder_begun_here_goes_on_in_a_cluster(
    longform_folder: Path, texts: Path, tmp_path: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    longform.embed(longform_folder, texts, tmp_path / "local", SETTINGS)
    good = (texts / "b.jsonl").read_text()
    (texts / "b.jsonl").write_text(good.replace('"b 3", "text"', '"b 3", "other"'))
    with pytest.raises(DataError, match=r'b\.jsonl:4: no field "text"'):
        longform.embed(longform_folder, texts, tmp_path / "both", SETTINGS)
    (texts / "b.jsonl").write_text(good)
    line = ["embed", str(longform_folder), str(texts), "--output", str(tmp_path / "both"), "--part-rows", "7"]
    assert main([*line, "--engine", "ray", "--ray-address", address, "--actors", "2"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert {"documents            60", "resumed              30"} <= set(printed)
    assert not any(line.startswith("failed") for line in printed)
    assert parts(tmp_path / "both") == parts(tmp_path / "local")
    assert list(pandas.read_parquet(tmp_path / "both")["id"]) == list(pandas.read_parquet(tmp_path / "local")["id"])


@pytest.mark.nightly
def test_documents_that_kill_an_actor(texts: Path, tmp_path: Path, address: str) -> None:
    rows = read_lines(texts / "a.jsonl")
    rows[9]["text"] = "die"
    write_lines(texts / "a.jsonl", rows)
    with pytest.raises(
        InputError, match=r"3 actors ended while they computed rows 7 to 13 of .*a\.jsonl: .*take the doc"
    ):
        run(texts / "a.jsonl", tmp_path / "out", settings_for(address))
    rows[9]["text"], rows[12]["text"], rows[25]["text"] = "near", "fail", "fail"
    write_lines(texts / "b.jsonl", rows)
    result = run(texts / "b.jsonl", tmp_path / "other", settings_for(address, on_error="skip"))
    assert (result.records, result.failed) == (28, 2)
    failed = read_lines(tmp_path / "other" / "_failed.jsonl")
    assert sorted((line["row"], line["reason"]) for line in failed) == [
        ("a 12", "this text fails"),
        ("a 25", "this text fails"),
    ]
    assert [path.name for path in (tmp_path / "other").iterdir() if path.name.startswith(".")] == []


def test_machines_that_differ_and_a_part_that_ends_its_actors(texts: Path, tmp_path: Path) -> None:
    make = partial(PartWorker, partial(prepare, settings=settings_for("auto")), "test", tmp_path, skip=False)
    parts = parts_of(0, input_files([texts / "a.jsonl"])[0], 7)
    identity = json.loads(json.dumps(make().identity))

    def said(version: str, identity: dict[str, Any]) -> Any:
        actor = PartActor((make, version), parts, tmp_path, identity)
        return pickle.loads(actor({"item": 1})["made"])

    here = longform.__version__
    assert said(here, identity)["part"] == "part-000000-000001"
    assert list(tmp_path.glob(".*")) == []  # of starts that ended well nothing is left
    for attempt, message in (
        (
            said("9.9", identity),
            f"longform is {here} on a worker \\(.*\\) and 9.9 where the command runs: install the same",
        ),
        (
            said(here, identity | {"limit": 7}),
            "machines of the cluster have different models \\(limit: 7 there, 64 now",
        ),
    ):
        assert isinstance(attempt, ConfigurationError)
        assert re.match(message, str(attempt))
    (tmp_path / ".part-000000-000001.begun").write_bytes(b"...")
    with pytest.raises(
        InputError, match=r"3 actors ended while they computed rows 7 to 13 of .*a\.jsonl: give an actor"
    ):
        raise said(here, identity)


@pytest.mark.nightly
def test_a_corrupt_file_among_others_and_actors_without_room(texts: Path, tmp_path: Path, address: str) -> None:
    (texts / "c.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match=r'c\.parquet" is not readable as parquet'):
        run(texts, tmp_path / "out", settings_for(address))
    result = run(texts, tmp_path / "out", settings_for(address, on_error="skip"))
    assert (result.records, result.failed) == (60, 1)
    with pytest.raises(ConfigurationError, match=r"no machine of the cluster has 1 CPUs and 3 GPUs for an actor"):
        run(texts, tmp_path / "other", settings_for(address, actors=None, num_cpus=1, num_gpus=3))


def test_without_ray(texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r'"ray", which is not installed: pip install -e "\.\[ray\]"'):
        run(texts, tmp_path / "out", settings_for("auto"))


def test_addresses_that_do_not_answer(texts: Path, tmp_path: Path) -> None:
    for given in ("somewhere", "127.0.0.1:1", "ray://127.0.0.1:1"):
        with pytest.raises(
            ConfigurationError, match=f'no Ray cluster answers at "{given}" .*: it is auto or HOST:PORT .*ray start'
        ):
            run(texts, tmp_path / "out", settings_for(given))
