from types import SimpleNamespace

import pytest
import torch
from torch.autograd import DeviceType

from longform_lab.speed.breakdown import kind_of, shares, shares_of, times_of


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ("aten::addmm", "products"), ("aten::mm", "products"), ("aten::_int_mm", "products"),
        ("mkldnn::_linear_pointwise", "products"), ("aten::mul", "elementwise"), ("aten::add", "elementwise"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"), ("aten::gelu", "activation"),
        ("aten::native_layer_norm", "normalisation"), ("aten::copy_", "copies"), ("ProfilerStep", "other"),
    ],
)  # fmt: skip
def test_kinds_of_operations(operation: str, kind: str) -> None:
    assert kind_of(operation) == kind


def test_shares_add_up() -> None:
    found = shares([("aten::mm", 3.0), ("aten::gelu", 1.0), ("aten::bmm", 4.0)])
    assert {kind: share for kind, share in found.items() if share} == {"products": 0.875, "activation": 0.125}
    assert set(shares([]).values()) == {0.0}


def test_a_pass_has_shares_of_what_it_does() -> None:
    x = torch.randn(256, 256)
    found = shares_of(lambda: (x @ x @ x).neg(), "cpu")
    assert found["products"] > 0
    assert found["elementwise"] > 0
    assert found["attention"] == found["activation"] == 0
    assert sum(found.values()) == pytest.approx(1)


def test_a_kernel_does_not_count_beside_its_operation() -> None:
    events = [
        SimpleNamespace(
            key="aten::mm", device_type=DeviceType.CPU, self_device_time_total=3.0, self_cpu_time_total=9.0
        ),
        SimpleNamespace(
            key="gemm_bf16", device_type=DeviceType.CUDA, self_device_time_total=3.0, self_cpu_time_total=0
        ),
        SimpleNamespace(
            key="aten::gelu", device_type=DeviceType.CPU, self_device_time_total=1.0, self_cpu_time_total=1.0
        ),
    ]
    assert shares(times_of(events, "cuda"))["products"] == 0.75
    assert times_of(events, "cpu") == [("aten::mm", 9.0), ("aten::gelu", 1.0)]
