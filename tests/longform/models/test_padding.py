"""Padding at either end of a text: the result of the text alone, in the caller's places."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_kinds import KINDS, LONGEST, model
from torch import Tensor

from longform import (
    LinformerForMaskedLM,
    LinformerForQuestionAnswering,
    LinformerForSequenceClassification,
    LinformerForTokenClassification,
    LinformerModel,
)
from longform.choices import POOLINGS
from longform.errors import InputError
from longform.layers import streaming
from longform.models.inference import pack_weights
from tolerances import assert_close

FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {"pad_token_id": 0},
    "roberta": {"pad_token_id": 1, "position_offset": 2, "type_vocab_size": 1},
    "distilbert": {"pad_token_id": 0, "type_vocab_size": 0},
    "electra": {"pad_token_id": 0, "embedding_size": 6},
}
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
HEADS = [
    LinformerForMaskedLM, LinformerForSequenceClassification, LinformerForTokenClassification,
    LinformerForQuestionAnswering,
]  # fmt: skip


def batch_of(texts: list[tuple[int, int]], width: int, pad: int = 0) -> dict[str, Tensor]:
    """Rows of (padding in front, tokens of text) in a batch of ``width`` tokens."""
    place = torch.arange(width)
    mask = torch.stack([(place >= before) & (place < before + tokens) for before, tokens in texts])
    ids = torch.randint(5, 40, mask.shape)
    return {"input_ids": torch.where(mask, ids, pad), "attention_mask": mask.long()}


def alone(given: dict[str, Tensor], row: int) -> dict[str, Tensor]:
    """One text of a batch without its padding."""
    kept = given["attention_mask"][row].bool()
    return {name: x[row : row + 1, kept] for name, x in given.items() if name != "attention_mask"}


@st.composite
def paddings(draw: st.DrawFn, rows: int = 3) -> tuple[list[tuple[int, int]], int]:
    width = draw(st.integers(1, LONGEST))
    texts = []
    for _ in range(draw(st.integers(1, rows))):
        tokens = draw(st.integers(1, width))
        texts.append((draw(st.integers(0, width - tokens)), tokens))
    return texts, width


MODELS: dict[tuple[str, str], Any] = {}


def kept_model(kind: str, family: str) -> Any:
    """A model of each kind and family, made once."""
    if (kind, family) not in MODELS:
        torch.manual_seed(0)
        MODELS[kind, family] = model(kind, num_hidden_layers=1, **FAMILIES[family])
    return MODELS[kind, family]


@settings(max_examples=max(500, settings.default.max_examples))  # HYPOTHESIS_EXAMPLES=2000 with the profile "search"
@given(kind=st.sampled_from(list(KINDS)), family=st.sampled_from(list(FAMILIES)), padding=paddings())
@torch.no_grad()
def test_a_text_alone_and_between_padding(kind, family, padding):
    made = kept_model(kind, family)
    given = batch_of(*padding, pad=FAMILIES[family]["pad_token_id"])
    out = made(**given)
    for row in range(len(padding[0])):
        expected = made(**alone(given, row))
        assert_close(out.last_hidden_state[row, given["attention_mask"][row].bool()], expected.last_hidden_state[0])
        assert_close(out.pooler_output[row], expected.pooler_output[0])


TEXTS, WIDTH = [(0, 32), (5, 20), (0, 11), (31, 1), (9, 23)], 32


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_training_has_the_gradients_of_padding_on_the_right(kind, family):
    made = model(kind, LinformerForMaskedLM, **QUIET, **FAMILIES[family]).double().train()
    left = batch_of(TEXTS, WIDTH, pad=FAMILIES[family]["pad_token_id"])
    labels = torch.where(left["attention_mask"].bool(), left["input_ids"], -100)
    right = {name: torch.stack([x[row].roll(-before) for row, (before, _) in enumerate(TEXTS)])
             for name, x in (left | {"labels": labels}).items()}  # fmt: skip
    found = []
    for inputs in (left | {"labels": labels}, right):
        made.zero_grad()
        loss = made(**inputs).loss
        loss.backward()
        found.append([loss.detach(), *(p.grad for p in made.parameters() if p.grad is not None)])
    for one, other in zip(*found, strict=True):
        assert_close(one, other, scope="model")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_long_texts_in_parts_and_packed_weights(kind, packed, monkeypatch):
    monkeypatch.setattr(streaming, "CPU_ROWS", 8)
    monkeypatch.setattr(streaming, "LONG", 16)
    made = model(kind)
    made = pack_weights(made) if packed else made
    given = batch_of(TEXTS, WIDTH)
    out = made(**given).last_hidden_state
    for row in range(len(TEXTS)):
        assert_close(
            out[row, given["attention_mask"][row].bool()], made(**alone(given, row)).last_hidden_state[0], scope="model"
        )


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("head", HEADS)
@torch.no_grad()
def test_every_head(head, pooling):
    made = model("mean-window", head, classifier_pooling=pooling)
    given = batch_of(TEXTS, WIDTH)
    out = made(**given)
    for row in range(len(TEXTS)):
        kept, text = given["attention_mask"][row].bool(), alone(given, row)
        for name, value in made(**text).items():
            per_token = value.shape[1:2] == (int(kept.sum()),) and out[name].shape[1:2] == (WIDTH,)
            assert_close(out[name][row, kept] if per_token else out[name][row], value[0], scope="model")


@torch.no_grad()
def test_an_answer_is_where_the_caller_has_it():
    made = model("mean", LinformerForQuestionAnswering)
    given, text = batch_of([(9, 20)], WIDTH), batch_of([(0, 20)], 20)
    given["input_ids"][0, 9:29] = text["input_ids"][0]
    out = made(**given, start_positions=torch.tensor([11]), end_positions=torch.tensor([14]))
    logits = out.start_logits[0], out.end_logits[0]
    expected = sum(
        torch.nn.functional.cross_entropy(x, torch.tensor(at)) for x, at in zip(logits, (11, 14), strict=True)
    )
    assert_close(out.loss, expected / 2, scope="model")
    assert_close(out.start_logits[0, 9:29], made(**text).start_logits[0], scope="model")


@pytest.mark.parametrize("shape", ["n", "1n", "bn"])
@torch.no_grad()
def test_positions_and_types_of_the_caller_move_along(shape):
    made, given = model("mean-window"), batch_of([(9, 20), (3, 29)], WIDTH)
    given["token_type_ids"] = torch.randint(0, 2, (2, WIDTH))
    given["position_ids"] = torch.randint(0, LONGEST, (2, WIDTH))
    if shape != "bn":
        given["position_ids"] = given["position_ids"][:1].expand(2, -1)
    expected = [made(**alone(given, row)).last_hidden_state[0] for row in range(2)]
    chosen = {"n": given["position_ids"][0], "1n": given["position_ids"][:1], "bn": given["position_ids"]}[shape]
    out = made(**given | {"position_ids": chosen}).last_hidden_state
    for row in range(2):
        assert_close(out[row, given["attention_mask"][row].bool()], expected[row], scope="model")


@pytest.mark.parametrize("kind", KINDS)
def test_several_texts_in_rows_of_a_batch_are_refused(kind):
    """Positions that begin anew, as DataCollatorWithFlattening of transformers gives them; others are positions."""
    made, ids = model(kind), torch.randint(3, 40, (2, 20))
    packed, whole = torch.cat([torch.arange(8), torch.arange(12)]), torch.arange(20)
    for positions in (packed, packed[None], torch.stack([whole, packed]), packed + 2, torch.arange(20) % 5):
        for mask in (None, torch.ones_like(ids)):
            with pytest.raises(InputError, match="position_ids begin anew"):
                made(ids, attention_mask=mask, position_ids=positions)
        with pytest.raises(InputError, match="position_ids begin anew"):
            made(ids[:1], torch.ones(1, 20), position_ids=positions[-1:] if positions.dim() == 2 else positions)
    expected, mask = made(ids).last_hidden_state, torch.ones_like(ids)
    mask[0, :8] = 0
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)  # generate's, with padding in front
    states = [made(ids, attention_mask=mask, position_ids=x).last_hidden_state for x in (None, positions)]
    padded, again = (x[mask.bool()] for x in states)
    assert_close(again, padded, scope="model")
    for positions in (whole, whole + 3, torch.zeros_like(whole), torch.randperm(20)):
        for padding in (None, mask, mask.flip(1)):
            assert made(ids, padding, position_ids=positions).last_hidden_state.shape == expected.shape


def test_vectors_in_place_of_ids_with_their_gradients():
    made, given = model("mean-window").double(), batch_of(TEXTS, WIDTH)
    kept = given["attention_mask"].bool()
    vectors = torch.where(kept[..., None], torch.randn(5, WIDTH, 8).double(), torch.nan).requires_grad_()
    out = made(inputs_embeds=vectors, attention_mask=kept)
    slope = torch.randn(5, WIDTH, 8).double()
    (gradient,) = torch.autograd.grad(out.last_hidden_state[kept], vectors, slope[kept])
    assert (gradient[~kept] == 0).all()
    for row in range(5):
        text = vectors.detach()[row : row + 1, kept[row]].requires_grad_()
        expected = made(inputs_embeds=text).last_hidden_state
        (its_gradient,) = torch.autograd.grad(expected, text, slope[row : row + 1, kept[row]])
        assert_close(out.last_hidden_state[row, kept[row]], expected[0], scope="model")
        assert_close(gradient[row, kept[row]], its_gradient[0], scope="model")


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_states_and_weights_are_in_the_places_of_the_caller(kind):
    made, given = model(kind), batch_of(TEXTS, WIDTH)
    asked = {"output_attentions": True, "output_hidden_states": True}
    out = made(**given, **asked)
    for row, (before, tokens) in enumerate(TEXTS):
        kept = slice(before, before + tokens)
        expected = made(**alone(given, row), **asked)
        for states, its_states in zip(out.hidden_states, expected.hidden_states, strict=True):
            assert_close(states[row, kept], its_states[0], scope="model")
        for weights, its_weights in zip(out.attentions, expected.attentions, strict=True):
            queries = weights[row, :, kept]
            assert_close(queries.sum(dim=-1), torch.ones(2, tokens), scope="model")
            if kind == "window over everything":
                assert_close(queries[..., kept], its_weights[0], scope="model")


@torch.no_grad()
def test_holes_inside_a_text_keep_their_places():
    made, given = model("mean-window"), batch_of([(0, 20), (6, 20)], WIDTH)
    given["input_ids"][1, 6:26] = given["input_ids"][0, :20]
    for row, before in enumerate((0, 6)):
        given["attention_mask"][row, before + 7 : before + 11] = 0
    out = made(**given).last_hidden_state
    kept = given["attention_mask"][0, :20].bool()
    assert_close(out[1, 6:26][kept], out[0, :20][kept], scope="model")
    alone_with_holes = made(given["input_ids"][:1, :20], kept[None]).last_hidden_state
    assert_close(out[0, :20][kept], alone_with_holes[0, kept], scope="model")


@torch.no_grad()
def test_a_row_of_padding_alone_beside_padding_on_the_left():
    for pooling in POOLINGS:
        made = model("mean-window", LinformerForSequenceClassification, classifier_pooling=pooling)
        assert made(**batch_of([(6, 20), (0, 0)], WIDTH)).logits.isfinite().all()


@torch.no_grad()
def test_text_at_the_front_is_not_moved(monkeypatch):
    made, given = LinformerModel(model("mean").config), batch_of([(0, 20), (0, 32)], WIDTH)
    monkeypatch.setattr("longform.models.text_reader.moved", lambda *_: pytest.fail("moved"))
    made(**given)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_on_either_side_under_vmap(kind):
    """Which has no values to look at, as the device "meta" has none: every row is moved."""
    made, ids, mask = model(kind).double(), torch.randint(5, 40, (3, 30)), torch.ones(3, 30, dtype=torch.long)
    mask[1, :6], mask[2, 20:] = 0, 0
    found = torch.func.vmap(lambda *text: made(*(x[None] for x in text)).last_hidden_state[0])(ids, mask)
    valid = mask.bool()
    assert_close(found[valid], made(ids, mask).last_hidden_state[valid], scope="model")
