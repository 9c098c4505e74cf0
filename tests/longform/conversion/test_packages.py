"""Loaders of packages that are not installed here: layers of fairseq's shape, Jargon's folders, files, refusals."""

import json
import math

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import gelu, linear

import longform
from longform.errors import CheckpointError
from tolerances import assert_close

LENGTH, SLOTS, HEADS, WIDTH = 24, 7, 3, 15


class FairseqAttention(nn.Module):
    """fairseq's MultiheadLinearAttention from its description: E first, by columns, then layers with biases."""

    def __init__(self, shared: bool) -> None:
        super().__init__()
        self.num_heads = HEADS
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            setattr(self, name, nn.Linear(WIDTH, WIDTH))
        self.compress_k = nn.Linear(LENGTH, SLOTS, bias=False)
        self.compress_v = None if shared else nn.Linear(LENGTH, SLOTS, bias=False)

    def forward(self, x):
        columns = x.transpose(1, 2)  # (B, D, n)
        sides = []
        for compress, layer in ((self.compress_k, self.k_proj), (self.compress_v or self.compress_k, self.v_proj)):
            short = linear(columns, compress.weight[:, : x.shape[1]]).transpose(1, 2)
            sides.append(layer(short).unflatten(2, (HEADS, -1)).transpose(1, 2))
        query = self.q_proj(x).unflatten(2, (HEADS, -1)).transpose(1, 2)
        weights = (query @ sides[0].transpose(2, 3) / math.sqrt(WIDTH // HEADS)).softmax(-1)
        return self.out_proj((weights @ sides[1]).transpose(1, 2).flatten(2))


class FairseqLayer(nn.Module):
    def __init__(self, shared: bool) -> None:
        super().__init__()
        self.self_attn = FairseqAttention(shared)
        self.self_attn_layer_norm, self.final_layer_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 22), nn.Linear(22, WIDTH)

    def forward(self, x):
        x = self.self_attn_layer_norm(x + self.self_attn(x))
        return self.final_layer_norm(x + self.fc2(gelu(self.fc1(x))))


class FairseqEncoder(nn.Module):
    def __init__(self, shared: bool = False) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(9, WIDTH)
        self.layers = nn.ModuleList(FairseqLayer(shared) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.fixture
def theirs():
    torch.manual_seed(0)
    return FairseqEncoder().eval()


@torch.no_grad()
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("length", [LENGTH, LENGTH - 1, 5])
def test_fairseqs_stack_and_its_attention(shared, length):
    made, hidden = FairseqEncoder(shared).eval(), torch.randn(2, length, WIDTH)
    assert_close(longform.load_linformer(made, package="fairseq").eval()(hidden), made(hidden), scope="model")
    attention = made.layers[0].self_attn
    ours = longform.load_linformer(attention, package="fairseq")
    mask = torch.rand(2, length) > 0.3
    assert_close(ours(hidden, mask)[mask], attention(hidden * mask[..., None])[mask])


@torch.no_grad()
@pytest.mark.parametrize("form", ["pickle", "safetensors", "fairseq's file"])
def test_a_folder_of_jargons_form(tmp_path, theirs, form):
    weights = {f"jargon.encoder.sentence_encoder.{name}": x for name, x in theirs.state_dict().items()}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "jargon", "encoder_attention_heads": HEADS}))
    if form == "safetensors":
        save_file(weights, tmp_path / "model.safetensors")
    else:
        torch.save(weights if form == "pickle" else {"model": weights, "args": None}, tmp_path / "pytorch_model.bin")
    hidden = torch.randn(2, 9, WIDTH)
    ours = longform.load_linformer(tmp_path, package="jargon").eval()
    assert_close(ours(hidden), theirs(hidden), scope="model")
    file = next(path for path in tmp_path.iterdir() if path.suffix != ".json")
    again = longform.load_linformer(file, package="fairseq", num_heads=HEADS).eval()
    assert torch.equal(again(hidden), ours(hidden))


class Code:
    def __reduce__(self):
        return print, ("code that a pickle runs",)


def test_what_cannot_be_loaded(tmp_path, theirs, capsys):
    torch.save({"weights": Code()}, tmp_path / "model.pt")
    weights = theirs.state_dict()
    wide = weights | {"layers.0.fc1.weight": torch.zeros(23, WIDTH)}
    for source, options, said in [
        (theirs, {"package": "xformers"}, "'xformers' is not known; choose one of 'lucidrains'"),
        (theirs, {"package": "lucidrains"}, "have a 'to_q.weight' in each layer, and these have embed_tokens.weight"),
        (weights, {"package": "fairseq"}, "say num_heads="),
        (weights, {"package": "fairseq", "num_heads": 4}, "other shapes"),
        (wide, {"package": "fairseq", "num_heads": HEADS}, "have other shapes than ours"),
        (tmp_path / "model.pt", {"package": "fairseq"}, "is not a file of weights alone"),
    ]:
        with pytest.raises(CheckpointError, match=said):
            longform.load_linformer(source, **options)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="holds no weights"):
        longform.load_linformer(tmp_path / "empty", package="jargon")
    assert not capsys.readouterr().out
