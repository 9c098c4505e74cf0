"""Attention by the compiled kernels, inferred and trained through: against float64, by native units and by loops."""

import copy
import math
import shutil
import sysconfig
import threading
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_tables import machine, only, taken
from torch.nn.functional import scaled_dot_product_attention

from longform.functional.attention import compiled, slot_attention, usable_slots
from longform.functional.attention.formula import AttentionCall
from longform.functional.dispatch import listening
from longform.functional.native import library as native_library
from longform.functional.slots import Slots, leading_tokens, make_runs, with_exact_runs
from longform.functional.window import windowed_attention
from longform.functional.window.compiled import CompiledDocument
from longform.functional.window.document import DocumentPart, FarSlots, far_slots
from longform.functional.window.formula import far_bias, far_parts
from longform.functional.window.sdpa_inference import SdpaDocument
from longform.layers.attention import LinformerAttention
from longform.layers.options import Projection
from strategies import generator, normal, seeds
from tolerances import assert_close

HALF = torch.bfloat16
UNITS_OF_THE_MACHINE = native_library.best_units
pytestmark = pytest.mark.usefixtures("units")


def infer(query, key, value, usable=None):
    return compiled.infer(AttentionCall(query, key, value, usable))


def train(query, key, value, usable=None):
    return compiled.train(AttentionCall(query, key, value, usable))


def given_heads(queries: int, keys: int, dim: int = 32, heads: int = 3, batch: int = 2, seed: int = 0):
    """Queries, keys, values as a layer has them, and the output's gradient, of less than 1 in its sums."""
    source = generator(seed + queries + keys)
    found = [normal(source, batch, n, heads, dim, dtype=HALF).transpose(1, 2) for n in (queries, keys, keys)]
    return found, normal(source, batch, queries, heads, dim, dtype=HALF).transpose(1, 2) * queries**-0.5


def outcome(call, heads, slope, dtype=HALF):
    """The output and the gradients of all three."""
    own = [x.detach().to(dtype).requires_grad_() for x in heads]
    out = call(*own)
    return [out, *torch.autograd.grad(out, own, slope.to(dtype))]


def exact(heads, **options):
    return scaled_dot_product_attention(*(x.double() for x in heads), **options)


def both(heads, slope, usable=None):
    """The output and the gradients beside those of float64."""
    ours = outcome(lambda *x: train(*x, usable), heads, slope)
    right = outcome(lambda *x: scaled_dot_product_attention(*x, attn_mask=usable), heads, slope, torch.float64)
    return list(zip(ours, right, strict=True))


def check(heads, slope, usable=None):
    pairs = both(heads, slope, usable)
    for found, right in [(infer(*heads, usable), pairs[0][1]), *pairs]:
        assert found.dtype == HALF
        assert_close(found, right)


def test_the_library_is_built_where_there_is_a_compiler():
    if shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0]):
        assert native_library.native_library() is not None


@pytest.mark.parametrize("dim", [32, 64, 96])
@pytest.mark.parametrize(
    ("queries", "keys"), [(1, 1), (3, 7), (33, 2), (31, 31), (64, 65), (70, 97), (130, 97), (1100, 40)]
)
def test_output_and_gradients_equal_float64(queries, keys, dim):
    check(*given_heads(queries, keys, dim))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 300), st.integers(1, 80), st.integers(1, 3), seeds)
def test_any_shape(queries, keys, batch, seed):
    check(*given_heads(queries, keys, batch=batch, seed=seed))


@pytest.mark.parametrize("groups", [1, 3])
def test_hidden_slots(groups):
    """In the middle, at the end, whole groups of 32, and all of them: then slot 0 is seen."""
    (heads, slope), mask = given_heads(5, 70), torch.ones(2, groups, 70, dtype=torch.bool)
    mask[0, :, 2], mask[0, :, 30:], mask[1] = False, False, False
    mask[0, 0, 5] = groups > 1
    for usable in (usable_slots(mask), usable_slots(mask[:1])):  # the same for every document
        check(heads, slope, usable)
    for found in outcome(lambda *x: train(*x, usable_slots(mask)), heads, slope)[2:]:
        assert not found[1, :, 1:].any()


