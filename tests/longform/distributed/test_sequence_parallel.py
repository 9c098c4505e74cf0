"""One text over several processes: what they compute is what one computes, and what they send does not grow."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from parallel_cases import CLASSES, KINDS, Case
from process_group import in_processes
from torch.utils._python_dispatch import TorchDispatchMode

from longform import LinformerConfig, LinformerForQuestionAnswering, LinformerModel
from longform.choices import POOLINGS
from longform.distributed import gather_tokens, sequence_parallel
from longform.errors import ConfigurationError, InputError
from strategies import seeds, texts

SENDING = ("all_reduce", "all_to_all_single", "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast")


class Traffic(TorchDispatchMode):
    """What collectives move: name and bytes of each tensor that this process gave to one, in ``messages``."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        namespace, _, name = func._schema.name.partition("::")
        if namespace == "_c10d_functional" and name in SENDING:
            self.messages.append((name, args[0].numel() * args[0].element_size()))
        return func(*args, **(kwargs or {}))

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.messages)


def _check(case: Case) -> None:
    for name, difference in case.differences().items():
        assert difference <= (1e-10 if case.dtype == torch.float64 else 1e-5), (case, name, difference)


def _padded(*lengths: int) -> tuple[tuple[int, ...], ...]:
    return tuple((1,) * n + (0,) * (max(lengths) - n) for n in lengths)


def _every_kind() -> None:
    for at, kind in enumerate(KINDS):
        _check(Case(kind, CLASSES[at % len(CLASSES)], _padded(29, 32, 9), POOLINGS[at % len(POOLINGS)], seed=at))
    _check(Case("mean-window", LinformerModel, _padded(23)))
    _check(Case("mean", LinformerModel, ((0, 0, 1, 1, 1), (1, 0, 1, 0, 1)), "cls_lead"))  # fewer blocks than processes
    holes = ((0,) * 5 + (1,) * 20, (1,) * 9 + (0,) * 8 + (1,) * 8)
    _check(Case("max-window", LinformerModel, holes, "mean"))
    _check(Case("convolution", LinformerModel, holes, "lead"))


def _given_positions() -> None:
    """Positions as a caller gives them, 0 or any at padding, on either side of a text."""
    for mask in (_padded(29, 32, 9), tuple(row[::-1] for row in _padded(29, 32, 9))):
        for kind in ("mean-window", "linear"):
            case = Case(kind, LinformerModel, mask)
            given, valid = case.given(), torch.tensor(mask).bool()
            places = torch.where(valid, valid.cumsum(dim=1) - 1, 0)
            whole, shared = case.model().eval(), sequence_parallel(case.model().eval())
            found = gather_tokens(shared, shared(**given, position_ids=places).last_hidden_state)
            expected = whole(**given, position_ids=places).last_hidden_state
            torch.testing.assert_close(found[valid], expected[valid], rtol=1e-10, atol=1e-10)


def test_positions_that_a_caller_gives(tmp_path: Path) -> None:
    in_processes(2, _given_positions, tmp_path)


def test_two_processes_compute_what_one_does(tmp_path: Path) -> None:
    """Every kind of model, of texts that two does not divide, with padding and holes."""
    in_processes(2, _every_kind, tmp_path)


def _random_cases(dtype: torch.dtype, examples: int) -> None:
    @settings(max_examples=examples, derandomize=True, database=None)  # the same cases in every process
    @given(
        kind=st.sampled_from(KINDS), cls=st.sampled_from(CLASSES), pooling=st.sampled_from(POOLINGS), seed=seeds,
        text=texts(lengths=st.integers(1, 32)),
    )  # fmt: skip
    def check(kind: str, cls: type, pooling: str, seed: int, text: Any) -> None:
        mask = text.valid.long()
        if not bool(mask.any()):
            mask[0, 0] = 1
        _check(Case(kind, cls, tuple(map(tuple, mask.tolist())), pooling, seed, dtype))

    check()


