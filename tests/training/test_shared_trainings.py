"""Trainings of several processes: they learn what one process learns, and another number of them goes on."""

from pathlib import Path
from typing import Any

import pytest
from process_group import in_processes
from shared_trainings import Trained, finetuned, pretrained
from tiny_models import save_longform

from longform import LinformerForMaskedLM


def _check(found: list[Trained], alone: Trained) -> None:
    for each in found:
        assert max(each.difference(alone)) <= 1e-4, each.difference(alone)


def test_two_processes_learn_what_one_does_and_one_goes_on(texts: list[str], tmp_path: Path) -> None:
    alone, output = pretrained(texts, tmp_path / "alone"), tmp_path / "shared"
    assert alone is not None
    in_processes(2, lambda: pretrained(texts, output, stopped_at=17), tmp_path)
    gone_on = pretrained(texts, output)
    assert gone_on is not None
    _check([gone_on], alone)
    assert LinformerForMaskedLM.from_pretrained(output).num_parameters() > 0


@pytest.mark.nightly
def test_finetuning(tiny_tokenizer: Any, texts: list[str], tmp_path: Path) -> None:
    (tmp_path / "encoder").mkdir()
    folder = save_longform(tmp_path / "encoder", tiny_tokenizer, initializer_range=0.02)
    alone = finetuned(folder, texts, tmp_path / "alone", batch_size=8)
    found = in_processes(2, lambda: finetuned(folder, texts, tmp_path / "shared", batch_size=4), tmp_path)
    _check(found, alone)
