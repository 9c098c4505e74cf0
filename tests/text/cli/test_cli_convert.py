import json

import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertConfig, BertModel

from longform.choices import POOLINGS
from longform_text.cli import convert as convert_command
from longform_text.cli import embed as embed_command
from longform_text.cli.main import main


@pytest.fixture
def source(tiny_tokenizer, tmp_path):
    config = BertConfig(vocab_size=len(tiny_tokenizer), hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
                        intermediate_size=37, max_position_embeddings=40)  # fmt: skip
    BertModel(config).save_pretrained(tmp_path / "source")
    tiny_tokenizer.save_pretrained(tmp_path / "source")
    return tmp_path / "source"


def test_convert_writes_a_folder_and_says_what_it_did(source, tmp_path, capsys):
    assert main(["convert", str(source), str(tmp_path / "out"), "--max-length", "200", "--attention_window", "20"]) == 0
    printed = capsys.readouterr().out
    for part in ("200 tokens instead of 40", "extended", "parameters", "saved", "next", "longform distill"):
        assert part in printed
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["max_position_embeddings"], config["attention_window"], config["memory_budget"]) == (200, 20, 40)
    assert (tmp_path / "out" / "conversion_report.json").is_file()


def test_options_from_a_yaml_file_and_over_it(source, tmp_path):
    (tmp_path / "options.yaml").write_text(
        "projection: linear\nprojected_length: [4, 8]\nattention_window: null\ntask: sequence-classification\n"
        "num_labels: 3\nclassifier_pooling: mean\nmax_length: 64\n"
    )
    arguments = ["--config", str(tmp_path / "options.yaml"), "--max-length", "50", str(source), str(tmp_path / "out")]
    assert main(["convert", *arguments]) == 0
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert model.config.projected_length == [4, 8]
    assert model.config.max_position_embeddings == 50
    assert model(torch.ones(1, 50, dtype=torch.long)).logits.shape == (1, 3)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_pooling_of_a_classification_head(source, tmp_path, pooling):
    arguments = ["convert", str(source), str(tmp_path / "out"), "--max-length", "64", "--num-labels", "3"]
    assert main([*arguments, "--task", "sequence-classification", "--classifier-pooling", pooling]) == 0
    assert json.loads((tmp_path / "out" / "config.json").read_text())["classifier_pooling"] == pooling


@pytest.mark.parametrize("command", [convert_command, embed_command])
def test_help_names_every_pooling(command):
    (option,) = [action for action in command.parser()._actions if action.dest.endswith("pooling")]
    assert all(kind in option.metavar for kind in POOLINGS)


@pytest.mark.parametrize(
    "options",
    [[], ["--max-length", "512"], ["--max-length", "20"], ["--attention-window", "48"], ["--projection", "linear"]],
)
@pytest.mark.parametrize("k", [17, [37, 1], [[3, 100, 45], [1, 1, 511]]])
def test_any_file_of_k_goes_with_any_window(source, tmp_path, capsys, options, k):
    """A file of k, measured at a length of its own, without a window."""
    path = tmp_path / "k.json"
    path.write_text(json.dumps({"projected_length": k, "projection_sharing": "none", "max_length": 512}))
    assert main(["convert", str(source), str(tmp_path / "out"), "--projected-length", str(path), *options]) == 0
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    found, longest = torch.tensor(config["projected_length"]), config["max_position_embeddings"]
    assert (found >= torch.tensor(k).clamp(max=longest)).all()
    assert ("is raised" in capsys.readouterr().out) == (config["projected_length"] != k)


def test_restart_replaces_an_earlier_conversion(source, tmp_path, capsys):
    arguments = ["convert", str(source), str(tmp_path / "out"), "--max-length", "80"]
    assert main(arguments) == 0
    assert main(arguments) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main([*arguments, "--restart"]) == 0


@pytest.mark.parametrize("text", ["&a [*a]", "[[[2]]]", "1" * 5000, "2001-99-99", "[" * 3000])
def test_a_file_that_holds_no_lengths(source, tmp_path, capsys, text):
    (tmp_path / "k.yaml").write_text(text)
    options = ["--projected-length", str(tmp_path / "k.yaml")]
    assert main(["convert", str(source), str(tmp_path / "out"), *options]) == 2
    assert capsys.readouterr().err.startswith(f'longform: error: "{tmp_path / "k.yaml"}" ')


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-length", "0"], "max_length=0"),
        (["--attention-window", "7", "--projected-length", "32"], "attention_window=7 is not a multiple"),
        (["--task", "translation"], '--task is "translation"; it is one of encoder,'),
        (["--projection", "median"], "median"),
        (["--classifier-pooling", "median"], "median"),
        (["--max-length", "many"], "max"),
    ],
)
def test_wrong_options_are_one_clear_line(source, tmp_path, capsys, options, message):
    assert main(["convert", str(source), str(tmp_path / "out"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_source_that_is_not_there(tmp_path, capsys):
    assert main(["convert", str(tmp_path / "nowhere"), str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == f'longform: error: "{tmp_path / "nowhere"}" is no folder\n'
