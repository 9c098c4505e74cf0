"""LinformerMultiheadAttention and LinformerEncoderLayer beside torch's own: shapes, masks, names, state_dicts.

With as many slots as tokens both compute full attention, so that all conventions of torch's are compared in numbers.
"""

import copy
import itertools
import pickle
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from transformers import BatchEncoding

from longform import (
    LinformerAttention,
    LinformerConfig,
    LinformerEncoder,
    LinformerEncoderLayer,
    LinformerModel,
    LinformerMultiheadAttention,
)
from longform.choices import POOLED, PROJECTIONS
from longform.errors import ConfigurationError, InputError
from longform.layers.options import Projection
from strategies import randomised
from tolerances import assert_close

EXACT = {"max_length": 32, "projected_length": 32}
KINDS = [{"projection": p} for p in PROJECTIONS]
KINDS += [{"projection": p, "short_convolution": 3} for p in PROJECTIONS]
KINDS += [{"projection": p, "attention_window": 6, "projected_length": 16} for p in POOLED]
KINDS += [{"projection": "mean", "attention_window": 6, "projected_length": 16, "causal": True, "short_convolution": 3}]
KINDS += [{"projection": Projection("linear", sharing, bias=True)} for sharing in ("none", "key_value")]
KINDS += [{"projection": "mean", "attention_window": 16}]  # which reaches across everything


def pair(**options):
    theirs = nn.MultiheadAttention(16, 4, **options).eval()
    ours = LinformerMultiheadAttention(16, 4, **options, **EXACT).eval()
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


CALLS = {
    "sequence first": ({}, {}),
    "batch first": ({"batch_first": True}, {}),
    "no bias": ({"bias": False}, {}),
    "keys of another width": ({"kdim": 12, "vdim": 12}, {}),
    "keys and values of other widths": ({"kdim": 12, "vdim": 10, "batch_first": True}, {}),
    "values of another width": ({"vdim": 10}, {}),
    "weights of each head": ({}, {"average_attn_weights": False}),
    "no weights": ({"batch_first": True}, {"need_weights": False}),
}


@pytest.mark.parametrize(("options", "call"), CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("shape", ["batch", "one text", "self-attention", "values alone"])
@pytest.mark.parametrize("masked", [False, True])
def test_conventions_of_torch(options, call, shape, masked):
    theirs, ours = pair(**options)
    widths = {"kdim": options.get("kdim", 16), "vdim": options.get("vdim", 16)}
    query, key, value = torch.randn(2, 9, 16), torch.randn(2, 7, widths["kdim"]), torch.randn(2, 7, widths["vdim"])
    if shape == "self-attention" and set(widths.values()) == {16}:
        query = key = value = torch.randn(2, 7, 16)
    if shape == "values alone" and widths["kdim"] == 16:
        query = key = torch.randn(2, 7, 16)
    mask = torch.zeros(2, 7, dtype=torch.bool)
    mask[1, 4:] = masked
    distinct = {id(x): x if options.get("batch_first") else x.transpose(0, 1) for x in (query, key, value)}
    given = [distinct[id(x)] for x in (query, key, value)]
    if shape == "one text":
        at = 0 if options.get("batch_first") else 1
        given, mask = [x.select(at, 1) for x in given], mask[1]
    results = [module(*given, key_padding_mask=mask if masked else None, **call) for module in (theirs, ours)]
    for one, other in zip(*results, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert_close(other, one)


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"kdim": 12}, {"kdim": 5, "vdim": 7}], ids=str)
def test_state_dicts(options):
    theirs, ours = pair(**options)
    own = ours.state_dict()
    assert set(theirs.state_dict()) <= set(own)
    assert {name for name, _ in ours.named_parameters()} == set(own)
    again = LinformerMultiheadAttention(16, 4, **options, **EXACT)
    again.load_state_dict(own)
    theirs.load_state_dict({name: own[name] for name in theirs.state_dict()})
    short = dict(list(theirs.state_dict().items())[1:])
    with pytest.raises(RuntimeError, match="Missing key"):
        again.load_state_dict(short)
    with pytest.raises(RuntimeError, match="Unexpected key"):
        again.load_state_dict(theirs.state_dict() | {"other": torch.zeros(1)})
    assert pickle.loads(pickle.dumps(copy.deepcopy(again))).state_dict().keys() == own.keys()


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("assign", [False, True])
def test_weights_of_torch_load_into_every_kind(kind, assign):
    """Also below a name with _proj in it; what torch has no weights for stays what it was."""
    options = {"max_length": 32, "projected_length": 8} | kind
    theirs = nn.ModuleDict({"k_proj_": nn.TransformerEncoderLayer(16, 4, 32)})
    ours = nn.ModuleDict({"k_proj_": LinformerEncoderLayer(16, 4, 32, **options)})
    before = {name: x.clone() for name, x in ours.state_dict().items()}
    ours.load_state_dict(theirs.state_dict(), assign=assign)
    after = ours.state_dict()
    for name, x in (before | theirs.state_dict()).items():
        assert torch.equal(after[name], x), name


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_nothing_stays_without_data_in_silence(kind):
    options, theirs = {"max_length": 32, "projected_length": 8} | kind, nn.MultiheadAttention(16, 4)
    ours = LinformerMultiheadAttention(16, 4, device="meta", **options)
    own = [name for name in ours.state_dict() if name not in theirs.state_dict()]
    if own:
        with pytest.raises(RuntimeError, match=f"Missing key.*{own[0]}"):
            ours.load_state_dict(theirs.state_dict(), assign=True)
    assert set(ours.load_state_dict(theirs.state_dict(), assign=True, strict=False).missing_keys) == set(own)
    assert {name for name, x in ours.state_dict().items() if x.is_meta} == set(own)


