"""Several texts in one row of a model's input, as DataCollatorWithFlattening of transformers puts them."""

import pytest
import torch
from model_kinds import KINDS, model
from transformers import DataCollatorWithFlattening

from longform import LinformerForMaskedLM, LinformerForSequenceClassification
from longform.errors import InputError
from tolerances import assert_close

LENGTHS = (3, 17, 1, 20, 16)


def rows() -> list[list[int]]:
    torch.manual_seed(2)
    return [torch.randint(3, 40, (length,)).tolist() for length in LENGTHS]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flash", [False, True])
def test_each_text_is_read_as_if_alone(kind, flash):
    made = model(kind)
    collate = DataCollatorWithFlattening(return_flash_attn_kwargs=flash, return_position_ids=not flash)
    batch = {name: x for name, x in collate([{"input_ids": ids} for ids in rows()]).items() if name != "labels"}
    out, each = made(**batch), [made(torch.tensor([ids])) for ids in rows()]
    assert_close(out.last_hidden_state, torch.cat([x.last_hidden_state for x in each], dim=1), scope="model")
    if each[0].pooler_output is not None:
        assert_close(out.pooler_output, torch.cat([x.pooler_output for x in each]), scope="model")


def test_the_limit_is_that_of_one_text():
    made = model(next(iter(KINDS)))
    limit = made.config.max_position_embeddings
    texts = [{"input_ids": [5] * limit}] * 2
    batch = DataCollatorWithFlattening(return_flash_attn_kwargs=True)(texts)
    batch.pop("labels")
    assert made(**batch).last_hidden_state.shape[1] == 2 * limit
    batch["cu_seq_lens_q"] = torch.tensor([0, 2 * limit], dtype=torch.int32)
    batch["max_length_q"] = 2 * limit
    with pytest.raises(InputError, match=f"at most max_position_embeddings={limit}"):
        made(**batch)


def test_heads_of_tokens_read_them_and_heads_of_whole_texts_refuse_them():
    config = model(next(iter(KINDS))).config
    batch = DataCollatorWithFlattening()([{"input_ids": ids} for ids in rows()])
    assert LinformerForMaskedLM(config)(**batch).loss.isfinite()
    batch.pop("labels")
    head = LinformerForSequenceClassification(config)
    with pytest.raises(InputError, match="position_ids begin anew"):
        head(**batch)
    with pytest.raises(InputError, match="whole texts, one a row"):
        head(batch["input_ids"], cu_seq_lens_q=torch.tensor([0, 10, 57]))


def test_ends_are_of_one_row_without_a_mask():
    made, ids = model(next(iter(KINDS))), torch.randint(3, 40, (2, 20))
    with pytest.raises(InputError, match="cu_seq_lens_q is of texts in one row"):
        made(ids, cu_seq_lens_q=torch.tensor([0, 20]))
    with pytest.raises(InputError, match="and output_attentions"):
        made(ids[:1], cu_seq_lens_q=torch.tensor([0, 8, 20]), output_attentions=True)
