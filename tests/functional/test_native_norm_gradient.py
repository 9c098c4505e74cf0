"""The norm of a sum trained through by the compiled kernel, by this machine's units and by loops, against float64."""

import pytest
import torch
from kernel_tables import machine, taken
from torch.nn.functional import layer_norm

from longform.functional.norm import NormOfSum, NormOfSumCall
from longform.models.configuration_linformer import LinformerConfig
from longform.models.modeling_linformer import LinformerModel
from strategies import generator, normal
from tolerances import assert_close

HALF = torch.bfloat16
EPSILON = 1e-3
pytestmark = pytest.mark.usefixtures("units", "with_amx")


@pytest.fixture
def with_amx():
    with machine("amx"):
        yield


def given_sum(*shape):
    source = generator(sum(shape))
    residual, branch = normal(source, *shape, dtype=torch.float32), normal(source, *shape, dtype=HALF)
    weight, bias = (normal(source, shape[-1], dtype=torch.float32) for _ in range(2))
    return [x.requires_grad_() for x in (residual + 3, branch, weight, bias)]


def exact(residual, branch, weight, bias):
    wide = [x.detach().double().requires_grad_() for x in (residual, branch, weight, bias)]
    return wide, layer_norm(wide[0] + wide[1], wide[0].shape[-1:], *wide[2:], EPSILON)


@pytest.mark.parametrize("shape", [(1, 32), (3, 64), (2, 5, 96), (4, 33, 1024)])
@pytest.mark.parametrize("used", ["out", "rounded", "both"])
def test_equals_autograd_in_float64(shape, used):
    given = given_sum(*shape)
    wide, right = exact(*given)
    out, rounded = NormOfSum.apply(*given, EPSILON)
    assert_close(out, right)
    assert_close(rounded, right)
    slopes = [normal(generator(seed), *shape, dtype=dtype) for seed, dtype in ((7, torch.float32), (8, HALF))]
    parts = {"out": [(out, slopes[0])], "rounded": [(rounded, slopes[1])]}
    chosen = parts["out"] + parts["rounded"] if used == "both" else parts[used]
    found = torch.autograd.grad([x for x, _ in chosen], given, [y for _, y in chosen])
    expected = torch.autograd.grad(right, wide, sum(y.double() for _, y in chosen))
    for x, y, leaf in zip(found, expected, given, strict=True):
        assert x.dtype == leaf.dtype
        torch.testing.assert_close(
            x.double(), y, rtol=1e-2 if x.dtype == HALF else 1e-4, atol=1e-4 * float(y.abs().max())
        )


def test_neither_is_used():
    given = given_sum(2, 64)
    out, _ = NormOfSum.apply(*given, EPSILON)
    other = given[0].sum() + 0.0 * out.detach().sum()
    other.backward()
    assert torch.equal(given[0].grad, torch.ones(2, 64))


def test_what_is_no_number_stays_in_its_row():
    residual, branch, weight, bias = given_sum(3, 64)
    with torch.no_grad():
        branch[1, 5] = torch.nan
    out, _ = NormOfSum.apply(residual, branch, weight, bias, EPSILON)
    assert out.isnan().all(dim=1).tolist() == [False, True, False]


def test_where_it_is_taken():
    residual, branch, weight, bias = given_sum(2, 64)

    def trained(*given):
        return taken("norm_of_sum", NormOfSumCall(*given, EPSILON)) == "amx_training"

    assert trained(residual, branch, weight, bias)
    assert not trained(residual, branch.float(), weight, bias)
    assert not trained(residual, branch[:1], weight, bias)
    assert not trained(residual[:, :31], branch[:, :31], weight, bias)
    assert not trained(residual, branch, weight, None)
    assert not trained(*(x.detach() for x in (residual, branch, weight, bias)))
    with torch.no_grad():
        assert not trained(residual, branch, weight, bias)


@pytest.mark.parametrize(
    "options", [{}, {"projection": "mean", "attention_window": 8}, {"normalization": "pre"}, {"projection": "mean"}]
)
def test_a_model_is_trained_through_it(options):
    """And through the other kernels of training, under autocast, against the same model in float32."""
    torch.manual_seed(0)
    config = LinformerConfig(
        vocab_size=50, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=96,
        max_position_embeddings=48, projected_length=12, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        **options,
    )  # fmt: skip
    model = LinformerModel(config)
    tokens, mask = torch.randint(5, 50, (2, 48)), torch.ones(2, 48)
    mask[1, 31:] = 0

    def gradients(half):
        model.zero_grad()
        with torch.autocast("cpu", dtype=HALF, enabled=half):
            out = model(tokens, attention_mask=mask).last_hidden_state
        weights = normal(generator(5), *out.shape, dtype=torch.float32) * mask[..., None]
        (out.float() * weights).sum().backward()
        return {name: x.grad.clone() for name, x in model.named_parameters() if x.grad is not None}

    found, right = gradients(True), gradients(False)
    assert found.keys() == right.keys()
    for name, exactly in right.items():
        if not name.endswith("key.bias"):  # moves all logits alike, so that its gradient is 0
            assert (found[name] - exactly).norm() <= 0.1 * exactly.norm(), name
