"""Figure 1 is longform spectrum with the paper's settings: the same folder, and nothing measured twice."""

import json

import pytest
from tiny_models import save_bert

from longform.errors import ConfigurationError
from longform_lab.commands.spectrum import eager_encoder
from longform_lab.paper.figure1 import page_of_figure1, reproduce_figure1


def test_a_spectrum_and_its_report(tmp_path, tiny_tokenizer):
    source = save_bert(tmp_path / "tiny-bert", tiny_tokenizer)
    texts = tmp_path / "texts.jsonl"
    rows = [{"body": "the long text and the short text is near " * 4}] * 2
    rows.insert(0, {"body": "too short"})
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"models": [str(source)], "text_field": "body", "texts": 2, "max_length": 16, "progress": False}
    found = reproduce_figure1(
        "small", [str(texts)], tmp_path / "out", opener=lambda name: eager_encoder(name, "cpu"), **options
    )
    assert found[0].spectrum.cumulative.shape == (2, 3, 16)  # layers, heads, n
    assert (found[0].spectrum.texts, found[0].spectrum.passed_over) == (2, 1)
    assert "data:image/png;base64," in (tmp_path / "out" / "report.html").read_text()
    page = page_of_figure1(found)
    share = float(found[0].spectrum.cumulative[1, :, 3].mean())
    assert page.sections[0].table.rows[1][1].startswith(f"{share:.1%} ")
    assert [claim.paper[:11] for claim in page.claims] == ["a long tail", "higher laye"]
    again = reproduce_figure1(
        "small", [str(texts)], tmp_path / "out", opener=lambda name: pytest.fail("measured again"), **options
    )
    assert (again[0].spectrum.cumulative == found[0].spectrum.cumulative).all()


def test_standard_input_is_not_read_twice(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read again"):
        reproduce_figure1("small", ["-"], tmp_path, opener=lambda name: None, models=["a", "b"])
