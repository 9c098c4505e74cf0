"""LinformerForCausalLM: transformers' generate with our cache, batches padded on either side, saved and loaded."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_kinds import checkpointed
from transformers import AutoModelForCausalLM, DataCollatorWithFlattening, DynamicCache

from longform import LinformerConfig, LinformerForCausalLM, LinformerForSequenceClassification, LinformerModel
from longform.errors import ConfigurationError, InputError
from longform.layers.causal_cache import CausalCache
from strategies import generator, padded, randomised, turns
from tolerances import assert_close

SIZES = {
    "vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 128, "projected_length": 32, "projection": "weighted_mean", "short_convolution": 5,
    "attention_window": 8, "causal": True, "pad_token_id": 0, "bos_token_id": 1, "type_vocab_size": 0,
}  # fmt: skip
KINDS = {
    "learned positions": {},
    "rotary, pre-norm": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "normalization": "pre"},
    "a sink, a budget": {"sink_tokens": 1, "memory_budget": 6.0},
}


def made(**options):
    torch.manual_seed(0)
    return randomised(LinformerForCausalLM(LinformerConfig(**SIZES | options)))


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("beams", [1, 3])
def test_generate(options, beams):
    """With the cache what it gives without; a text in a batch padded on the left what it gives alone."""
    model, ids = made(**options), torch.randint(1, 40, (2, 21))
    mask = torch.ones_like(ids)
    ids[0, :9] = mask[0, :9] = 0
    asked = {"max_new_tokens": 30, "do_sample": False, "num_beams": beams}
    found = model.generate(ids, attention_mask=mask, **asked)
    assert torch.equal(found, model.generate(ids, attention_mask=mask, use_cache=False, **asked))
    assert torch.equal(found[0, 9:], model.generate(ids[:1, 9:], **asked)[0])


@torch.no_grad()
def test_step_by_step_is_the_whole_pass():
    model, ids = made(), torch.randint(1, 40, (2, 50))
    out = model(ids[:, :11], use_cache=True)
    assert isinstance(out.past_key_values, CausalCache)
    logits = [out.logits]
    for token in ids[:, 11:].T:
        out = model(token[:, None], past_key_values=out.past_key_values, use_cache=True)
        logits.append(out.logits)
    assert_close(torch.cat(logits, dim=1), model(ids).logits, scope="model")
    assert model(ids, logits_to_keep=1).logits.shape == (2, 1, 40)


MASKS = {"of the piece": False, "of all columns": True}


@pytest.mark.parametrize(
    "options", [*KINDS.values(), {"pad_token_id": 1, "position_offset": 2, "bos_token_id": 0}], ids=str
)
@pytest.mark.parametrize("whole_mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("vectors", [False, True], ids=["ids", "vectors"])
@torch.no_grad()
def test_padding_anywhere_in_any_turn(options, whole_mask, vectors):
    """A conversation in a batch, padded on either side and within, is what the whole gives."""
    model, ids, mask = made(**options), torch.randint(2, 40, (6, 37)), padded(37).long()
    ids[mask == 0] = model.config.pad_token_id
    given = {"inputs_embeds": model.get_input_embeddings()(ids)} if vectors else {"input_ids": ids}
    past, logits, end = None, [], 0
    for length in (12, 20, 1, 4):
        some, end = slice(end, end + length), end + length
        own = mask[:, :end] if whole_mask else mask[:, some]
        out = model(
            **{name: x[:, some] for name, x in given.items()}, attention_mask=own, past_key_values=past, use_cache=True
        )
        logits, past = [*logits, out.logits], out.past_key_values
    valid = mask.bool()
    assert_close(torch.cat(logits, dim=1)[valid], model(**given, attention_mask=mask).logits[valid], scope="model")


@settings(max_examples=40)
@given(
    turns(), st.sampled_from([*KINDS.values()]), st.sampled_from(["weighted_mean", "mean", "max", "convolution"]),
    st.sampled_from([4, 12]),
)  # fmt: skip
@torch.no_grad()
def test_any_turns_are_the_texts_alone(masks, options, projection, window):
    """Whichever padding each has, without which a text is given by itself; and the whole in one pass."""
    sinks = 0 if projection == "convolution" else options.get("sink_tokens", 0)
    model = made(**options | {"projection": projection, "attention_window": window, "sink_tokens": sinks}).double()
    mask, past, parts = torch.cat(masks, dim=1), None, []
    ids = torch.randint(1, 40, mask.shape, generator=generator(1)) * mask
    for some, own in zip(ids.split([x.shape[1] for x in masks], 1), masks, strict=True):
        out = model(some, attention_mask=own, past_key_values=past, use_cache=True)
        parts, past = [*parts, out.logits], out.past_key_values
    found, whole = torch.cat(parts, dim=1), model(ids, attention_mask=mask).logits
    for row, text in enumerate(mask.bool()):
        if text.any():
            alone = model(ids[row : row + 1, text]).logits[0]
            assert_close(found[row, text], alone, scope="model")
            assert_close(whole[row, text], alone, scope="model")


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_generate_in_turns(options):
    """Turns padded on the left, some rows more than others: what each conversation gives alone."""
    model, cache = made(**options).double(), CausalCache(2)
    model.lm_head.decoder.bias.data[0] = -1e9  # padding
    ids = mask = torch.zeros(3, 0, dtype=torch.long)
    for turn, (length, padding) in enumerate([(9, (0, 4, 8)), (5, (3, 0, 1)), (12, (0, 11, 6))]):
        own = (torch.arange(length) >= torch.tensor(padding)[:, None]).long()
        new = torch.randint(1, 40, own.shape, generator=generator(turn)) * own
        ids, mask = torch.cat([ids, new], dim=1), torch.cat([mask, own], dim=1)
        asked = {"max_new_tokens": 4, "do_sample": False}
        out = model.generate(ids, attention_mask=mask, past_key_values=cache, **asked)
        for row, text in enumerate(mask.bool()):
            alone = model.generate(ids[row : row + 1, text], use_cache=False, **asked)
            assert torch.equal(out[row, -4:], alone[0, -4:])
        ids, mask = out, torch.nn.functional.pad(mask, (0, 4), value=1)


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(
    "asked",
    [{"prefill_chunk_size": 4}, *({"cache_implementation": x} for x in ("static", "offloaded", "dynamic"))],
    ids=str,
)
def test_other_ways_to_keep_earlier_tokens(options, asked):
    model, ids = made(**options), torch.randint(1, 40, (2, 21))
    wanted = {"max_new_tokens": 10, "do_sample": False}
    assert torch.equal(model.generate(ids, **wanted, **asked), model.generate(ids, **wanted))


@pytest.mark.parametrize("assisted", ["prompt lookup", "assistant"])
def test_assisted_decoding_is_refused(assisted):
    model, ids = made(), torch.randint(1, 40, (1, 21))
    asked = {"prompt_lookup_num_tokens": 3} if assisted == "prompt lookup" else {"assistant_model": model}
    with pytest.raises(ValueError, match="assisted generation is not supported with stateful models"):
        model.generate(ids, max_new_tokens=5, do_sample=False, **asked)


@torch.no_grad()
def test_caches_of_other_kinds_are_refused():
    model, ids = made(), torch.randint(1, 40, (2, 21))
    other = DynamicCache()
    for filled in (False, True):
        if filled:
            other.update(torch.zeros(2, 4, 5, 8), torch.zeros(2, 4, 5, 8), 0)
        for call, asked in (
            (model, {"use_cache": True}),
            (model.linformer, {}),
            (model.generate, {"max_new_tokens": 2}),
        ):
            with pytest.raises(InputError, match="past_key_values is a DynamicCache, and can only be a CausalCache"):
                call(ids, past_key_values=other, **asked)


@pytest.mark.parametrize("pooling", ["cls", "mean", "lead", "late"])
@torch.no_grad()
def test_a_pooling_is_of_a_whole_text(pooling):
    """With an empty cache it is that without; a piece that goes on from a cache is not taken for the text."""
    config = LinformerConfig(**SIZES, classifier_pooling=pooling, num_labels=3)
    classifier, ids = randomised(LinformerForSequenceClassification(config)), torch.randint(1, 40, (2, 21))
    cache = CausalCache(2)
    assert_close(classifier(ids, past_key_values=cache).logits, classifier(ids).logits, scope="model")
    more = torch.randint(1, 40, (2, 5))
    for piece in ({"input_ids": more}, {"inputs_embeds": torch.randn(2, 5, 32)}):
        for mask in (None, torch.ones(2, 5), torch.ones(2, 26)):
            with pytest.raises(InputError, match="past_key_values has read the beginning of the texts, and a label is"):
                classifier(**piece, attention_mask=mask, past_key_values=cache)
    assert cache.get_seq_length() == 21  # what is refused is not read
    if pooling != "late":
        model, whole = classifier.linformer, LinformerModel(config).eval()
        whole.load_state_dict(model.state_dict(), strict=False)
        out = whole(more, past_key_values=cache)
        assert out.pooler_output is None
        assert_close(
            out.last_hidden_state, whole(torch.cat([ids, more], dim=1)).last_hidden_state[:, 21:], scope="model"
        )


def test_layers_that_are_computed_again_take_no_cache():
    """Re-entrant checkpointing gave other gradients without a word."""
    ids = torch.randint(1, 40, (2, 12))
    for reentrant in (False, True):
        model = checkpointed(made().train(), reentrant=reentrant)
        with pytest.raises(InputError, match="leave the cache out"):
            model(ids, labels=ids, use_cache=True)
        model(ids, labels=ids).loss.backward()
        assert model.eval().generate(ids, max_new_tokens=2, do_sample=False).shape == (2, 14)


@torch.no_grad()
def test_rows_of_a_cache():
    """Repeated and chosen, each goes on as its text; what was read cannot be taken back."""
    model, ids, mask = made(), torch.randint(1, 40, (2, 21)), torch.ones(2, 20, dtype=torch.long)
    mask[1, :6] = 0
    out = model(ids[:, :20], attention_mask=mask, use_cache=True)
    expected = model(ids, attention_mask=torch.nn.functional.pad(mask, (0, 1), value=1)).logits[:, -1]
    cache = out.past_key_values
    cache.batch_repeat_interleave(3)
    rows = torch.tensor([0, 4, 2, 5])
    cache.batch_select_indices(rows)
    cache.crop(20)
    cache.crop(0)
    with pytest.raises(InputError, match="cannot forget the last of 20 tokens"):
        cache.crop(19)
    with pytest.raises(InputError, match="cannot forget the last of 20 tokens"):
        cache.crop(-2)
    found = model(ids[rows // 3, 20:], past_key_values=cache).logits[:, -1]
    assert_close(found, expected[rows // 3], scope="model")


def test_a_mask_that_changes_what_was_read_is_refused():
    model, ids = made(), torch.randint(1, 40, (2, 12))
    past = model(ids, use_cache=True).past_key_values
    mask = torch.ones(2, 13, dtype=torch.long)
    mask[1, 3] = 0
    with pytest.raises(InputError, match="attention_mask is not what it was"):
        model(ids[:, :1], attention_mask=mask, past_key_values=past)
    with pytest.raises(InputError, match="expected \\(batch, tokens\\) = \\(2, 1\\)"):
        model(ids[:, :1], attention_mask=mask[:, :5], past_key_values=past)
    with pytest.raises(InputError, match="the cache is of 2 layers, and there are 1"):
        made(num_hidden_layers=1)(ids[:, :1], past_key_values=past)


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_texts_in_one_row_are_read_alone(options):
    flat = DataCollatorWithFlattening()([{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}])
    model = made(**options)
    alone = [model(torch.tensor([ids])).logits for ids in ([5, 6, 7], [8, 9])]
    torch.testing.assert_close(model(**flat).logits, torch.cat(alone, dim=1))


def test_the_loss_is_of_the_next_token():
    model, ids = made(), torch.randint(1, 40, (2, 30))
    wanted = ids.clone()
    wanted[:, 20:] = -100
    out = model(ids, labels=wanted)
    expected = torch.nn.functional.cross_entropy(out.logits[:, :19].flatten(0, 1), ids[:, 1:20].flatten())
    assert_close(out.loss, expected)
    out.loss.backward()
    changed = ids.clone()
    changed[:, 25] = 1 + ids[:, 25] % 39
    before, after = model(ids).logits, model(changed).logits
    assert torch.equal(before[:, :25], after[:, :25])
    assert not torch.equal(before[:, 25:], after[:, 25:])


def test_saved_and_loaded(tmp_path):
    model, ids = made(), torch.randint(1, 40, (1, 20))
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(again) is LinformerForCausalLM
    assert torch.equal(again.eval()(ids).logits, model(ids).logits)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"causal": False}, "needs a configuration with causal=True"),
        ({"projection": "linear", "short_convolution": 0, "attention_window": None}, "of projection='linear' is made"),
        ({"attention_window": None}, "causal=True needs attention_window"),
        ({"layer_types": ["sliding_attention"] * 2, "sliding_window": 4}, "causal=True goes neither with"),
    ],
    ids=str,
)
def test_what_cannot_be_causal(options, said):
    with pytest.raises(ConfigurationError, match=said):
        made(**options)


def test_no_more_tokens_than_the_model_takes():
    model = made()
    past = model(torch.ones(1, 128, dtype=torch.long), use_cache=True).past_key_values
    with pytest.raises(InputError, match="has read 128 tokens and gets 1 more"):
        model(torch.ones(1, 1, dtype=torch.long), past_key_values=past)
