"""torch.export with a dynamic batch and length: every length from 1 to the maximum, which many exporters lose."""

import pytest
import torch
from model_kinds import KINDS, LONGEST, compiled_kinds, model, text

import longform.layers.streaming
from longform import (
    LinformerForMaskedLM,
    LinformerForQuestionAnswering,
    LinformerForSequenceClassification,
    LinformerForTokenClassification,
)
from tolerances import assert_close

BATCH = torch.export.Dim("batch", min=1, max=64)
LENGTH = torch.export.Dim("length", min=1, max=LONGEST)
AXES = {0: BATCH, 1: LENGTH}


def exported(made):
    given = text(3, 20)
    program = torch.export.export(made, (), given, dynamic_shapes=dict.fromkeys(given, AXES), strict=False)
    return program.module()


# "mean-window-distances" has sinks too: what is traced for "mean-window-sinks", and the bias beside it.
@pytest.mark.parametrize("kind", compiled_kinds(kind for kind in KINDS if kind != "mean-window-sinks"))
@torch.no_grad()
def test_every_length_up_to_the_maximum(kind):
    made = model(kind, num_hidden_layers=2 if kind == "rotary-local" else 1)
    program = exported(made)
    for length in range(1, LONGEST + 1):
        given = text(1 + length % 3, length)
        kept = given["attention_mask"].bool()
        out, expected = program(**given).last_hidden_state, made(**given).last_hidden_state
        assert_close(out[kept], expected[kept], scope="model")


@torch.no_grad()
def test_padding_in_front_of_a_text():
    made = model("mean-window", num_hidden_layers=1)
    program = exported(made)
    for length in (1, 17, LONGEST):
        given = text(2, length)
        given["attention_mask"] = given["attention_mask"].flip(1)
        kept = given["attention_mask"].bool()
        out, expected = program(**given), made(**given)
        assert_close(out.last_hidden_state[kept], expected.last_hidden_state[kept], scope="model")
        assert_close(out.pooler_output, expected.pooler_output, scope="model")


@torch.no_grad()
def test_texts_that_eager_mode_reads_in_parts(monkeypatch):
    monkeypatch.setattr(longform.layers.streaming, "LONG", 16)
    made = model("mean", num_hidden_layers=1)
    program = exported(made)
    for length in (15, 16, LONGEST):
        given = text(1, length)
        assert_close(program(**given).last_hidden_state, made(**given).last_hidden_state, scope="model")


@torch.no_grad()
def test_one_token_more_than_the_maximum_is_refused():
    program = exported(model("linear"))
    with pytest.raises(AssertionError, match=r"<= 32|length"):
        program(**text(1, LONGEST + 1))


@pytest.mark.parametrize(
    "head",
    [
        LinformerForSequenceClassification,
        *(
            pytest.param(head, marks=pytest.mark.nightly)
            for head in (LinformerForMaskedLM, LinformerForTokenClassification, LinformerForQuestionAnswering)
        ),
    ],
)
@torch.no_grad()
def test_heads_export(head):
    made = model("mean", head, num_hidden_layers=1, classifier_pooling="mean")
    program = exported(made)
    for length in (1, 13, LONGEST):
        given = text(2, length)
        kept = given["attention_mask"].bool()
        out, expected = program(**given), made(**given)
        assert out.keys() == expected.keys()
        for name, value in expected.items():
            per_token = value.shape[:2] == kept.shape
            chosen = kept if per_token else slice(None)
            assert_close(out[name][chosen], value[chosen], scope="model")


@torch.no_grad()
def test_an_exported_model_survives_a_file(tmp_path):
    made = model("linear")
    given = text(2, 9)
    program = torch.export.export(made, (), given, dynamic_shapes=dict.fromkeys(given, AXES), strict=False)
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    given = text(1, LONGEST)
    assert_close(loaded(**given).last_hidden_state, made(**given).last_hidden_state, scope="model")
