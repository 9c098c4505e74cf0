"""Tokens that read the text and are not read (a MultiVectorEncoder's query expansion): BERT's states at padding."""

from typing import Any

import pytest
import torch
from tiny_models import SIZES
from torch import Tensor
from transformers import BertConfig, BertModel

import longform
from longform import LinformerModel
from longform.errors import InputError

LENGTH = 14
KINDS: dict[str, dict[str, Any]] = {
    "a window over everything": {"attention_window": 32},
    "a text within two windows": {"attention_window": 8, "projected_length": 8},
    "slots alone, one a token": {"attention_window": None, "projected_length": 64, "sink_tokens": 0},
}


def _pair(**kind: Any) -> tuple[BertModel, LinformerModel]:
    torch.manual_seed(3)
    bert = BertModel(BertConfig(vocab_size=40, max_position_embeddings=32, **SIZES)).eval()
    made = longform.convert(bert, max_length=64, **kind).model
    assert isinstance(made, LinformerModel)
    return bert, made


def _queries() -> tuple[dict[str, Tensor], Tensor]:
    """Three queries, expanded to 12 tokens; then padding."""
    text = torch.arange(LENGTH) < torch.tensor([[9], [3], [12]])
    inputs = {"input_ids": torch.randint(5, 40, text.shape), "attention_mask": text.long()}
    return inputs, ~text & (torch.arange(LENGTH) < 12)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("gradients", [False, True])
def test_they_have_the_states_that_bert_gives_them(name: str, gradients: bool) -> None:
    bert, made = _pair(**KINDS[name])
    inputs, unread = _queries()
    with torch.set_grad_enabled(gradients):
        found = made(**inputs, query_expansion_positions=unread).last_hidden_state
        without = made(**inputs).last_hidden_state
        expected = bert(**inputs).last_hidden_state
    kept = inputs["attention_mask"].bool() | unread
    torch.testing.assert_close(found[kept], expected[kept], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found[~unread], without[~unread])
    assert (found - without)[unread].abs().amax() > 0.1


def test_they_move_with_a_text_that_is_padded_in_front() -> None:
    _, made = _pair(**KINDS["a text within two windows"])
    inputs, unread = _queries()
    places = (torch.arange(LENGTH) - 2) % LENGTH  # the two tokens of padding at the end come first
    with torch.inference_mode():
        expected = made(**inputs, query_expansion_positions=unread).last_hidden_state
        moved = {name: x[:, places] for name, x in inputs.items()}
        found = made(**moved, query_expansion_positions=unread[:, places]).last_hidden_state
    torch.testing.assert_close(found[:, 2:], expected[:, :-2], atol=1e-5, rtol=1e-5)


def test_where_there_can_be_none() -> None:
    _, made = _pair(attention_window=8, projected_length=8)
    inputs, unread = _queries()
    with pytest.raises(InputError, match=r"query_expansion_positions has shape \(3, 13\), expected .* \(3, 14\)"):
        made(**inputs, query_expansion_positions=unread[:, 1:])
    longer = {name: torch.cat([x, x], dim=1) for name, x in inputs.items()}
    with pytest.raises(InputError, match="at most 2 x attention_window=8 tokens, not n=28: shorten the query"):
        made(**longer, query_expansion_positions=torch.cat([unread, unread], dim=1))
