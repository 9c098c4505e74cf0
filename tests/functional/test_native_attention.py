"""The compiled kernel, by this machine's units and by loops, against the float64 twins."""

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

from longform.functional.attention import compiled, usable_slots
from longform.functional.attention.formula import AttentionCall
from longform.functional.dispatch import listening
from longform.functional.native import library as native_library
from longform.functional.slots import Memory, join_slots, make_slots, sink_counts
from longform.functional.window import windowed_attention
from longform.functional.window.compiled import CompiledDocument
from longform.functional.window.document import DocumentPart, FarSlots, far_slots
from longform.functional.window.formula import far_bias, far_parts
from longform.functional.window.sdpa_inference import SdpaDocument
from longform.layers.attention import LinformerAttention
from strategies import generator, normal, seeds
from tolerances import assert_close

HALF = torch.bfloat16
UNITS_OF_THE_MACHINE = native_library.best_units
pytestmark = pytest.mark.usefixtures("units")


def subject(query, key, value, usable):
    return compiled.infer(AttentionCall(query, key, value, usable))


def given_heads(queries: int, keys: int, dim: int = 32, heads: int = 3, batch: int = 2):
    source = generator(queries + keys)
    return [normal(source, batch, n, heads, dim, dtype=HALF).transpose(1, 2) for n in (queries, keys, keys)]


def exact(heads, **options):
    return scaled_dot_product_attention(*(x.double() for x in heads), **options)


def test_the_library_is_built_where_there_is_a_compiler():
    if shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0]):
        assert native_library.native_library() is not None


@pytest.mark.parametrize("dim", [32, 64, 96])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (3, 7), (33, 2), (31, 31), (64, 65), (70, 97), (1100, 40)])
def test_equals_the_exact_softmax(queries, keys, dim):
    heads = given_heads(queries, keys, dim)
    out = subject(*heads, None)
    assert out.dtype == HALF
    assert_close(out, exact(heads))


@pytest.mark.parametrize("groups", [1, 3])
def test_hidden_slots(groups):
    """In the middle, at the end, whole groups of 32, and all of them: then slot 0 is seen."""
    heads, mask = given_heads(5, 70), torch.ones(2, groups, 70, dtype=torch.bool)
    mask[0, :, 2], mask[0, :, 30:], mask[1] = False, False, False
    mask[0, 0, 5] = groups > 1
    usable = usable_slots(mask)
    assert_close(subject(*heads, usable), exact(heads, attn_mask=usable))
    one = usable[:1]  # the same for every document
    assert_close(subject(*heads, one), exact(heads, attn_mask=one))


def test_hidden_slots_may_hold_anything():
    heads, mask = given_heads(5, 70), torch.ones(2, 70, dtype=torch.bool)
    mask[:, 41:] = False
    expected = subject(*heads, usable_slots(mask[:, None]))
    for x in heads[1:]:
        x[:, :, 64:] = math.nan  # whole groups are never read; bias hides the rest
        x[:, :, 41:64] = 1e15
    assert torch.equal(subject(*heads, usable_slots(mask[:, None])), expected)


@pytest.mark.parametrize("shift", [-300.0, -70.0, 70.0, 300.0])
def test_logits_far_from_0(shift):
    """All of a row's logits shifted: powers that would run over or under."""
    query, key, value = given_heads(40, 50)
    query[..., 0], key[..., 0] = 8.0, shift / 8.0 * 32**0.5
    assert_close(subject(query, key, value, None), exact([query, key, value]))


def test_nan_stays_in_its_row_and_spreads_from_keys():
    heads = given_heads(40, 50)
    heads[0][1, 2, 7] = math.nan
    out = subject(*heads, None)
    bad = out.isnan().any(-1)
    assert bad[1, 2, 7]
    assert bad.sum() == 1
    heads[1][0, 1, 3] = math.nan
    assert subject(*heads, None)[0, 1].isnan().all()


@pytest.mark.parametrize("contiguous", [True, False])
def test_rows_of_any_stride(contiguous):
    heads = [x.mT.contiguous().mT if not contiguous else x.contiguous() for x in given_heads(40, 50)]
    assert_close(subject(*heads, None), exact(heads))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_change_nothing(threads):
    heads = given_heads(600, 50)
    expected = subject(*heads, None)
    with patch("torch.get_num_threads", lambda: threads):
        assert torch.equal(subject(*heads, None), expected)


def test_threads_of_python_have_memory_of_their_own():
    heads, found = given_heads(300, 90), []
    expected = subject(*heads, None)
    threads = [threading.Thread(target=lambda: found.append(subject(*heads, None))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(torch.equal(out, expected) for out in found)


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
    far = FarSlots(far_key, far_value, count, size, sinks, bias, budget)
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
    slots = make_slots(None, batch=1, sinks=sinks, **options)
    lead = sink_counts(None, batch=1, length=length, sinks=sinks, device=options["device"])
    keys = torch.ones(1, 2, 90 + sinks, 32, dtype=HALF)
    memory = Memory(keys, keys, None, join_slots(lead, slots))
    sizes = {"sinks": lead.shape[1], "budget": budget}
    part = DocumentPart(*(torch.ones(2, length, 32, dtype=HALF) for _ in range(3)), length, 8)
    found = CompiledDocument(far_slots(memory, 0, length, bias=None, **sizes)).logits(part, 0, part.all_blocks())
    expected = far_bias(far_parts(memory.slots, length=length, window=8, dtype=torch.float32, **sizes))[0]
    assert_close(found, expected[:, : found.shape[1]])
    assert (expected[:, found.shape[1] :] == -torch.inf).all()


@pytest.mark.parametrize("budget", [None, 3.0])
@pytest.mark.parametrize("weighed", [True, False])
@pytest.mark.parametrize("length", [1, 40, 97])
def test_slots_of_single_tokens(length, weighed, budget):
    source = generator(length)
    heads = [normal(source, 2, length, 2, 32, dtype=HALF).transpose(1, 2) for _ in range(3)]
    bias = normal(source, 2, dtype=torch.float32) if weighed else None
    options = {"window": 16, "memory_bias": bias, "memory_budget": budget, "sinks": 1, "slots_are_tokens": True}
    mask = torch.arange(length) < torch.tensor([[length], [length // 2]])
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


@pytest.mark.parametrize("units", ["amx", "avx512"])
def test_who_is_served(units):
    heads = given_heads(40, 50)
    with machine(units):
        for operation in ("attention", "document"):
            assert taken(operation, AttentionCall(*heads)) == "compiled"
            assert taken(operation, AttentionCall(*(x.float() for x in heads))) == "sdpa"
            assert taken(operation, AttentionCall(*(x[..., :20] for x in heads))) == "sdpa"
            assert taken(operation, AttentionCall(heads[0][:, :, :3], *heads[1:])) == "sdpa"
        assert taken("attention", AttentionCall(heads[0].requires_grad_(), *heads[1:])) == "compiled_training"
        with torch.no_grad():
            assert taken("attention", AttentionCall(*heads)) == "compiled"
    with machine(), torch.no_grad():
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