def test_hidden_slots_may_hold_anything():
    (heads, _), mask = given_heads(5, 70), torch.ones(2, 70, dtype=torch.bool)
    mask[:, 41:] = False
    expected = infer(*heads, usable_slots(mask[:, None]))
    for x in heads[1:]:
        x[:, :, 64:] = math.nan  # whole groups are never read; bias hides the rest
        x[:, :, 41:64] = 1e15
    assert torch.equal(infer(*heads, usable_slots(mask[:, None])), expected)


@pytest.mark.parametrize("shift", [-300.0, -70.0, 70.0, 300.0])
def test_logits_far_from_0(shift):
    """All of a row's logits shifted: powers that would run over or under."""
    query, key, value = given_heads(40, 50)[0]
    query[..., 0], key[..., 0] = 8.0, shift / 8.0 * 32**0.5
    assert_close(infer(query, key, value), exact([query, key, value]))


def test_large_logits():
    """Powers that run out of floats, so that the forward pass looks for the largest."""
    (query, key, value), slope = given_heads(40, 50)
    for found, right in both([query * 30, key * 30, value], slope * 1e-2):
        assert (found - right).norm() < 2e-2 * right.norm()


def test_nan_stays_in_its_row_and_spreads_from_keys():
    heads, slope = given_heads(40, 50)
    heads[0][1, 2, 7] = math.nan
    for found in (infer(*heads), *outcome(train, heads, slope)[:2]):
        bad = found.isnan().any(-1)
        assert bad[1, 2, 7]
        assert bad.sum() == 1
    heads[1][0, 1, 3] = math.nan
    assert infer(*heads)[0, 1].isnan().all()


@pytest.mark.parametrize("contiguous", [True, False])
def test_rows_of_any_stride(contiguous):
    heads, slope = given_heads(40, 50)
    check([x.mT.contiguous().mT if not contiguous else x.contiguous() for x in heads], slope)


def test_a_gradient_without_strides_of_its_own():
    heads, slope = given_heads(9, 5)
    check(heads, torch.ones((), dtype=HALF).expand_as(slope))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_change_nothing(threads):
    heads, _ = given_heads(600, 50)
    expected = infer(*heads)
    with patch("torch.get_num_threads", lambda: threads):
        assert torch.equal(infer(*heads), expected)


def test_queries_are_shared_out_where_there_are_fewer_heads_than_threads():
    with patch("torch.get_num_threads", lambda: 3):
        check(*given_heads(1_500, 40, heads=1, batch=1))


