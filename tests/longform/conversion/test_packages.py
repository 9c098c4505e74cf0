"""Loading of other packages' weights: files and refusals; tests/longform/peers compares outputs with the packages."""

import pytest
import torch
from safetensors.torch import save_file

import longform
from longform.errors import CheckpointError

LENGTH, SLOTS, HEADS, WIDTH, INNER = 24, 7, 3, 15, 22


@pytest.fixture
def weights():
    """A state_dict of two layers, by the names that the package linformer has."""
    torch.manual_seed(0)
    layer = {
        "0.norm.weight": (WIDTH,), "0.norm.bias": (WIDTH,), "0.fn.to_q.weight": (WIDTH, WIDTH),
        "0.fn.to_k.weight": (WIDTH, WIDTH), "0.fn.to_v.weight": (WIDTH, WIDTH), "0.fn.proj_k": (LENGTH, SLOTS),
        "0.fn.proj_v": (LENGTH, SLOTS), "0.fn.to_out.weight": (WIDTH, WIDTH), "0.fn.to_out.bias": (WIDTH,),
        "1.norm.weight": (WIDTH,), "1.norm.bias": (WIDTH,), "1.fn.w1.weight": (INNER, WIDTH),
        "1.fn.w1.bias": (INNER,), "1.fn.w2.weight": (WIDTH, INNER), "1.fn.w2.bias": (WIDTH,),
    }  # fmt: skip
    return {f"net.layers.{number}.{name}": torch.randn(shape) for number in range(2) for name, shape in layer.items()}


@torch.no_grad()
@pytest.mark.parametrize("suffix", [".safetensors", ".bin"])
def test_a_file_gives_what_its_weights_give(tmp_path, weights, suffix):
    path, hidden = tmp_path / f"model{suffix}", torch.randn(2, 9, WIDTH)
    (save_file if suffix == ".safetensors" else torch.save)(weights, path)
    expected = longform.load_linformer(weights, package="lucidrains", num_heads=HEADS).eval()(hidden)
    assert expected.shape == hidden.shape
    assert torch.equal(longform.load_linformer(path, package="lucidrains", num_heads=HEADS).eval()(hidden), expected)


class Code:
    def __reduce__(self):
        return print, ("code that a pickle runs",)


def test_what_cannot_be_loaded(tmp_path, weights, capsys):
    torch.save({"weights": Code()}, tmp_path / "model.pt")
    wide = weights | {"net.layers.0.1.fn.w1.weight": torch.zeros(23, WIDTH)}
    lucidrains = {"package": "lucidrains", "num_heads": HEADS}
    for source, options, said in [
        (weights, {"package": "xformers"}, "'xformers' is not known; choose one of 'lucidrains'"),
        (weights, {"package": "tatp22"}, "have a 'to_q.0.weight' in each layer, and these have net.layers.0"),
        (weights, {"package": "lucidrains"}, "say num_heads="),
        (weights, lucidrains | {"num_heads": 4}, "other shapes"),
        (wide, lucidrains, "have other shapes than ours"),
        (tmp_path / "model.pt", lucidrains, "is not a file of weights alone"),
        (tmp_path / "none.bin", lucidrains, "is no file of weights"),
    ]:
        with pytest.raises(CheckpointError, match=said):
            longform.load_linformer(source, **options)
    assert not capsys.readouterr().out
