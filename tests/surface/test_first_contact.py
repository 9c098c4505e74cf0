"""What a first call waits for: ``import longform`` and every --help load neither torch nor transformers."""

import inspect
import subprocess
import sys
from types import ModuleType

import pytest
import torch

import longform
from longform import choices
from longform.cli.main import all_commands
from longform.conversion import tasks
from longform.export import formats
from longform.functional import pooling
from longform.functional.positions import tables
from longform.inference import exported
from longform.layers.geometry import Projection
from longform.layers.sequence_projection import RunProjection, make_projection

EVALUATIONS = ("classification", "sts", "retrieval")
HELPS = [[name] for name in all_commands()] + [["evaluate", task] for task in EVALUATIONS]
LOADED = "heavy = sys.modules.keys() & {'torch', 'transformers'}; assert not heavy, heavy"


def run(program: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_is_light() -> None:
    run(f"import sys, longform; longform.__version__; dir(longform); {LOADED}")


@pytest.mark.parametrize("line", [["--help"], ["--version"], *([*names, "--help"] for names in HELPS)], ids=" ".join)
def test_help_is_light(line: list[str]) -> None:
    said = run(f"import sys; from longform.cli.main import main; assert main(sys.argv[1:]) == 0; {LOADED}", *line)
    assert said.startswith("longform " if line == ["--version"] else "usage: longform ")


def test_the_package_is_a_program() -> None:
    done = subprocess.run([sys.executable, "-m", "longform", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"longform {longform.__version__}\n"


def test_every_public_name_loads_late_and_is_listed() -> None:
    program = """
import longform
assert not set(longform.__all__) & set(vars(longform)), "loaded before it was asked for"
assert set(longform.__all__) <= set(dir(longform))
"""
    run(program)
    for name in longform.__all__:
        assert getattr(longform, name) is vars(longform)[name], name


def test_a_name_that_is_not_there() -> None:
    assert not hasattr(longform, "LinformerForObjectDetection")
    with pytest.raises(AttributeError, match="module 'longform' has no attribute 'LinformerForObjectDetection'"):
        _ = longform.LinformerForObjectDetection


def test_the_choices_are_those_of_the_code_that_makes_them() -> None:
    hidden = torch.randn(1, 3, 4)
    for kind in choices.POOLINGS:
        assert pooling.pooled(hidden, None, kind=kind).shape == (1, pooling.pooled_width(kind, 4))
    for method in choices.EXTENSIONS:
        assert tables.extend_positions(torch.randn(5, 2), length=9, method=method).shape == (9, 2)
    for kind in choices.PROJECTIONS:
        for init in choices.PROJECTION_INITS:
            made = make_projection(
                Projection(kind, init=init), hidden_size=6, heads=2, head_dim=3, max_length=8, slots=4
            )
            assert isinstance(made, RunProjection) == (kind in choices.POOLED)
    assert set(choices.SHARINGS) == {"none", "headwise", "key_value", "layerwise"}
    assert tuple(tasks.MODELS) == choices.TASKS
    assert tuple(formats.WRITERS) == choices.EXPORT_FORMATS
    assert ("torch", *exported.FILES) == choices.BACKENDS


def test_choices_import_nothing() -> None:
    assert not any(isinstance(value, ModuleType) for value in vars(choices).values())
    assert "import" not in [line.split()[0] for line in inspect.getsource(choices).splitlines() if line.split()]
