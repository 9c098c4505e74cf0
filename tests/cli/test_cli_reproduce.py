import pytest

from longform.cli.main import main
from longform_lab.commands import reproduce as command
from longform_lab.paper.reproduce import SUBJECTS


def test_help_names_every_subject_and_its_time():
    text = " ".join(command.parser().format_help().split())
    assert all(f"{name}: " in text for name in SUBJECTS)
    assert "minutes" in text


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["figure9"], 'SUBJECT is "figure9"'),
        (["figure3a"], "figure3a needs --text"),
        (["table2"], "table2 needs --data"),
        (["table1", "--text", "x.txt"], "table1 makes no use of --text"),
        (["table3", "--also", "window"], "no use of --also"),
        (["table3", "--scale", "huge"], '--scale is "huge"'),
        (["table3", "--lengths", "1"], "2 tokens or more"),
        (["table3", "--lengths", "128"], "k above n/2 is not measured"),
        (["figure1", "--text", "x.txt", "--lengths", "32", "64"], "one length, not 2"),
        (["table1", "--lengths", "512"], "two lengths or more"),
        (["figure3a", "--text", "nowhere.txt"], "nowhere.txt"),
        (["figure3a", "--text", "-"], "cannot be read again"),
        (["figure3a", "--text", "x.txt", "--preset", "enormous"], 'no preset "enormous"'),
        (["table2", "--data", "x", "--lengths", "64", "128"], "cuts texts to one length of 2 to 512"),
        (["table2", "--data", "nowhere"], '"nowhere" is not a folder'),
    ],
)
def test_bad_options_are_one_clear_line(line, said, tmp_path, capsys):
    assert main(["reproduce", *line, "--output", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()  # the right command is not refused afterwards


@pytest.mark.parametrize("subject", [["figure3a", "--text", "x.txt"], ["table2", "--data", "x"], ["table1"]])
def test_torchrun_is_refused(subject, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["reproduce", *subject, "--output", str(tmp_path / "out")]) == 2
    assert "one process a training" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
