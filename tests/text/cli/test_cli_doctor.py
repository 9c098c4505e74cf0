"""``longform doctor``: what it says of the machine, the extras and the kernels."""

from pathlib import Path

import pytest

from longform_text.cli import doctor
from longform_text.cli.main import main


def test_it_says_what_there_is_in_ten_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) <= 10
    begun = [line.split()[0] for line in shown]
    assert begun == ["longform", "software", "machine", "device", "kernels", "extras", "next"]
    assert {"torch", "transformers", "python"} <= set(shown[1].split())
    assert "train" in shown[5]
    assert shown[-1] == "next  longform demo, or longform doctor --kernels"


def test_kernels_say_what_serves(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--kernels", "--length", "128", "--dtype", "float32"]) == 0
    shown = capsys.readouterr().out
    assert "\nwindow, 128 tokens, torch.float32, inference\n" in shown
    assert "\nattention: sdpa" in shown
    assert "    not compiled: needs bfloat16 tensors" in shown


def test_a_model_of_ones_own(longform_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(longform_folder), "--length", "9", "--dtype", "float32"]) == 0
    assert f"{longform_folder}, 9 tokens, torch.float32, inference\n" in capsys.readouterr().out


def test_missing_packages_are_named_with_their_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "_is_installed", lambda package: package not in ("matplotlib", "linformer"))
    assert doctor.missing_packages()["peers"] == ["linformer"]
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "train lacks matplotlib; " in said
    assert 'pip install -e ".[train,' in said
    assert len(said.splitlines()) <= 10
