"""The folder of a run: what is in it, going on after a kill, other settings refused, k that convert takes."""

import json
import sys
from pathlib import Path

import pytest
from json_lines import read_lines
from tiny_models import save_bert, save_longform
from transformers import AutoModel

from longform_lab.spectrum import run
from longform_lab.spectrum.results import read_result
from longform_text.cli.main import main


@pytest.fixture
def corpus(tmp_path):
    lines = [json.dumps({"text": "the long text is near and " * repeats + "far"}) for repeats in (2, 3, 4, 5)]
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def models(tmp_path, tiny_tokenizer):
    bert = save_bert(tmp_path / "tinybert", tiny_tokenizer)
    return [str(bert), str(save_longform(tmp_path / "tinylong", tiny_tokenizer))]


def arguments(models, corpus, output, *more):
    given = ["spectrum", *models, "--text", str(corpus), "--output", str(output), "--max-length", "20"]
    return [*given, "--index", "[4,8]", "--head-texts", "4", *more]


def test_a_report_of_two_models_and_k_for_convert(models, corpus, tmp_path, capsys):
    output = tmp_path / "out"
    assert main(arguments(models, corpus, output, "--total-k", "12")) == 0
    assert "tinybert on corpus, 4 texts" in capsys.readouterr().out
    records = read_lines(output / "records.jsonl")
    assert [row["event"] for row in records] == (["run"] + ["head"] * 2 * 3) * 2
    assert set(records[1]["share"]) == {"4", "8"}
    assert records[0]["settings"]["max_length"] == 20
    assert records[0]["subject"]["model"] == models[0]
    assert {"machine", "torch", "code", "measured"} <= set(records[0])
    page = (output / "report.html").read_text()
    for part in ("tinybert on corpus", "tinylong on corpus", "Side by side", "Do heads attend the same?",
                 "with these versions: "):  # fmt: skip
        assert part in page
    assert page.count("data:image/png;base64,") == 1 + 2 * 3
    assert "http" not in page
    kept = read_result(output / "runs" / "tinybert-corpus.jsonl")
    assert kept.similarity.shape == (6, 6)
    for kind, more in (
        ("per-layer", []),
        ("per-head", ["--projection-sharing", "none"]),
        ("total-12-per-head", []),  # the file says it
        ("total-12", []),
    ):
        path = output / "projected_length" / f"tinybert-corpus-{kind}.json"
        folder = tmp_path / kind
        convert = ["convert", models[0], str(folder), "--projected-length", str(path), "--max-length", "20"]
        assert main([*convert, "--attention-window", "null", "--sink-tokens", "0", *more]) == 0
        assert "note: " not in capsys.readouterr().out
        expected = json.loads(path.read_text())["projected_length"]
        assert AutoModel.from_pretrained(folder).config.projected_length == expected
    assert sum(expected) <= 12
    longer = ["convert", models[0], str(tmp_path / "longer"), "--projected-length", str(path), "--max-length", "40"]
    assert main([*longer, "--attention-window", "null", "--sink-tokens", "0"]) == 0
    assert f'note: k in "{path}" was measured at 20 tokens, and the model is for 40' in capsys.readouterr().out


def test_only_what_is_missing_is_measured_again(models, corpus, tmp_path, monkeypatch, capsys):
    output = tmp_path / "out"
    measured = []
    real = run._measure

    def counted(model, *rest):
        measured.append(model)
        if len(measured) == 2:
            raise KeyboardInterrupt
        return real(model, *rest)

    monkeypatch.setattr(run, "_measure", counted)
    for drawn in ("draw", "report_spectra"):  # the other test looks at them
        monkeypatch.setattr(run, drawn, lambda *rest: None)
    assert main(arguments(models, corpus, output)) == 130
    first = (output / "runs" / "tinybert-corpus.jsonl").read_bytes()
    assert main(arguments(models, corpus, output)) == 0
    assert measured == [models[0], models[1], models[1]]
    assert (output / "runs" / "tinybert-corpus.jsonl").read_bytes() == first
    assert main(arguments(models, corpus, output, "--keep", "0.5")) == 0  # looked at in another way
    assert len(measured) == 3
    assert main(arguments(models, corpus, output, "--texts", "3")) == 2
    assert "texts: 100 there, 3 now" in capsys.readouterr().err
    assert main(arguments(models, corpus, output, "--scale", "paper")) == 2
    assert "texts: 100 there, 10000 now" in capsys.readouterr().err
    assert main(arguments(models, corpus, output, "--scale", "paper", "--texts", "null")) == 2
    assert "texts: 100 there, None now" in capsys.readouterr().err


