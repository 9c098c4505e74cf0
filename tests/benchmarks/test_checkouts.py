import subprocess
import sys

import pytest

from benchmarks import checkouts

CELL = "minilm-float32-window-128-inference"
SCRIPT = """
import sys
print('{{"output": {output}, "package": "{package}/src/longform/__init__.py"}}', flush=True)
for _ in sys.stdin:
    print('{{"seconds": {seconds}, "peak_mib": 5.0}}', flush=True)
"""


def pretended(monkeypatch, *, seconds, outputs=(1.0, 1.0), packages=(None, None)):
    """Processes that say what is given, of the checkouts "before" and "after"."""
    answers = {
        name: SCRIPT.format(seconds=second, output=output, package=package or name)
        for name, second, output, package in zip(("before", "after"), seconds, outputs, packages, strict=True)
    }
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    monkeypatch.setattr(
        checkouts, "child", lambda checkout, _: subprocess.Popen([sys.executable, "-c", answers[checkout]], **pipes)
    )


def test_more_than_one_is_faster(monkeypatch):
    pretended(monkeypatch, seconds=(3.0, 2.0))
    found = checkouts.measured("before", "after", CELL, turns=2)
    assert (found["ratio"], found["median_ratio"]) == (1.5, 1.5)
    assert (found["before_seconds"], found["after_seconds"], found["after_peak_mib"]) == (3.0, 2.0, 5.0)


def test_outputs_are_compared_before_anything_is_timed(monkeypatch):
    pretended(monkeypatch, seconds=("x", "x"), outputs=(1.0, 1.1))
    with pytest.raises(SystemExit, match="outputs differ"):
        checkouts.measured("before", "after", CELL, turns=1)


def test_another_package_than_the_checkouts_own_is_refused(monkeypatch):
    pretended(monkeypatch, seconds=(1.0, 1.0), packages=("elsewhere", None))
    with pytest.raises(SystemExit, match="elsewhere"):
        checkouts.measured("before", "after", CELL, turns=1)


def test_a_folder_that_is_no_checkout(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["checkouts", str(tmp_path)])
    with pytest.raises(SystemExit):
        checkouts.main()
    assert "has no src/longform" in capsys.readouterr().err


def test_a_process_makes_the_pass_of_its_cell(monkeypatch):
    tiny = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    monkeypatch.setitem(checkouts.SHAPES, "minilm", tiny)
    for cell in checkouts.CELLS:
        size, dtype, kind, length, work = cell.split("-")
        if size == "minilm" and length in ("128", "512"):
            assert checkouts.passes(size, dtype, kind, int(length), work)() == pytest.approx(0.8, abs=0.1)