@pytest.mark.nightly
@pytest.mark.parametrize("processes", [2, 3, 4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_any_number_of_processes_computes_what_one_does(processes: int, dtype: torch.dtype, tmp_path: Path) -> None:
    in_processes(processes, _random_cases, tmp_path, dtype, 84)


def _long_model(longest: int, **options: Any) -> LinformerModel:
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
    options = {"projection": "mean", "projected_length": 8, "short_convolution": 0, **sizes, **options}
    return LinformerModel(LinformerConfig(vocab_size=40, max_position_embeddings=longest, **options)).eval()


def _bytes_sent(window: int | None, *, training: bool) -> list[list[tuple[str, int]]]:
    found = []
    for length in (64, 128, 512):
        model = sequence_parallel(_long_model(length, attention_window=window and length // 8, projection="max"))
        model.set_attn_implementation("sdpa")
        ids = torch.randint(5, 40, (1, length - 3))
        with torch.set_grad_enabled(training), Traffic() as traffic:
            total = model(ids).last_hidden_state.sum()
            if training:
                total.backward()
        found.append(traffic.messages)
    return found


def _constant_traffic() -> None:
    memory = 2 * 8 * 8 * 4  # keys and values, slots, features, bytes
    pooled = ("all_reduce", 8 * 4)
    assert _bytes_sent(None, training=False) == [[("all_reduce", memory)] * 2 + [pooled]] * 3
    backward = _bytes_sent(None, training=True)
    assert backward == [[("all_reduce", memory)] * 2 + [pooled] + [("all_reduce", memory)] * 2] * 3


def test_what_a_layer_sends_does_not_grow_with_the_text(tmp_path: Path) -> None:
    """One message of keys and values of k slots a layer, and as much backwards."""
    in_processes(2, _constant_traffic, tmp_path)


def _windows_send_one_block() -> None:
    for length in (64, 512):
        model = sequence_parallel(_long_model(length, attention_window=8, projected_length=length // 8))
        ids = torch.randint(5, 40, (1, length))
        with torch.no_grad(), Traffic() as traffic:
            model(ids)
        memory, block = 2 * (length // 8) * 8 * 4, 8 * 8 * 4
        of_layer = [("all_to_all_single", block), ("all_reduce", memory)]
        assert traffic.messages == [*of_layer * 2, ("all_reduce", 8 * 4)]


def test_a_window_sends_one_block_to_either_side(tmp_path: Path) -> None:
    in_processes(2, _windows_send_one_block, tmp_path)


def _refusals() -> list[str]:
    said = []
    rank = torch.distributed.get_rank()

    def refused(kind: type[Exception], call: Any) -> None:
        with pytest.raises(kind) as caught:
            call()
        said.append(str(caught.value))

    refused(ConfigurationError, lambda: sequence_parallel(_long_model(64, projected_length=1)))
    refused(ConfigurationError, lambda: sequence_parallel(_long_model(64, attention_window=32)))
    other: Any = torch.nn.Linear(2, 2)
    refused(ConfigurationError, lambda: sequence_parallel(other))
    for other in ({"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}}, {"num_key_value_heads": 1}):
        refused(ConfigurationError, lambda other=other: sequence_parallel(_long_model(64, **other)))
    refused(ConfigurationError, lambda: sequence_parallel(LinformerForQuestionAnswering(_long_model(64).config)))
    refused(ConfigurationError, lambda: gather_tokens(_long_model(64), torch.zeros(1, 1)))
    model = sequence_parallel(_long_model(64))
    refused(ConfigurationError, lambda: sequence_parallel(model))
    refused(InputError, lambda: model(torch.full((1, 64), 5 + rank)))
    refused(InputError, lambda: model(torch.full((1, 40 + rank), 5)))
    refused(InputError, lambda: model(torch.full((1, 64), 5), output_attentions=True))
    refused(InputError, lambda: model(torch.full((1, 64), 5), labels=torch.zeros(1, dtype=torch.long)))
    refused(InputError, lambda: model(torch.full((1, 65), 5)))
    packed = torch.cat([torch.arange(30), torch.arange(34)])[None]  # the second text begins within a part
    refused(InputError, lambda: model(torch.full((1, 64), 5), position_ids=packed))
    refused(InputError, lambda: model(torch.full((1, 64), 5), position_ids=torch.arange(63)))
    refused(InputError, lambda: model(torch.full((1, 64), 5), token_type_ids=torch.zeros(1, 70, dtype=torch.long)))
    refused(InputError, model)
    reading = torch.zeros(1, 64, dtype=torch.bool)
    refused(InputError, lambda: model(torch.full((1, 64), 5), query_expansion_positions=reading))
    return said


def test_what_cannot_be_is_said_in_every_process(tmp_path: Path) -> None:
    first, second = in_processes(2, _refusals, tmp_path)
    fragments = [
        "2 processes is larger than the 1 blocks of 64 tokens", "attention_window=32 reaches across", "Linear cannot",
        "for its rope_parameters", "for its num_key_value_heads", "LinformerForQuestionAnswering cannot",
        "sequence_parallel(model) first",
        "already", "rank 1 has not what rank 0 has", "rank 1 has not what rank 0 has", "output_attentions",
        "train in one process",
        "at most max_position_embeddings=64", "position_ids begin anew within a row",
        "position_ids has shape (63,), and the texts have 64", "token_type_ids has shape (1, 70), and the",
        "either input_ids or inputs_embeds", "query_expansion_positions",
    ]  # fmt: skip
    for said in (first, second):
        for fragment, message in zip(fragments, said, strict=True):
            assert fragment in message


def test_a_group_must_be_there() -> None:
    with pytest.raises(ConfigurationError, match="torchrun"):
        sequence_parallel(_long_model(64))


def _compiled(kind: str) -> None:
    case = Case(kind, LinformerModel, _padded(29, 32, 9), dtype=torch.float32)
    given, found = case.given(), {}
    eager, compiled = (sequence_parallel(case.model().eval()) for _ in range(2))
    for name, model, run in [
        ("eager", eager, eager), ("compiled", compiled, torch.compile(compiled, backend="aot_eager"))
    ]:  # fmt: skip
        states = run(**given).last_hidden_state
        (states * states.detach().cos()).sum().backward()
        found[name] = [states, *(torch.zeros_like(x) if x.grad is None else x.grad for x in model.parameters())]
    assert sum(bool(x.any()) for x in found["eager"]) > 10
    for one, other in zip(found["eager"], found["compiled"], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["mean-window", "linear", "max"])
def test_a_part_is_compiled(kind: str, tmp_path: Path) -> None:
    """torch.compile of a model whose texts are shared out: forward and gradients, collectives in the graph."""
    in_processes(2, _compiled, tmp_path, kind)
