"""The check that a GPU is asked first, in its dry form; and what its trainings read, by itself."""

import os
import subprocess
from itertools import islice
from pathlib import Path

import pytest
import torch

from benchmarks.captured_passes import TrainingPass
from benchmarks.from_nothing import FIRST_WORD, MASK, VOCABULARY, batches, fields_of, make_model, rate_at, texts_of
from benchmarks.from_nothing_queue import QUEUE, table
from longform_lab.records import ROOT, Record, read_records

TOKENS = (torch.arange(40_000) % (VOCABULARY - FIRST_WORD) + FIRST_WORD).int()


def test_texts_that_are_kept_aside_do_not_depend_on_the_length():
    short, long = texts_of(TOKENS, 128), texts_of(TOKENS, 512)
    for few, many in zip(short, long, strict=True):
        assert torch.equal(few.flatten(), many.flatten())
    assert len(long[1]) == 2 * 4_096 // 512


def test_batches_hide_a_part_and_say_what_was_there():
    texts, _ = texts_of(TOKENS, 128)
    known = {tuple(row) for row in texts.tolist()}
    first, again = (list(islice(batches(texts, 4, seed=3), 2)) for _ in range(2))
    for batch, same in zip(first, again, strict=True):
        assert all(torch.equal(one, other) for one, other in zip(batch, same, strict=True))
        assert len(batch.places) == len(set(batch.places.tolist())) == 4 * round(0.15 * 128)
        masked = (batch.ids.flatten()[batch.places] == MASK).float().mean()
        assert 0.6 < masked < 0.95
        whole = batch.ids.flatten().clone()
        whole[batch.places] = batch.labels
        assert {tuple(row) for row in whole.view(-1, 128).tolist()} <= known


def test_the_rate_goes_up_and_down():
    rates = [rate_at(step, 100) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[10] == 1.0
    assert rates[-1] < 0.001


def test_a_name_says_the_fields():
    assert fields_of("full", 64) == {"projection": "mean", "attention_window": 64, "short_convolution": 0}
    assert fields_of("mean+conv5", 64) == {"projection": "mean", "short_convolution": 5}
    assert fields_of("linear@network", 64) == fields_of("linear", 64)
    with pytest.raises(SystemExit, match="none of these"):
        fields_of("none of these", 64)
    assert make_model("full", length=64, slots=8, size="tiny").linformer.encoder.layers[0].attention.covers_all


def test_the_queue_names_what_there_is():
    assert all(fields_of(variant, 512) for variant, *_ in QUEUE)
    assert len(set(QUEUE)) == len(QUEUE)
    assert QUEUE[0][0] in QUEUE[5]


def test_a_table_compares_with_full_attention_of_the_same_seed_and_length():
    chosen = {"variant": "full", "seed": 1, "length": 512, "slots": 128, "mode": "graph"}
    found = {"loss": 4.0, "steps_done": 10, "tokens_per_second": 1e6, "minutes": 0.5}
    records = [
        Record(name="from_nothing", settings=chosen, metrics=found),
        Record(name="from_nothing", settings=chosen | {"variant": "mean"}, metrics=found | {"loss": 5.0}),
        Record(name="from_nothing", settings=chosen | {"seed": 2}, metrics=found | {"loss": None, "steps_done": 3}),
    ]
    _, first, second, third = table(records).splitlines()
    assert "1.000" in first
    assert "1.250" in second
    assert third.split()[4:7] == ["3", "-", "-"]


@pytest.mark.parametrize("variant", dict.fromkeys(variant for variant, *_ in QUEUE))
def test_a_pass_asks_the_device_nothing_and_sends_it_nothing(variant, monkeypatch):
    """Which no CUDA graph could capture: looked for on a CPU, in the second pass."""
    texts, _ = texts_of(TOKENS, 128)
    given = batches(texts, 2, seed=0)
    training = TrainingPass(make_model(variant, length=128, slots=16, size="tiny"), next(given), mode="eager")
    training(next(given))

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("a GPU would have to wait for this")

    monkeypatch.setattr(torch, "tensor", refuse)
    for name in ("item", "tolist", "cpu", "__bool__", "__int__", "__float__"):
        monkeypatch.setattr(torch.Tensor, name, refuse)
    training(next(given))


@pytest.mark.nightly
def test_the_dry_form_runs_every_part(tmp_path: Path):
    command = ["make", "gpu-check", "DRY=1", "GPU_OPTIONS=--seconds 900"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"OUT": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    timed = {record.settings["competitor"] for record in read_records([tmp_path / "gpu_timings.jsonl"])}
    assert {"full attention", "linear, layerwise", "mean", "window"} <= timed
    measured = {record.name for record in read_records([tmp_path / "gpu_kernels.jsonl"])}
    assert measured == {"gpu_agreement", "gpu_window", "gpu_encoder", "gpu_table 3", "gpu_embed"}
    trained = {record.settings["variant"]: record for record in read_records([tmp_path / "from_nothing.jsonl"])}
    assert {"full", "linear", "mean", "window"} <= trained.keys()
    for record in trained.values():
        assert record.settings["mode"] == "eager"
        assert record.metrics["curve"][-1] < record.metrics["curve"][0]
    assert "graphs are CUDA's" in (tmp_path / "training.log").read_text()
    assert "no tests ran" in (tmp_path / "tests.log").read_text()
    assert "of full's" in done.stdout
