"""Layers on the device "meta" and with fake tensors, which have shapes and no values: FLOPs of a large network."""

import pytest
import torch
from stack_kinds import HEADS, STACKS, WIDTH, stack, texts
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import vmap
from torch.utils.flop_counter import FlopCounterMode

from longform import (
    LinformerAttention,
    LinformerEncoder,
    LinformerEncoderLayer,
    LinformerMultiheadAttention,
    kernels,
)
from longform.layers.embeddings import RelativeAttentionBias


@pytest.mark.parametrize("kind", STACKS)
def test_operations_on_meta_are_those_on_a_cpu(kind):
    """By the formulas, forward and backward; without the short convolution, for which CPUs have another one."""
    hidden, counted = texts(kind)[0], []
    for device in ("meta", "cpu"):
        model = LinformerEncoder(WIDTH, 2, HEADS, **STACKS[kind] | {"short_convolution": 0}, device=device)
        x = hidden.to(device).requires_grad_()
        with kernels.use(attention="formula", window="formula"), FlopCounterMode(display=False) as counter:
            model(x).sum().backward()
        assert x.grad.shape == hidden.shape
        counted.append(counter.get_total_flops())
    assert counted[0] == counted[1] > 0


@pytest.mark.parametrize(("training", "half"), [(False, False), (True, True)])
@pytest.mark.parametrize("kind", STACKS)
def test_a_pass_without_values(kind, training, half):
    hidden, mask = texts(kind)
    with torch.set_grad_enabled(training), torch.autocast("cpu", torch.bfloat16, enabled=half):
        with torch.device("meta"):
            model = LinformerEncoder(WIDTH, 1, HEADS, **STACKS[kind]).train(training)
        for given in (None, mask.to("meta")):
            assert model(hidden.to("meta"), given).shape == hidden.shape
        with FakeTensorMode() as fake:
            model = LinformerEncoder(WIDTH, 1, HEADS, **STACKS[kind]).train(training)
            for given in (None, fake.from_tensor(mask)):
                assert model(fake.from_tensor(hidden), given).shape == hidden.shape


def test_stand_ins_and_other_inputs():
    x, context = torch.empty(2, 40, 32, device="meta"), torch.empty(2, 17, 32, device="meta")
    padding = torch.empty(2, 40, dtype=torch.bool, device="meta")
    mask = torch.empty(40, 40, device="meta")
    with torch.device("meta"):
        attention = LinformerMultiheadAttention(32, 4, batch_first=True)
        causal = LinformerMultiheadAttention(32, 4, batch_first=True, causal=True, attention_window=8)
        layer = LinformerEncoderLayer(32, 4, 64, batch_first=True, max_length=64, projected_length=8)
        cross = LinformerAttention(32, 4)
        RelativeAttentionBias(8, 4, max_distance=8)
    assert attention(x, x, x, padding)[0].shape == x.shape
    assert attention(x, context, context, need_weights=False)[0].shape == x.shape
    assert causal(x, x, x, padding.float(), attn_mask=mask, is_causal=True)[0].shape == x.shape
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    assert encoder(x, src_key_padding_mask=padding.float()).shape == x.shape
    assert cross(x, context=context, context_mask=padding[:, :17]).shape == x.shape
    assert cross(x, padding, output_attentions=True)[1].shape == (2, 4, 40, 10)
    assert vmap(lambda text, valid: cross(text[None], valid[None])[0])(x, padding).shape == x.shape


@pytest.mark.parametrize("kind", [kind for kind in STACKS if kind.endswith("-causal")])
def test_a_causal_cache(kind):
    """Whose later turns have padding too."""
    (hidden, mask), model = (x.to("meta") for x in texts(kind)), stack(kind).eval().to("meta")
    with torch.no_grad():
        cache = model.new_cache()
        for part in (slice(0, 70), slice(70, 71), slice(71, 90)):
            assert model(hidden[:, part], mask[:, part], cache=cache).shape == hidden[:, part].shape
    assert cache.get_seq_length() == hidden.shape[1]
