"""model.resize_sequence_length: positions, E and F, configuration; up and down, for every kind of model."""

import pytest
import torch
from model_kinds import KINDS, LONGEST, config, model, text

from longform import LinformerConfig, LinformerForMaskedLM, LinformerModel
from longform.errors import ConfigurationError, InputError
from tolerances import assert_close

LINEAR = [kind for kind, settings in KINDS.items() if settings["projection"] == "linear"]


def hidden(made, given):
    return made(**given).last_hidden_state[given["attention_mask"].bool()]


def slots_of(projected_length):
    return projected_length if isinstance(projected_length, int) else projected_length[0][0]


@pytest.mark.parametrize("positions", ["tile", "interpolate"])
@pytest.mark.parametrize("length", [64, 48, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_it_really_works(kind, length, positions, tmp_path):
    made = model(kind, LinformerForMaskedLM)
    table = made.linformer.embeddings.position_embeddings
    if table is None and positions == "interpolate":
        with pytest.raises(ConfigurationError, match="a model with rotary positions has none"):
            made.resize_sequence_length(length, positions=positions)
        return
    made.resize_sequence_length(length, positions=positions)
    assert made.config.max_position_embeddings == made.linformer.config.max_position_embeddings == length
    assert table is None or made.linformer.embeddings.position_embeddings.weight.shape == (length, 8)
    pooled = KINDS[kind]["projection"] not in ("linear", "random", "by_place", "content_and_place", "latent")
    assert slots_of(made.config.projected_length) == (length // 4 if pooled else 8)
    fresh = LinformerForMaskedLM(LinformerConfig(**made.config.to_dict()))
    assert {n: v.shape for n, v in made.state_dict().items()} == {n: v.shape for n, v in fresh.state_dict().items()}
    given = text(2, length)
    out = made(**given).logits
    assert torch.isfinite(out).all()
    with pytest.raises(InputError, match=rf"n={length + 1} tokens.*max_position_embeddings={length}"):
        made(**text(1, length + 1))
    made.save_pretrained(tmp_path)
    assert_close(LinformerForMaskedLM.from_pretrained(tmp_path)(**given).logits, out)
    made.train()(**given, labels=given["input_ids"]).loss.backward()
    assert [name for name, p in made.named_parameters() if p.grad is None] == []


UNCHANGED = [  # what keeps its result to the bit of rounding when the model grows, and up to which length
    ("convolution", LONGEST),  # always slots of 4 tokens
    ("mean", 8), ("max", 8), ("mean-sinks", 8),  # a slot a token, for up to k tokens
    ("mean-window", 16), ("max-window", 16), ("convolution-window", LONGEST), ("mean-window-sinks", 16),
    ("rotary-window", 16), ("rotary-local", 16), ("window over everything", LONGEST),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "longest"), UNCHANGED)
def test_short_texts_keep_their_result(kind, longest):
    made = model(kind)
    texts = [text(2, length) for length in (1, 5, longest - 1, longest)]
    before = [hidden(made, given) for given in texts]
    made.resize_sequence_length(64)
    for given, expected in zip(texts, before, strict=True):
        assert_close(hidden(made, given), expected, scope="model")


@pytest.mark.parametrize("kind", ["convolution", "convolution-window"])
def test_down_and_what_still_fits_is_the_same(kind):
    made, given = model(kind), text(2, 16)
    before = hidden(made, given)
    made.resize_sequence_length(16)
    assert_close(hidden(made, given), before, scope="model")


@pytest.mark.parametrize("kind", LINEAR)
def test_a_learned_matrix_keeps_its_sums(kind):
    """Stretched and rescaled, so that a constant sequence gives the keys it gave before."""
    made = model(kind)
    before = {name: p.sum(dim=-1) for name, p in made.named_parameters() if name.endswith("matrix")}
    made.resize_sequence_length(64)
    after = {name: p for name, p in made.named_parameters() if name.endswith("matrix")}
    assert before.keys() == after.keys()
    for name, matrix in after.items():
        assert matrix.shape[-1] == 64
        assert_close(matrix.sum(dim=-1), before[name], scope="model")


EACH_ITS_OWN = {"projection_sharing": "none", "max_position_embeddings": 12}


@pytest.mark.parametrize("slots", [(5, 4), (4, 5), (4, 4)])
def test_heads_whose_k_becomes_the_same_keep_their_own_kernels(slots):
    """12 tokens are slots of three for k = 5 and k = 4, and 24 tokens are 8 slots for both."""
    made = model("convolution", **EACH_ITS_OWN, projected_length=[[*slots]] * 2)
    given = text(2, 12)
    before = hidden(made, given)
    made.resize_sequence_length(24)
    assert made.config.projected_length == [[8, 8]] * 2
    assert_close(hidden(made, given), before, scope="model")


def test_a_head_of_another_k_gets_a_new_matrix_and_the_other_keeps_its_own():
    made = model("linear", **EACH_ITS_OWN, projected_length=[[4, 5]] * 2)
    kept = made.encoder.layers[0].attention.groups[1].key_projection.matrix.clone()  # of head 1, the second k
    made.resize_sequence_length(24, projected_length=5)
    after = made.encoder.layers[0].attention.groups[0].key_projection.matrix
    assert_close(after[1].sum(dim=-1), kept[0].sum(dim=-1), scope="model")
    assert (after[0] - after[1]).abs().max() > 0.01


def test_random_columns_are_kept_and_new_ones_drawn():
    made = model("random")
    before = made.encoder.layers[1].attention.groups[0].key_projection.matrix.clone()
    made.resize_sequence_length(256)
    after = made.encoder.layers[1].attention.groups[0].key_projection.matrix
    assert torch.equal(after[..., :LONGEST], before)
    assert after[..., LONGEST:].std().item() == pytest.approx(8**-0.5, rel=0.05)


def test_roberta_positions_keep_their_offset():
    made = model("linear", position_offset=2, type_vocab_size=0, pad_token_id=1)
    before = made.embeddings.position_embeddings.weight.clone()
    made.resize_sequence_length(64)
    after = made.embeddings.position_embeddings.weight
    assert after.shape == (66, 8)
    assert torch.equal(after[: LONGEST + 2], before)
    assert torch.equal(after[LONGEST + 2], before[3])  # position 1 again: 0 is the special token's


def test_another_number_of_slots():
    made = model("linear")
    made.resize_sequence_length(64, projected_length=16)
    assert made.config.projected_length == 16
    assert made.encoder.layers[0].attention.groups[0].key_projection.matrix.shape == (1, 16, 64)
    made = model("mean-window")
    made.resize_sequence_length(64, projected_length=32)
    assert made.config.projected_length == 32
    assert made(**text(2, 64), output_attentions=True).attentions[0].shape == (2, 2, 64, 32 + 3 * 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "max_position_embeddings=0 must be at least 1"),
        ({"length": 4}, "projected_length=8 must be a whole number from 1 to max_position_embeddings=4"),
        ({"length": 64, "projected_length": 65}, "projected_length=65 must be a whole number"),
        ({"length": 64, "positions": "copy"}, "positions='copy' is not known; choose one of 'tile', 'interpolate'"),
    ],
)
def test_a_refused_option_changes_nothing(options, message):
    made, given = model("linear"), text(2, LONGEST)
    before, keys = hidden(made, given), made.config.to_dict()
    with pytest.raises(ConfigurationError, match=message):
        made.resize_sequence_length(**options)
    assert made.config.to_dict() == keys
    assert torch.equal(hidden(made, given), before)


