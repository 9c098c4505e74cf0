from longform.cli.main import main
from longform_lab.demo import run as demo


def test_help_has_the_options_and_hides_the_scale(capsys):
    assert main(["demo", "--help"]) == 0
    printed = capsys.readouterr().out
    for option in ("--output", "--seed", "--restart"):
        assert option in printed
    assert "--scale" not in printed


def test_options_reach_the_demo(tmp_path, monkeypatch):
    given = {}
    monkeypatch.setattr(demo, "run_demo", lambda output, **options: given.update(output=output, **options))
    assert main(["demo", "--output", str(tmp_path), "--seed", "3", "--scale", "tiny", "--restart"]) == 0
    assert given == {"output": str(tmp_path), "seed": 3, "scale": "tiny", "restart": True}
    assert main(["demo"]) == 0
    assert (str(given["output"]), given["seed"], given["scale"], given["restart"]) == ("runs/demo", 0, "full", False)


def test_a_foreign_folder_is_one_clear_line(tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("precious")
    assert main(["demo", "--output", str(tmp_path), "--scale", "tiny"]) == 2
    assert "is not empty (thesis.txt), and holds no demo" in capsys.readouterr().err
    assert main(["demo", "--output", str(tmp_path), "--scale", "tiny", "--restart"]) == 2
    assert (tmp_path / "thesis.txt").read_text() == "precious"
