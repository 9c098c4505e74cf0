"""``--engine ray``: the local engine's output, and what may go wrong on the way."""

import json
import socket
import sys
from pathlib import Path

import pandas
import pytest
from ray_tasks import run, settings_for

import longform
from longform.cli.main import main
from longform.errors import ConfigurationError, DataError, InputError, MissingDependencyError
from longform.inference.parts import ray_engine
from longform.inference.parts import ray_engine as ray_cluster
from longform.inference.settings import InferenceSettings

SETTINGS = InferenceSettings(text_field="text", progress=False, part_rows=7)


def parts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*"))}


@pytest.mark.nightly  # starts a cluster
def test_a_folder_begun_here_goes_on_in_a_cluster(
    longform_folder: Path, texts: Path, tmp_path: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    longform.embed(longform_folder, texts, tmp_path / "local", SETTINGS)
    good = (texts / "b.jsonl").read_text()
    (texts / "b.jsonl").write_text(good.replace('"text"', '"other"'))
    with pytest.raises(DataError, match=r'b\.jsonl:1: no field "text"'):
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
    rows = [json.loads(line) for line in (texts / "a.jsonl").read_text().splitlines()]
    rows[9]["text"], rows[12]["text"], rows[25]["text"] = "die", "fail", "fail"
    (texts / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(
        InputError, match=r"3 actors ended while they computed rows 7 to 13 of .*a\.jsonl .*take the doc"
    ):
        run(texts / "a.jsonl", tmp_path / "out", settings_for(address))
    rows[9]["text"] = "near"
    (texts / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = run(texts / "b.jsonl", tmp_path / "other", settings_for(address, on_error="skip"))
    assert (result.records, result.failed) == (28, 2)
    failed = [json.loads(line) for line in (tmp_path / "other" / "_failed.jsonl").read_text().splitlines()]
    assert sorted((line["row"], line["reason"]) for line in failed) == [
        ("a 12", "this text fails"),
        ("a 25", "this text fails"),
    ]
    assert [path.name for path in (tmp_path / "other").iterdir() if path.name.startswith(".")] == []


@pytest.mark.nightly  # starts a cluster
def test_a_cluster_with_another_version(
    texts: Path, tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "own_version", lambda: "9.9")
    with pytest.raises(
        ConfigurationError, match=rf"longform is {longform.__version__} on a worker \(.*\) and 9\.9 where"
    ):
        run(texts, tmp_path / "out", settings_for(address))


@pytest.mark.nightly
def test_a_corrupt_file_among_others_and_actors_without_room(texts: Path, tmp_path: Path, address: str) -> None:
    (texts / "c.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match=r'c\.parquet" is not readable as parquet'):
        run(texts, tmp_path / "out", settings_for(address))
    result = run(texts, tmp_path / "out", settings_for(address, on_error="skip"))
    assert (result.resumed, result.records, result.failed) == (60, 60, 1)
    with pytest.raises(ConfigurationError, match=r"no machine of the cluster has 1 CPUs and 3 GPUs for an actor"):
        run(texts, tmp_path / "other", settings_for(address, actors=None, num_cpus=1, num_gpus=3))


def test_without_ray(texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r'"ray", which is not installed: pip install -e "\.\[ray\]"'):
        run(texts, tmp_path / "out", settings_for("auto"))


def test_addresses_that_do_not_answer(texts: Path, tmp_path: Path) -> None:
    for given, message in (
        ("somewhere", "it is auto, HOST:PORT, or ray://HOST:PORT"),
        ("127.0.0.1:1", r'no Ray cluster answers at "127\.0\.0\.1:1" .*: start one with: ray start --head'),
        ("ray://127.0.0.1:1", "no Ray cluster answers at"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            run(texts, tmp_path / "out", settings_for(given))


def test_an_address_that_is_something_else(texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "ANSWER", 0.2)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(ConfigurationError, match=r"no Ray cluster answers at .*timed out"),
    ):
        run(texts, tmp_path / "out", settings_for(f"127.0.0.1:{silent.getsockname()[1]}"))