def test_keys_and_values_of_another_text():
    """Convolved alike whether they are one tensor or two; NaN in their padding is in no gradient."""
    for widths in ({"kdim": 12, "vdim": 12, "short_convolution": 3}, {"kdim": 12, "vdim": 10}, {}):
        ours = randomised(LinformerMultiheadAttention(16, 4, batch_first=True, **widths).double())
        query, key = torch.randn(2, 9, 16).double(), torch.randn(2, 24, ours.kdim).double()
        value, mask = key[..., : ours.vdim].clone(), torch.zeros(2, 24, dtype=torch.bool)
        mask[1, 5:9] = True
        expected, _ = ours(query, key, key if ours.kdim == ours.vdim else value, key_padding_mask=mask)
        key[mask] = value[mask] = torch.nan
        out, _ = ours(query, key, value, key_padding_mask=mask)
        assert_close(out, expected)
        for found in torch.autograd.grad(out.sum(), [*ours.parameters()]):
            assert found.isfinite().all()


LAYERS = list(itertools.product([True, False], [True, False], ["relu", "gelu"]))


@pytest.mark.parametrize(("batch_first", "norm_first", "activation"), LAYERS)
@pytest.mark.parametrize("gradient", [True, False])
def test_a_stack_of_torchs_encoder(batch_first, norm_first, activation, gradient):
    """In eval mode without gradients too, where torch would fuse the layer to full attention."""
    options = {"dropout": 0.0, "activation": activation, "batch_first": batch_first, "norm_first": norm_first}
    theirs, ours = (
        nn.TransformerEncoderLayer(16, 4, 32, **options),
        LinformerEncoderLayer(16, 4, 32, **options, **EXACT),
    )
    ours.load_state_dict(theirs.state_dict())
    stacks = [nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).train(gradient) for layer in (theirs, ours)]
    hidden = torch.randn(2, 9, 16) if batch_first else torch.randn(9, 2, 16)
    mask = torch.zeros(2, 9, dtype=torch.bool)
    mask[1, 5:] = True
    valid = ~mask if batch_first else ~mask.T
    with torch.set_grad_enabled(gradient):
        one, other = (stack(hidden, src_key_padding_mask=mask) for stack in stacks)
        assert_close(other[valid], one[valid], scope="model")


