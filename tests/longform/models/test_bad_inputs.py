"""Inputs that a model cannot take, and padding that may hold anything."""

import math

import pytest
import torch
from model_kinds import KINDS, LONGEST, model, text
from transformers import DynamicCache

import longform
from longform import (
    LinformerAttention,
    LinformerForCausalLM,
    LinformerForMaskedLM,
    LinformerForSequenceClassification,
    LinformerModel,
)
from longform.errors import InputError
from longform.layers.causal_cache import CausalCache
from longform.models.text_reader import UNSERVED
from tolerances import assert_close

IDS = torch.full((2, 5), 7)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"input_ids": torch.full((1, 33), 7)}, r"n=33 tokens.*max_position_embeddings=32.*--max-length 33"),
        ({"inputs_embeds": torch.zeros(1, 40, 8)}, r"n=40 tokens.*longform\.convert\(.*max_length=40\)"),
        ({"input_ids": torch.zeros(2, 0, dtype=torch.long)}, r"the input has no tokens"),
        ({}, r"either input_ids or inputs_embeds"),
        ({"input_ids": IDS, "inputs_embeds": torch.zeros(2, 5, 8)}, r"either input_ids or inputs_embeds, and not both"),
        ({"input_ids": IDS, "attention_mask": torch.ones(2, 4)}, r"shape \(2, 4\), expected .* \(2, 5\)"),
        ({"input_ids": IDS, "attention_mask": torch.ones(5)}, r"shape \(5,\), expected .* \(2, 5\)"),
        ({"input_ids": IDS, "attention_mask": torch.ones(2, 1, 1, 5)}, r"shape \(2, 1, 1, 5\), expected"),
        ({"input_ids": IDS, "attention_mask": torch.full((2, 5), 2)}, r"attention_mask holds 2; it takes 1 for text"),
        ({"input_ids": IDS, "attention_mask": torch.full((2, 5), -1e9)}, r"attention_mask holds -1000000000"),
        ({"input_ids": IDS, "attention_mask": torch.full((2, 5), 0.5)}, r"attention_mask holds 0.5"),
        ({"input_ids": IDS, "attention_mask": torch.full((2, 5), math.nan)}, r"attention_mask holds nan"),
        ({"input_ids": IDS[0]}, r"the input is torch.int64 of shape \(5,\): input_ids are whole numbers \(B, n\)"),
        ({"input_ids": IDS[None]}, r"the input is torch.int64 of shape \(1, 2, 5\)"),
        ({"input_ids": IDS.float()}, r"the input is torch.float32 of shape \(2, 5\)"),
        ({"inputs_embeds": torch.zeros(2, 5)}, r"torch.float32 of shape \(2, 5\).* vectors \(B, n, 8\)"),
        ({"inputs_embeds": torch.zeros(2, 5, 7)}, r"torch.float32 of shape \(2, 5, 7\).* vectors \(B, n, 8\)"),
        ({"input_ids": IDS, "position_ids": torch.arange(4)}, r"position_ids is torch.int64 of shape \(4,\), expected"),
        ({"input_ids": IDS, "position_ids": IDS[None]}, r"position_ids is torch.int64 of shape \(1, 2, 5\), expected"),
        ({"input_ids": IDS, "position_ids": IDS.float()}, r"position_ids is torch.float32 of shape \(2, 5\)"),
        ({"input_ids": IDS, "token_type_ids": IDS > 0}, r"token_type_ids is torch.bool of shape \(2, 5\)"),
        ({"input_ids": IDS, "token_type_ids": IDS.repeat(2, 1)}, r"token_type_ids is torch.int64 of shape \(4, 5\)"),
        ({"input_ids": IDS, "token_type_ids": IDS}, r"token_type_ids are from 7 to 7; this model takes 0 to 1"),
        ({"input_ids": IDS, "position_ids": torch.arange(-1, 4)}, r"position_ids are from -1 to 3; .* 0 to 31"),
        ({"input_ids": IDS, "position_ids": torch.arange(28, 33)}, r"position_ids are from 28 to 32; .* 0 to 31"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["linear", "mean-window"])
def test_a_clear_error(kind, given, message):
    with pytest.raises(InputError, match=message):
        model(kind, LinformerForSequenceClassification)(**given)


HEADS = [LinformerModel, *(getattr(longform, name) for name in dir(longform) if name.startswith("LinformerFor"))]
HEADS.remove(LinformerForCausalLM)