def test_names_in_any_script_have_files_of_their_own_and_short_texts_are_said(models, tmp_path, monkeypatch):
    for drawn in ("draw", "report_spectra"):
        monkeypatch.setattr(run, drawn, lambda *rest: None)
    corpora = [tmp_path / f"{name}.jsonl" for name in ("тексты", "статьи")]
    for path in corpora:
        path.write_text(json.dumps({"text": "the long text is near"}) + "\n")
    given = ["spectrum", models[0], "--text", *map(str, corpora), "--output", str(tmp_path / "out"),
             "--max-length", "20", "--index", "[4]", "--head-texts", "0"]  # fmt: skip
    assert main(given) == 0
    files = sorted((tmp_path / "out" / "runs").iterdir())
    assert [path.stem for path in files] == ["tinybert-статьи", "tinybert-тексты"]
    assert "7 to 7 tokens" in read_result(files[0]).notes[0]


def test_a_tokenizer_is_part_of_the_model(models, corpus, tmp_path, monkeypatch, capsys):
    for drawn in ("draw", "report_spectra"):
        monkeypatch.setattr(run, drawn, lambda *rest: None)
    given = arguments(models[:1], corpus, tmp_path / "out", "--head-texts", "0")
    assert main(given) == 0
    path = Path(models[0]) / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=3))
    assert main(given) == 2
    assert "weights_key: " in capsys.readouterr().err


def test_a_folder_goes_on_with_the_same_model_texts_and_field_alone(models, corpus, tmp_path, tiny_tokenizer, capsys):
    output = tmp_path / "out"
    assert main(arguments(models[:1], corpus, output, "--head-texts", "0")) == 0
    measured = (output / "runs" / "tinybert-corpus.jsonl").read_bytes()
    other = str(save_bert(tmp_path / "elsewhere" / "tinybert", tiny_tokenizer))
    assert main(arguments([other], corpus, output, "--head-texts", "0")) == 2
    said = capsys.readouterr().err
    assert f"model: {models[0]} there, {other} now" in said
    assert main(arguments(models[:1], corpus, output, "--head-texts", "0", "--text-field", "body")) == 2
    assert "text_field: text there, body now" in capsys.readouterr().err
    corpus.write_text(corpus.read_text().replace("near", "far"))
    assert main(arguments(models, corpus, output, "--head-texts", "0")) == 2
    assert "corpus_key: " in capsys.readouterr().err
    assert [path.name for path in (output / "runs").iterdir()] == ["tinybert-corpus.jsonl"]  # nothing was measured
    assert (output / "runs" / "tinybert-corpus.jsonl").read_bytes() == measured


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--scale", "huge"], "it is one of small, paper"),
        (["--index", "21"], "index 21 is above max_length=20"),
        (["--index", "18", "--texts", "1"], "index 18 is above the 15 tokens of the longest text"),
        (["--total-k", "1"], "total_k=1 cannot be shared out"),
        (["--max-length", "40"], "takes 32 tokens"),
        (["--text", "-"], '"-" cannot be read again'),
        (["--text-field", "body"], 'no field "body"'),
    ],
)
def test_wrong_options_are_one_clear_line(models, corpus, tmp_path, capsys, more, message):
    assert main(arguments(models[:1], corpus, tmp_path / "out", *more)) == 2
    assert message in capsys.readouterr().err


def test_a_refused_command_leaves_no_settings_behind(models, corpus, tmp_path, capsys):
    assert main(arguments(models[:1], corpus, tmp_path / "out", "--max-length", "40")) == 2
    assert main(arguments(models[:1], corpus, tmp_path / "out", "--head-texts", "0")) == 0
    assert main(arguments(models[:1], corpus, tmp_path / "out", "--max-length", "10")) == 2
    assert "begun with other settings or data (max_length: 20 there, 10 now" in capsys.readouterr().err


def test_without_matplotlib_nothing_is_measured(models, corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(arguments(models[:1], corpus, tmp_path / "out")) == 2
    assert 'pip install -e ".[train]"' in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_two_models_of_one_name_and_a_folder_of_something_else(models, corpus, tmp_path, capsys):
    assert main(arguments([models[0], models[0]], corpus, tmp_path / "out")) == 2
    assert "would be called tinybert-corpus" in capsys.readouterr().err
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "thesis.txt").touch()
    assert main(arguments(models[:1], corpus, tmp_path / "papers")) == 2
    assert "is not empty (thesis.txt)" in capsys.readouterr().err


def test_files_that_hold_no_k(tmp_path, models, capsys):
    (tmp_path / "bad.json").write_text('{"projected_length": "many"}')
    (tmp_path / "broken.yaml").write_text("[1, 2")
    for name, message in (("bad.json", "has no projected_length"), ("broken.yaml", "neither JSON nor YAML"),
                          ("nothing.json", "neither a number, a list nor a file")):  # fmt: skip
        given = ["convert", models[0], str(tmp_path / "o"), "--projected-length", str(tmp_path / name)]
        assert main(given) == 2
        assert message in capsys.readouterr().err