def test_a_window_grows_a_memory_when_the_text_outgrows_it():
    made = model("window over everything")
    assert len(made.encoder.layers[0].attention.groups) == 0
    made.resize_sequence_length(64)
    assert made.encoder.layers[0].attention.memory_bias is not None
    assert made(**text(1, 64), output_attentions=True).attentions[0].shape == (1, 2, 64, 16 + 3 * 16)


@pytest.mark.parametrize("kind", ["linear", "convolution-window", "random"])
def test_training_state_survives(kind):
    made = model(kind, freeze_projection=True).train()
    for p in made.embeddings.parameters():
        p.requires_grad_(False)
    made = made.to(torch.bfloat16)
    made.resize_sequence_length(64)
    assert all(module.training for module in made.modules())
    assert not any(p.requires_grad for p in made.embeddings.parameters())
    assert not any(p.requires_grad for n, p in made.named_parameters() if n.endswith(("matrix", "kernel")))
    assert {p.dtype for p in made.parameters()} == {torch.bfloat16}
    assert {b.dtype for b in made.buffers()} <= {torch.bfloat16}


def test_word_embeddings_resize_and_stay_tied():
    made = model("linear", LinformerForMaskedLM)
    given = text(2, 9)
    before = made(**given).logits
    made.resize_token_embeddings(50, mean_resizing=False)
    assert made.config.vocab_size == 50
    assert made.lm_head.decoder.weight is made.get_input_embeddings().weight
    assert made.lm_head.decoder.bias.shape == (50,)
    after = made(**given).logits
    assert after.shape == (2, 9, 50)
    assert_close(after[..., :40], before)
    assert made(torch.full((1, 5), 49)).logits.shape == (1, 5, 50)
    made.resize_token_embeddings(30)
    assert made(**{name: value.clamp(max=29) for name, value in given.items()}).logits.shape == (2, 9, 30)


def test_word_embeddings_of_the_encoder_alone():
    made = LinformerModel(config("mean"))
    made.resize_token_embeddings(64, mean_resizing=False)
    assert made.get_input_embeddings().weight.shape == (64, 8)


def test_a_sink_of_a_learned_projection_stays_one_token():
    made = LinformerModel(config("linear", sink_tokens=2, projected_length=6))
    made.resize_sequence_length(2 * LONGEST)
    after = made.encoder.layers[0].attention.groups[0].key_projection.matrix[0]
    assert torch.equal(after[:2, :3], torch.eye(3)[:2])
    assert after[:2].sum().item() == pytest.approx(2.0)
    assert after[2:, :2].abs().max() == 0
    assert after[2:].sum(dim=1).tolist() == pytest.approx([1.0] * 4, rel=0.03)  # 30 columns are no part of 62


@pytest.mark.parametrize("kind", ["linear", "linear-layerwise", "convolution-window"])
def test_what_was_frozen_stays_frozen(kind):
    made = model(kind).requires_grad_(False)
    made.resize_sequence_length(2 * LONGEST)
    assert not [name for name, weight in made.named_parameters() if weight.requires_grad]