def test_threads_of_python_have_memory_of_their_own():
    (heads, _), found = given_heads(300, 90), []
    expected = infer(*heads)
    threads = [threading.Thread(target=lambda: found.append(infer(*heads))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(torch.equal(out, expected) for out in found)


def test_rounding():
    """As far off float64's as what torch's fused attention gives, or less."""
    heads, slope = given_heads(1500, 40)
    fused = outcome(scaled_dot_product_attention, heads, slope)
    for other, (found, right) in zip(fused, both(heads, slope), strict=True):
        error, others = ((x.double() - right).norm() / right.norm() for x in (found, other))
        assert error < 1.5 * others


def test_a_document_alone_has_the_gradient_it_has_in_a_batch():
    heads, slope = given_heads(40, 12)
    with machine("amx"):
        together = outcome(lambda *x: slot_attention(*x)[0], heads, slope)
        alone = outcome(lambda *x: slot_attention(*x)[0], [x[:1] for x in heads], slope[:1])
    for x, y in zip(alone, together, strict=True):
        assert torch.equal(x, y[:1])


WINDOWS = st.sampled_from([(4, 2), (32, 8), (48, 16), (40, 1)])


@settings(max_examples=40)
@given(
    sizes=WINDOWS,
    length=st.integers(1, 700),
    seed=seeds,
    budget=st.sampled_from([None, 1.0, 30.0, 1e4]),
    sinks=st.sampled_from([0, 1, 3]),
    weighed=st.booleans(),
)
def test_window_equals_the_fused_path_in_float64_whole_and_in_parts(sizes, length, seed, budget, sinks, weighed):
    (window_size, size), source, heads = sizes, generator(seed), 2
    sinks = min(sinks, length)
    query, key, value = (normal(source, length, heads, 32, dtype=HALF).transpose(0, 1) for _ in range(3))
    count = torch.full((sinks + -(-length // size),), float(size))
    count[:sinks], count[sinks : sinks + sinks // size] = 1.0, 0.0
    far_key, far_value = (normal(source, heads, len(count), 32, dtype=HALF) for _ in range(2))
    bias = normal(source, heads, dtype=torch.float32) if weighed else None
    far = FarSlots(far_key, far_value, count, size, torch.arange(sinks), bias, budget)
    expected = torch.empty(length, heads, 32, dtype=torch.float64)
    wide = far._replace(key=far_key.double(), value=far_value.double(), count=count.double())
    SdpaDocument(wide)(DocumentPart(query.double(), key.double(), value.double(), length, window_size), expected)
    out = torch.empty(length, heads, 32, dtype=HALF)
    CompiledDocument(far)(DocumentPart(query, key, value, length, window_size), out)
    assert_close(out, expected)
    in_parts, attend, rows = torch.empty_like(out), CompiledDocument(far), 3 * window_size
    for start in range(0, length, rows):
        stop = min(start + rows, length)
        reach = slice(max(0, start - window_size), min(stop + window_size, length))
        attend(
            DocumentPart(query[:, start:stop], key[:, reach], value[:, reach], length, window_size, start, reach.start),
            in_parts[start:stop],
        )
    assert_close(in_parts, out)


@given(st.integers(1, 90), st.sampled_from([1, 2, 4]), st.integers(0, 3), st.sampled_from([None, 5.0]))
def test_logits_of_slots_are_the_formula_s(length, size, sinks, budget):
    options = {"length": length, "device": torch.device("cpu"), "sizes": (size,), "slots": 90}
    exact = leading_tokens(None, batch=1, length=length, sinks=sinks, device=options["device"])
    runs = with_exact_runs(make_runs(None, exact.rest, batch=1, **options), exact)
    keys = torch.ones(1, 2, 90 + sinks, 32, dtype=HALF)
    memory = Slots(keys, keys, None, runs)
    sizes = {"budget": budget}
    part = DocumentPart(*(torch.ones(2, length, 32, dtype=HALF) for _ in range(3)), length, 8)
    found = CompiledDocument(far_slots(memory, 0, length, bias=None, **sizes)).logits(part, 0, part.all_blocks())
    expected = far_bias(far_parts(memory.runs, length=length, window=8, dtype=torch.float32, **sizes))[0]
    assert_close(found, expected[:, : found.shape[1]])
    assert (expected[:, found.shape[1] :] == -torch.inf).all()


@pytest.mark.parametrize("budget", [None, 3.0])
@pytest.mark.parametrize("weighed", [True, False])
@pytest.mark.parametrize("length", [1, 40, 97])
def test_slots_of_single_tokens(length, weighed, budget):
    source = generator(length)
    heads = [normal(source, 2, length, 2, 32, dtype=HALF).transpose(1, 2) for _ in range(3)]
    bias = normal(source, 2, dtype=torch.float32) if weighed else None
    options = {"window": 16, "memory_bias": bias, "memory_budget": budget, "slots_are_tokens": True}
    mask = torch.arange(length) < torch.tensor([[length], [length // 2]])
    options["exact"] = leading_tokens(mask, batch=2, length=length, sinks=1, device=mask.device)
    with only(window="single_tokens", attention="sdpa"):
        expected, _ = windowed_attention(*(x.double() for x in heads), pytest.fail, mask=mask, **options)
    with only(window="single_tokens", attention="compiled"):
        out, _ = windowed_attention(*heads, pytest.fail, mask=mask, **options)
    assert_close(out, expected)


@pytest.mark.parametrize("layer_kind", [None, 16])
def test_the_layer_takes_it_and_equals_its_float64_twin(layer_kind):
    """Pure and with a window; padding and NaN in it change nothing."""
    torch.manual_seed(0)
    kind = "linear" if layer_kind is None else "mean"
    layer = LinformerAttention(
        64, 2, max_length=256, projected_length=64, projection=kind, attention_window=layer_kind
    ).eval()
    x, mask = normal(generator(3), 2, 200, 64, dtype=torch.float32), torch.ones(2, 200, dtype=torch.long)
    mask[1, 130:] = 0
    with torch.no_grad(), machine("amx"), listening() as heard:
        expected = copy.deepcopy(layer).double()(x.to(HALF).double(), mask)
        x[1, 130:] = math.nan
        out = layer.to(HALF)(x.to(HALF), mask)
        alone = layer(x[1:, :130].to(HALF))
    assert ("attention" if layer_kind is None else "document", "compiled") in [choice[:2] for choice in heard]
    text = mask.bool()
    assert (out[text].double() - expected[text]).norm() < 0.02 * expected[text].norm()
    assert_close(alone[0], out[1, :130])


TRAINED = {  # the operation that is trained through, and a layer that has it
    "attention": {"max_length": 24, "projected_length": 6, "dropout": 0.1},
    "window": {"max_length": 96, "projected_length": 12, "attention_window": 8,
               "projection": Projection("mean", sink_tokens=1, memory_budget=40.0)},
}  # fmt: skip


@pytest.mark.parametrize(("operation", "options"), TRAINED.items(), ids=TRAINED)
def test_a_layer_is_trained_through_it(operation, options):
    """Under autocast, with padding and sinks; with dropout on the weights torch's own attention is taken."""
    torch.manual_seed(0)
    layer, length = LinformerAttention(64, 2, **options).eval(), options["max_length"]
    hidden, mask = torch.randn(2, length, 64), torch.ones(2, length)
    mask[1, 2 * length // 3 + 1 :] = 0

    def gradients(half):
        layer.zero_grad()
        with torch.autocast("cpu", dtype=HALF, enabled=half):
            out = layer(hidden, mask)
        (out.float() * mask[..., None]).square().sum().backward()
        return {name: x.grad.clone() for name, x in layer.named_parameters()}

    with machine("amx"), listening() as heard:
        found = gradients(True)
    assert (operation, "compiled_training") in [choice[:2] for choice in heard]
    for name, right in gradients(False).items():
        if name != "key.bias":  # moves all logits alike, so that its gradient is 0
            assert (found[name] - right).norm() < 0.05 * right.norm(), name
    if "dropout" in options:
        with machine("amx"), listening() as heard, torch.autocast("cpu", dtype=HALF):
            layer.train()(hidden, mask)
        assert (operation, "compiled_training") not in [choice[:2] for choice in heard]


@pytest.mark.parametrize("units", ["amx", "avx512"])
def test_who_is_served(units):
    heads, _ = given_heads(40, 50)
    with machine(units):
        for operation in ("attention", "document"):
            assert taken(operation, AttentionCall(*heads)) == "compiled"
        for trains in (False, True):
            heads[0].requires_grad_(trains)
            assert taken("attention", AttentionCall(*heads)) == ("compiled_training" if trains else "compiled")
            for operation in ("attention", "document"):
                for other in (
                    [x.float() for x in heads],
                    [x[..., :31] for x in heads],
                    [heads[0][:, :, :3], *heads[1:]],
                ):
                    assert taken(operation, AttentionCall(*other)) == "sdpa"
        with torch.no_grad():
            assert taken("attention", AttentionCall(*heads)) == "compiled"
    with machine():
        assert taken("attention", AttentionCall(*heads)) == "sdpa"
        with torch.no_grad():
            assert taken("attention", AttentionCall(*heads)) == "sdpa"


@pytest.mark.parametrize(
    ("multiplies", "tiles", "granted", "units"),
    [
        (True, True, True, "amx"),
        (True, True, False, "avx512"),
        (True, False, True, "avx512"),
        (False, False, True, None),
    ],
)
def test_the_best_units_of_a_machine(monkeypatch, multiplies, tiles, granted, units):
    monkeypatch.setattr(native_library, "native_library", lambda: SimpleNamespace(longform_grants_amx=lambda: granted))
    monkeypatch.delenv("LONGFORM_UNITS", raising=False)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: multiplies)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: tiles)
    assert UNITS_OF_THE_MACHINE.__wrapped__() == units


def test_without_a_library_there_are_no_units(monkeypatch):
    monkeypatch.setattr(native_library, "native_library", lambda: None)
    assert UNITS_OF_THE_MACHINE.__wrapped__() is None
    monkeypatch.setattr(native_library, "best_units", lambda: None)
    assert native_library.kernels() == "none"
    monkeypatch.setattr(native_library, "best_units", lambda: "avx512")
    assert native_library.kernels() == "avx512"
