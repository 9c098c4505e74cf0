"""What is written has the modes of new files, by the umask, whatever those of its sources."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from tiny_models import make_sentence_transformer
from transformers import AutoModel

from longform import convert
from longform.files import atomic_folder, copy_anew
from longform_text.export.run import export_model
from longform_text.training.finetuning.run import finetune
from longform_text.training.finetuning.settings import FinetuningSettings
from longform_text.training.students import open_student

ROWS = [{"text": f"{word} text", "label": word} for word in ("good", "bad")] * 8
SETTINGS = FinetuningSettings(max_steps=1, validation_fraction=0.5, save_steps=1)


@pytest.fixture(autouse=True, params=[0o027], ids=oct)
def umask(request: pytest.FixtureRequest) -> Generator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def read_only(longform_folder: Path, tmp_path: Path) -> Path:
    """A sentence-transformers folder as a shared store has it."""
    folder = tmp_path / "source"
    shutil.copytree(longform_folder, folder)
    make_sentence_transformer(folder, pooling={"pooling_mode_mean_tokens": True}, normalise=True)
    for path in [*folder.rglob("*"), folder]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    return folder


def _modes(folder: Path) -> dict[str, int]:
    return {path.relative_to(folder).as_posix(): path.stat().st_mode & 0o777 for path in [folder, *folder.rglob("*")]}


MADE: dict[str, Callable[[Path, Path], Any]] = {
    "export": lambda source, output: export_model(source, output),
    "student": lambda source, output: _student(source, output),
    "conversion": lambda source, output: convert(source, max_length=96).save_pretrained(output),
    "model": lambda source, output: AutoModel.from_pretrained(source).save_pretrained(output),
    "fine-tuned": lambda source, output: finetune(source, ROWS, SETTINGS, output=output, progress=False),
}


def _student(source: Path, output: Path) -> None:
    with atomic_folder(output) as unfinished:
        open_student(source, None).save(unfinished)


@pytest.mark.parametrize("kind", MADE)
def test_modes_are_those_of_new_files(read_only: Path, tmp_path: Path, umask: int, kind: str) -> None:
    MADE[kind](read_only, tmp_path / "output")
    found = _modes(tmp_path / "output")
    assert any(name.endswith(".safetensors") for name in found)
    right = {name: (0o777 if (tmp_path / "output" / name).is_dir() else 0o666) & ~umask for name in found}
    assert found == right
    assert sorted(path.name for path in tmp_path.iterdir()) == ["output", "source"]


def test_a_copied_folder_without_write_permission_does_not_end_a_training(tmp_path: Path) -> None:
    """What a library copies from a read-only source with its modes, as ``shutil.copytree`` does."""
    drop = "-dac_override,-dac_read_search,-fowner"  # root may write anything: without these it may not
    plain = ["setpriv", f"--bounding-set={drop}", f"--inh-caps={drop}"] if os.getuid() == 0 else []
    code = f"""
import shutil, sys
from pathlib import Path
from longform_text.training.run_folder import RunFolder
source, output = Path({str(tmp_path / "source")!r}), Path({str(tmp_path / "output")!r})
(source / "part").mkdir(parents=True)
for path in (source / "part" / "file", source / "part", source):
    path.touch()
    path.chmod(0o555 if path.is_dir() else 0o444)
shutil.copytree(source, output / "unfinished-model")  # what a killed start left
run = RunFolder(output, {{"kind": "a test"}}, kept=True)
run.finish(lambda place: shutil.copytree(source / "part", place / "part"), [])
"""
    subprocess.run([*plain, sys.executable, "-c", code], check=True)
    assert sorted(path.name for path in (tmp_path / "output").iterdir())[:1] == ["part"]
    assert (tmp_path / "output" / "part" / "file").exists()
    assert not (tmp_path / "output" / "unfinished-model").exists()


def test_what_is_replaced_goes_though_it_was_read_only(read_only: Path, tmp_path: Path) -> None:
    with atomic_folder(read_only) as unfinished:
        copy_anew(read_only, unfinished)
        (unfinished / "1_Pooling/new").touch()
    assert (read_only / "1_Pooling/new").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
