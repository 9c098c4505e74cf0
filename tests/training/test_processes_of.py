"""What is refused of a training on several processes, before anything is read."""

import pytest
import torch
from torch import nn

from longform.errors import ConfigurationError, LongformError
from longform.training.engine.processes import Processes, current_process, processes_of, stopping_together
from longform.training.engine.sharding import empty_copy, make_whole
from longform.training.pretraining.settings import PretrainingSettings


@pytest.mark.parametrize(("chosen", "count"), [({"fsdp": True}, 2), ({"sequence_parallel": 4}, 4)])
def test_one_process_alone_is_told_how_to_start_several(chosen: dict[str, int], count: int) -> None:
    with pytest.raises(ConfigurationError, match=f"torchrun --nproc-per-node {count}"):
        processes_of(PretrainingSettings(device="cpu", **chosen))  # ty: ignore[invalid-argument-type]


def test_no_process_is_no_number_of_them() -> None:
    with pytest.raises(ConfigurationError, match="sequence_parallel=0"):
        PretrainingSettings(sequence_parallel=0)


def test_a_lost_process_is_named_and_other_errors_pass() -> None:
    alone = Processes(current_process("cpu"))
    with pytest.raises(LongformError, match=r"another process .* newest checkpoint"), stopping_together(alone):
        raise RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1")
    with pytest.raises(RuntimeError, match="shapes"), stopping_together(alone):
        raise RuntimeError("shapes do not fit")


def test_a_whole_model_has_its_classes_ties_and_new_weights() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    empty = empty_copy(model)
    assert all(parameter.is_meta for parameter in empty.parameters())
    model.__class__ = type("Changed", (nn.Sequential,), {})
    with torch.no_grad():
        model[0].weight.fill_(2.0)
    make_whole(model, empty)
    assert type(model) is nn.Sequential
    assert model[0].weight is model[1].weight
    assert float(model[1].weight.detach().mean()) == 2.0
