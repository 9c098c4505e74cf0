"""``longform doctor``: what it says of the machine, the extras and the kernels."""

from pathlib import Path

import pytest

from longform.cli import doctor
from longform.cli.main import main


def test_it_says_what_there_is_and_what_serves(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--length", "128", "--dtype", "float32"]) == 0
    shown = capsys.readouterr().out
    for line in ("torch ", "transformers ", "kernels ", "extras", "window, 128 tokens, torch.float32, inference"):
        assert f"\n{line}" in shown
    assert "\n    train      ready\n" in shown
    assert "\nattention: sdpa" in shown
    assert "    not compiled: needs bfloat16 tensors" in shown


def test_a_model_of_ones_own(longform_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(longform_folder), "--length", "9", "--dtype", "float32"]) == 0
    assert f"{longform_folder}, 9 tokens, torch.float32, inference\n" in capsys.readouterr().out


def test_missing_packages_are_named_with_their_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "_is_installed", lambda package: package not in ("matplotlib", "linformer"))
    monkeypatch.setattr(doctor, "explanations", lambda *given: [])
    assert doctor.missing_packages()["peers"] == ["linformer"]
    assert main(["doctor"]) == 0
    assert 'train      lacks matplotlib: pip install "longform[train]"' in capsys.readouterr().out
