"""Layer normalisation of a sum by Triton's kernel: against float64, and who is served."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import layer_norm

from longform.functional.norm import layer_norm as longform_norm
from longform.functional.norm import norm_by_triton
from strategies import generator, normal, seeds
from tolerances import assert_close


@given(
    seeds,
    st.integers(1, 3),
    st.sampled_from([1, 48, 64, 768, 1000]),
    st.sampled_from([(True, True), (True, False), (False, False)]),
)
def test_a_sum_by_triton(seed, rows, features, affine):
    source, dtype = generator(seed), torch.float32
    x, residual = (normal(source, 2, rows, features, dtype=dtype) * 3 + 5 for _ in range(2))
    weight, bias = (normal(source, features, dtype=dtype) if given else None for given in affine)
    wide = (None if given is None else given.double() for given in (weight, bias))
    expected = layer_norm(x.double() + residual.double(), (features,), *wide, 1e-5)
    out = norm_by_triton(x, weight, bias, epsilon=1e-5, residual=residual)
    assert_close(out, expected, scope="model")


def test_a_sum_by_torch_elsewhere_and_its_gradient():
    source = generator(3)
    x, residual = (normal(source, 2, 5, 64, dtype=torch.bfloat16) for _ in range(2))
    weight, bias = (normal(source, 64, dtype=torch.bfloat16).requires_grad_() for _ in range(2))
    expected = layer_norm(x.double() + residual.double(), (64,), weight.double(), bias.double(), 1e-5)
    kept = x.clone(), residual.clone()
    out = longform_norm(x, weight, bias, epsilon=1e-5, residual=residual)
    assert out.requires_grad
    assert_close(out, expected, scope="model")
    assert torch.equal(x, kept[0])
    assert torch.equal(residual, kept[1])