@pytest.mark.parametrize("head", HEADS)
def test_arguments_that_would_change_a_result_are_refused(head):
    made, ids = model("mean-window", head), IDS
    vectors = torch.zeros(2, 4, 8)
    for name in UNSERVED:
        with pytest.raises(InputError, match=f"{name}: Linformer models have no"):
            made(ids, **{name: vectors})
    with pytest.raises(InputError, match="is_causal must be what the configuration says, causal=False"):
        made(ids, is_causal=True)
    with pytest.raises(InputError, match="past_key_values is a DynamicCache"):
        made(ids, past_key_values=DynamicCache())
    with pytest.raises(InputError, match="a model with causal=True"):
        made(ids, past_key_values=CausalCache(2))


@pytest.mark.parametrize("head", HEADS)
def test_other_unknown_arguments_are_named(head):
    made, ids = model("mean-window", head), IDS
    expected = made(ids)[0]
    for name in ("visual_embeds", "atention_mask", "use_cache"):
        with pytest.warns(UserWarning, match=f"^{name} is no argument") as said:
            assert torch.equal(made(ids, **{name: torch.ones(2, 5)})[0], expected)
        assert len(said) == 1
    asks_nothing = {"encoder_hidden_states": None, "use_cache": False, "is_causal": False, "return_dict": True}
    assert torch.equal(made(ids, **asks_nothing)[0], expected)


def test_the_layer_alone_names_its_limit():
    layer = LinformerAttention(8, 2, max_length=16, projected_length=4)
    with pytest.raises(InputError, match="n=17 tokens, this layer takes at most max_length=16"):
        layer(torch.zeros(1, 17, 8))
    with pytest.raises(InputError, match=r"shape \(1, 3\), expected .* \(1, 4\)"):
        layer(torch.zeros(1, 4, 8), torch.ones(1, 3))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_padding_alone_are_finite_and_change_nothing(kind):
    made = model(kind, LinformerForMaskedLM).train()
    given = text(3, 21)
    given["attention_mask"][1] = 0
    given["labels"] = torch.where(given["attention_mask"].bool(), given["input_ids"], -100)
    made.eval()
    out = made(**given)
    assert torch.isfinite(out.logits).all()
    others = made(**{name: value[[0, 2]] for name, value in given.items()})
    kept = given["attention_mask"].bool()[[0, 2]]
    assert_close(out.logits[[0, 2]][kept], others.logits[kept], scope="model")
    out.loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in made.parameters() if p.grad is not None)
    pooled = model(kind, LinformerForSequenceClassification, classifier_pooling="mean")
    empty = torch.zeros(2, 9, dtype=torch.long)
    assert torch.isfinite(pooled(empty + 7, attention_mask=empty).logits).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("normalization", ["post", "pre"])
def test_nan_in_padding_reaches_nothing(kind, normalization):
    options = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "normalization": normalization}
    made = model(kind, LinformerForSequenceClassification, classifier_pooling="mean", **options)
    given = text(2, 21)
    kept = given["attention_mask"].bool()
    vectors = torch.randn(2, 21, 8)
    found = []
    for filling in (0.0, math.nan, math.inf):
        made.zero_grad()
        inputs = torch.where(kept[..., None], vectors, filling).requires_grad_()
        out = made(inputs_embeds=inputs, attention_mask=kept, labels=torch.tensor([0, 1]), output_hidden_states=True)
        out.loss.backward()
        gradients = {name: p.grad for name, p in made.named_parameters() if p.grad is not None}
        found.append((out.logits, out.hidden_states[-1][kept], inputs.grad, *gradients.values()))
    for poisoned in found[1:]:
        for clean, other in zip(found[0], poisoned, strict=True):
            assert torch.equal(clean, other)
    assert (found[0][2][~kept] == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_masks_of_any_type_are_one(kind):
    made, given = model(kind), text(2, LONGEST)
    expected = made(**given)[0]
    for dtype in (torch.bool, torch.int32, torch.float32, torch.float64):
        assert torch.equal(made(given["input_ids"], given["attention_mask"].to(dtype))[0], expected)
    full = made(given["input_ids"])[0]
    for dtype in (torch.bool, torch.int64, torch.float32):
        assert torch.equal(made(given["input_ids"], torch.ones(2, LONGEST, dtype=dtype))[0], full)
