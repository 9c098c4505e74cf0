"""A model with packed weights gives what it gave; what it cannot do is said."""

from pathlib import Path

import pytest
import torch
from model_kinds import KINDS, config
from torch import nn

import longform
from longform import LinformerForSequenceClassification, LinformerModel
from longform.errors import ConfigurationError, InputError
from longform.functional.linear import onednn
from longform.layers.linear import PackedLinear
from tolerances import assert_close


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.ones(3, 31, dtype=torch.long)
    mask[0, 20:] = 0
    return torch.randint(5, 40, (3, 31)), mask


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_every_kind_of_attention_gives_the_same(kind: str, dtype: torch.dtype) -> None:
    # Random projections make large numbers of large weights, whose roundings then say nothing.
    scale = 0.1 if KINDS[kind].get("projection") in ("random", "by_place") else 0.2
    options = {"hidden_size": 32, "intermediate_size": 48, "initializer_range": scale}
    if dtype == torch.bfloat16 and "selected_slots" in KINDS[kind]:  # all of them: its roundings select others
        options["selected_slots"] = 8
    model = LinformerModel(config(kind, **options)).eval().to(dtype)
    ids, mask = inputs()
    expected, short = (model(*given).last_hidden_state for given in ((ids, mask), (ids[:1, :5],)))
    assert longform.pack_weights(model) is model
    attention = model.encoder.layers[0].attention
    by_head = model.config.projection in ("weighted_mean", "content_and_place")
    own = attention.projection_sharing == "none" or len(attention.head_groups) > 1
    own |= attention.num_key_value_heads < attention.num_heads or by_head
    packed = sum(isinstance(part, PackedLinear) for part in model.modules())
    worth = dtype in onednn.supported_dtypes()
    whole = 6 + model.config.is_gated_act - (attention.query is None)
    assert packed == (whole - 2 * own) * worth * model.config.num_hidden_layers
    assert_close(model(ids, mask).last_hidden_state, expected.double(), scope="model")
    assert_close(model(ids[:1, :5]).last_hidden_state, short.double(), scope="model")


def test_heads_stay_and_what_it_cannot_do_is_said(tmp_path: Path) -> None:
    model = longform.pack_weights(LinformerForSequenceClassification(config("mean-window")))
    assert isinstance(model.classifier.out_proj, nn.Linear)
    assert not model.training
    with pytest.raises(ConfigurationError, match="is not saved"):
        model.save_pretrained(tmp_path)
    for kind in ("mean-window", "mean"):  # of a pure one, the memory is the first to need a packed weight
        with pytest.raises(InputError, match="no gradient"):
            longform.pack_weights(LinformerModel(config(kind)))(*inputs())
    with pytest.raises(ConfigurationError, match="not Linear"):
        longform.pack_weights(nn.Linear(2, 2))  # ty: ignore[invalid-argument-type]
