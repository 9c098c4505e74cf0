"""What a first call waits for: ``import longform`` and every --help load neither torch nor transformers."""

import inspect
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import longform
from longform import choices
from longform.conversion import tasks
from longform.functional import pooling
from longform.functional.positions import tables
from longform.layers.options import Projection
from longform.layers.sequence_projection import RunProjection, make_projection
from longform_text.cli.main import all_commands
from longform_text.inference import exported

EVALUATIONS = ("classification", "sts", "retrieval")
HELPS = [[name] for name in all_commands()] + [["evaluate", task] for task in EVALUATIONS]
LOADED = "heavy = sys.modules.keys() & {'torch', 'transformers'}; assert not heavy, heavy"


def run(program: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_is_light() -> None:
    run(f"import sys, longform; longform.__version__; dir(longform); {LOADED}")


def test_every_help_is_light() -> None:
    lines = ["--help", *(f"{' '.join(names)} --help" for names in HELPS)]
    said = run(
        "import sys; from longform_text.cli.main import main\n"
        f"for line in ['--version', *sys.argv[1:]]: assert main(line.split()) == 0, line; {LOADED}",
        *lines,
    )
    assert said.startswith("longform ")
    assert said.count("usage: longform ") == len(lines)


MISTAKES = {  # known without torch -> the error
    "embed minilm-16k no.jsonl --output v.jsonl": '"no.jsonl" does not exist',
    "embed minilm-16k a.xyz --output v.jsonl": 'has the suffix ".xyz"',
    "embed minilm-16k a.jsonl --output v.xyz": "its suffix is one of .jsonl, .parquet",
    "embed minilm-16k a.jsonl --output v.jsonl --device gpu": 'device is "gpu"',
    "embed minilm-16k a.jsonl --output v.jsonl --chunk-tokens 0": "chunk_tokens=0 must be at least 1",
    "embed minilm-16k a.jsonl --output v.jsonl --batch-tokens 0": "batch_tokens=0 must be at least 1",
    "embed minilm-16 a.jsonl --output v.jsonl": 'did you mean "minilm-16k"?',
    "predict empty a.jsonl --output v.jsonl": 'the folder "empty" has no config.json',
    "predict minilm-16k a.jsonl --output v.jsonl --threshold 2": "threshold=2.0 must be between 0 and 1",
    "convert ./no out --max-length 100": '"./no" is no folder',
    "convert minilm-16k out --max-length 0": "max_length=0 must be at least 3",
    "finetune minilm-16k no.jsonl --output o": '"no.jsonl" does not exist',
    "finetune minilm-16k a.jsonl --output o --learning-rate -1": "learning_rate=-1.0 must be more than 0",
    "finetune minilm-16k a.jsonl --output o --device gpu": 'device is "gpu"',
    "distill minilm-16k no/such/model a.jsonl --output o": '"no/such/model" is no folder',
    "distill minilm-16k bundled no.txt --output o": '"no.txt" does not exist',
    "align minilm-16k no.jsonl --output o": '"no.jsonl" does not exist',
    "pretrain no.txt --output o": '"no.txt" does not exist',
    "pretrain a.jsonl --output o --preset no": 'there is no preset "no"',
    "evaluate retrieval --queries no.jsonl --documents a.jsonl --longform bundled": '"no.jsonl" does not exist',
    "evaluate sts --data a.jsonl": "nothing to evaluate: give --longform, --original, or both",
    "serve no": '"no" is no folder, and not in the local Hugging Face cache (offline mode',
    "serve bundled --port 99999": "port is 99999",
    "export empty": 'the folder "empty" has no config.json',
    "doctor no": '"no" is no folder',
    "spectrum bundled --text no.txt --output o": '"no.txt" does not exist',
}


def test_mistakes_that_need_no_torch_are_told_without_it(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("a.jsonl", "a.xyz"):
        (tmp_path / name).write_text('{"text": "a", "label": "b"}\n')
    lines = "; ".join(f"main({line.split()!r})" for line in MISTAKES)
    program = f"import sys; from longform_text.cli.main import main; {lines}; {LOADED}"
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    for said, expected in zip(done.stderr.splitlines(), MISTAKES.values(), strict=True):
        assert said.startswith("longform: error: ")
        assert expected in said


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
    assert ("torch", *exported.FILES) == choices.BACKENDS[:3]


def test_choices_import_nothing() -> None:
    assert not any(isinstance(value, ModuleType) for value in vars(choices).values())
    assert "import" not in [line.split()[0] for line in inspect.getsource(choices).splitlines() if line.split()]