@pytest.mark.parametrize("fused", [True, False])
def test_the_layer_is_never_full_attention_by_torchs_fused_path(fused):
    layer = randomised(LinformerEncoderLayer(16, 4, 32, batch_first=True, tokens_per_slot=4))
    hidden = torch.randn(2, 20, 16)
    torch.backends.mha.set_fastpath_enabled(fused)
    try:
        with torch.no_grad():
            assert_close(layer(hidden), layer(hidden.requires_grad_()).detach())
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_equal_values_give_equal_results(kind, masked):
    """Whichever tensors are passed; and self-attention is what LinformerAttention computes."""
    options = {"max_length": 32, "projected_length": 8} | kind
    ours = randomised(LinformerMultiheadAttention(16, 4, batch_first=True, **options).double())
    plain = LinformerAttention(16, 4, **{"short_convolution": 0} | options).double().eval()
    own = ours.state_dict()
    names = [f"{name}.{of}" for of in ("weight", "bias") for name in ("query", "key", "value")]
    parts = [*own["in_proj_weight"].chunk(3), *own["in_proj_bias"].chunk(3)]
    given = {name: own[name] for name in plain.state_dict() if name in own} | dict(zip(names, parts, strict=True))
    if plain.query is None:  # latents
        del given["query.weight"], given["query.bias"]
    plain.load_state_dict(given | {f"output.{of}": own[f"out_proj.{of}"] for of in ("weight", "bias")})
    x, mask = torch.randn(3, 24, 16).double(), torch.zeros(3, 24, dtype=torch.bool)
    mask[1, 20:] = mask[2, 3] = masked
    x[mask] = 1e30
    expected = plain(x, key_padding_mask=mask)[~mask]
    for query, key, value in ((x, x, x), (x.clone(), x.clone(), x.clone()), (x + 0, x, x), (x, x, x + 0)):
        out, _ = ours(query, key, value, key_padding_mask=mask)
        assert_close(out[~mask], expected)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_positions_in_queries_and_keys_alone(kind):
    """q = k = x + pos, v = x, as DETR has it: where values read no feature of a position, x + pos is no other value."""
    options = {"max_length": 32, "projected_length": 8, "batch_first": True} | kind
    ours = randomised(LinformerMultiheadAttention(16, 4, **options).double())
    x, places = torch.randn(2, 24, 16).double(), torch.randn(24, 16).double()
    places[:, 8:] = 0
    with torch.no_grad():
        ours.in_proj_weight[32:, :8] = 0
    found = ours(x + places, x + places, x)[0]
    assert_close(found, ours(*3 * [x + places])[0])
    assert (found - ours(x, x, x)[0]).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_many_texts_by_vmap(kind):
    options = {"max_length": 32, "projected_length": 8, "batch_first": True} | kind
    ours, rows = randomised(LinformerMultiheadAttention(16, 4, **options).double()), torch.randn(3, 2, 24, 16).double()
    found = torch.func.vmap(lambda q, k, v: ours(q, k, v)[0])(rows, rows, rows)
    assert_close(found, torch.stack([ours(x, x, x)[0] for x in rows]))


MASKED = {
    "attention": lambda **options: LinformerAttention(16, 4, max_length=32, projected_length=8, **options),
    "encoder": lambda **options: LinformerEncoder(16, 1, 4, max_length=32, projected_length=8, **options),
    "multi-head": lambda **options: LinformerMultiheadAttention(16, 4, max_length=32, projected_length=8, **options),
    "stack of torch's": lambda **options: nn.TransformerEncoder(
        LinformerEncoderLayer(16, 4, 32, max_length=32, projected_length=8, **options), 1, enable_nested_tensor=False
    ),
}


@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("name", MASKED)
def test_float_masks_of_padding(name, projection):
    """Torch's 0 and -inf hide what True hides; a number to be added to logits is refused."""
    module, x = randomised(MASKED[name](projection=projection)), torch.randn(9, 9, 16)
    given = (x, x, x) if name == "multi-head" else (x,)
    argument = "src_key_padding_mask" if name == "stack of torch's" else "key_padding_mask"
    hides = torch.zeros(9, 9, dtype=torch.bool)
    hides[1, 4:] = hides[2, 3] = True
    wanted, found = (module(*given, **{argument: m}) for m in (hides, torch.zeros(9, 9).masked_fill(hides, -torch.inf)))
    for one, other in zip(*((x if isinstance(x, tuple) else (x,)) for x in (found, wanted)), strict=True):
        assert torch.equal(one, other)
    for odd in (1.5, -0.7, -1e9, torch.nan, torch.inf):
        with pytest.raises(InputError, match="key_padding_mask holds"):
            module(*given, **{argument: torch.zeros(9, 9).masked_fill(hides, odd)})


def test_a_causal_mask_is_honoured_by_causal_layers():
    options = {"dropout": 0.0, "batch_first": True}
    theirs = nn.TransformerEncoderLayer(16, 4, 32, **options)
    ours = LinformerEncoderLayer(16, 4, 32, **options, tokens_per_slot=2, attention_window=8, causal=True)
    ours.load_state_dict(theirs.state_dict())
    hidden, mask = torch.randn(2, 9, 16), nn.Transformer.generate_square_subsequent_mask(9)
    for given in ({"src_mask": mask, "is_causal": True}, {"src_mask": mask}, {"src_mask": mask == float("-inf")}):
        assert_close(ours(hidden, **given), theirs(hidden, src_mask=mask, is_causal=True), scope="model")
    assert_close(ours(hidden), ours(hidden, src_mask=mask))  # which it is without being told
    for other in (mask.flip(0), mask - 0.5 * torch.ones(9, 9).tril(-1), mask[:, :8]):
        with pytest.raises(InputError, match="is not the causal one"):
            ours(hidden, src_mask=other)


OTHER_INPUTS = {  # what is made of the tensors of texts of 9 and 5 tokens, and what a message says to give instead
    "jagged": (partial(torch.nested.nested_tensor, layout=torch.jagged), "nested tensor.*: pad it, x.to_padded_tensor"),
    "nested": (torch.nested.nested_tensor, "nested tensor.*: pad it, x.to_padded_tensor"),
    "packed": (pack_sequence, r"PackedSequence.*pad_packed_sequence\(packed, batch_first=True\).* < lengths"),
    "list": (list, "a list.*pad_sequence"),
    "list of lists": (lambda texts: [x.tolist() for x in texts], "a list.*pad_sequence"),
    "list of arrays": (lambda texts: [x.numpy() for x in texts], "a list.*pad_sequence"),
    "tuple": (tuple, "a tuple.*pad_sequence"),
    "array": (lambda texts: texts[0].numpy()[None], "a ndarray.*torch.as_tensor"),
    "batch": (
        lambda texts: BatchEncoding({"input_ids": texts}),
        "a BatchEncoding.*by their names, model",
    ),
}


@pytest.mark.parametrize("kind", OTHER_INPUTS)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_what_is_no_plain_tensor_is_refused(kind):
    made, instead = OTHER_INPUTS[kind]
    x = made([torch.randn(9, 16), torch.randn(5, 16)])
    ids = made([torch.randint(9, (9,)), torch.randint(9, (5,))])
    mask = made([torch.ones(9), torch.ones(5)])
    query, layer = torch.randn(2, 9, 16), LinformerAttention(16, 4, projected_length=4, max_length=9)
    causal = LinformerEncoder(16, 1, 4, causal=True)
    cache = causal.new_cache()
    causal(query, cache=cache)
    heads = LinformerMultiheadAttention(16, 4, batch_first=True)
    config = LinformerConfig(
        vocab_size=9, hidden_size=16, num_hidden_layers=1, num_attention_heads=4, intermediate_size=32,
        max_position_embeddings=16, projected_length=4,
    )  # fmt: skip
    encoders = [lambda: LinformerEncoder(16, 1, 4)(x), lambda: LinformerEncoder(16, 1, 4, tile=(2, 2))(x)]
    for call in (
        lambda: layer(x),
        lambda: layer(query, context=x),
        *([] if kind == "jagged" else encoders),  # which read texts without padding
        lambda: heads(x, x, x),
        lambda: heads(query, x, x),
        lambda: heads(query, query, x, need_weights=False),
        lambda: LinformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True)(x),
        lambda: LinformerEncoderLayer(16, 4, 32, batch_first=True)(query, src_key_padding_mask=mask),
        lambda: LinformerEncoder(16, 1, 4)(query[0], mask),
        lambda: LinformerEncoder(16, 1, 4)(query, src_key_padding_mask=mask),
        lambda: LinformerEncoder(16, 1, 4)(query, context=x),
        lambda: LinformerEncoder(16, 1, 4)(query, context=query, context_mask=mask),
        lambda: LinformerModel(config)(ids),
        lambda: LinformerModel(config)(inputs_embeds=x),
        lambda: layer(query, mask),
        lambda: layer(query, key_padding_mask=mask),
        lambda: layer(query, context=query, context_mask=mask),
        lambda: heads(query, query, query, key_padding_mask=mask),
        lambda: causal(query, mask),
        lambda: causal(query, mask, cache=cache),
        lambda: LinformerModel(config)(torch.ones(2, 9, dtype=torch.long), mask),
        lambda: LinformerModel(config)(torch.ones(2, 9, dtype=torch.long), token_type_ids=ids),
        lambda: LinformerModel(config)(torch.ones(2, 9, dtype=torch.long), position_ids=ids),
    ):
        with pytest.raises(InputError, match=instead):
            call()


def test_what_is_refused():
    with pytest.raises(ConfigurationError, match="add keys that are no tokens"):
        LinformerMultiheadAttention(16, 4, add_zero_attn=True)
    with pytest.raises(ConfigurationError, match="use LinformerAttention"):
        LinformerMultiheadAttention(16, 4, head_dim=3)
    module, x = LinformerMultiheadAttention(16, 4), torch.zeros(9, 2, 16)
    with pytest.raises(InputError, match="a slot stands for several keys"):
        module(x, x, x, attn_mask=torch.zeros(9, 9))
    with pytest.raises(InputError, match="expected three axes each"):
        module(x, x[0], x)
    with pytest.raises(InputError, match="other batches or tokens"):
        module(x, x, x[:5])
    windowed = LinformerMultiheadAttention(16, 4, attention_window=4)
    windowed(x, x, x)
    with pytest.raises(InputError, match="is for the tokens of one text"):
        windowed(x, x[:4], x[:4])
    with pytest.raises(InputError, match="is for the tokens of one text"):
        LinformerMultiheadAttention(16, 4, short_convolution=3)(x, x[:4], x[:4])
