"""Passes as graphs, by a stand-in on a CPU; tests/longform/device has those of CUDA.

The stand-in runs a pass when it is recorded and writes what came of it anew when it is replayed, and it refuses what a
capture refuses: to be asked for a value, and to be sent one from the host.
"""

import warnings
from contextlib import contextmanager

import pytest
import torch
from kernel_tables import only
from model_kinds import KINDS, model, text
from torch import nn

import longform
from longform import LinformerForMaskedLM, LinformerForQuestionAnswering, LinformerForSequenceClassification
from longform.errors import ConfigurationError
from longform.functional import execution, masks
from longform.models import graphs
from tolerances import assert_close

ASKING = ("item", "tolist", "__bool__", "__int__", "__float__", "__index__", "cpu", "nonzero")


@contextmanager
def capturing():
    def refuse(*given, **options):
        raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.MonkeyPatch.context() as patch, only(attention="sdpa", window="formula"):
        for name in ASKING:
            patch.setattr(torch.Tensor, name, refuse)
        for name in ("tensor", "equal"):
            patch.setattr(torch, name, refuse)
        yield


@pytest.fixture
def recorded(monkeypatch):
    """Stands for CUDA's graphs; the list has a name a recording and one a replay."""
    said = []

    def record(run, pool):
        with only(attention="sdpa", window="formula"):
            run()  # as a warm-up does
        with capturing():
            result = run()
        said.append("record")

        def replay():
            said.append("replay")
            for name, x in run().items():
                for old, new in zip(parts(result[name]), parts(x), strict=True):
                    old.copy_(new)

        for x in result.values():
            for each in parts(x):
                each.fill_(torch.nan)
        return replay, result

    monkeypatch.setattr(graphs, "record", record)
    monkeypatch.setattr(graphs, "is_on_gpu", lambda x: True)
    monkeypatch.setattr(graphs, "new_pool", lambda: "pool")
    return said


def parts(output):
    return output if isinstance(output, tuple) else (output,)


def batch(lengths: list[int], tokens: int | None = None) -> dict[str, torch.Tensor]:
    given = text(len(lengths), tokens or max(lengths))
    width = given["input_ids"].shape[1]
    given["attention_mask"] = (torch.arange(width) < torch.tensor(lengths)[:, None]).long()
    return given


@torch.no_grad()
def same(made, plain, given) -> None:
    """``made`` gives what ``plain`` does, of the tokens that are text."""
    found, expected = made(**given), plain(**given)
    assert type(found) is type(expected)
    assert list(found.keys()) == list(expected.keys())
    for name, x in expected.items():
        assert found[name].shape == x.shape
        seen = given["attention_mask"].bool() if x.shape[:2] == given["input_ids"].shape else slice(None)
        assert_close(found[name][seen], x[seen], scope="model")


def pair(kind="mean-window-sinks", made_of=longform.LinformerModel, **options):
    """A captured model, and the same without graphs."""
    plain = model(kind, made_of)
    made = model(kind, made_of)
    made.load_state_dict(plain.state_dict())
    return longform.capture(made.eval(), **options), plain.eval()


@pytest.mark.parametrize("kind", KINDS)
def test_padding_to_a_graphs_shape_changes_nothing(kind, recorded):
    made, plain = pair(kind)
    for lengths in ([29, 20], [31, 17], [30, 19], [18, 25]):  # one graph, whose texts have 17 to 32 tokens
        same(made, plain, batch(lengths))
    assert recorded == ["record", *["replay"] * 4]
    for lengths in ([29, 3], [31, 1]):  # and one for all lengths
        same(made, plain, batch(lengths))
    assert recorded.count("record") == 2
    for _ in range(2):
        same(made, plain, batch([32, 32]))  # without a mask
    assert recorded.count("record") == 3


@pytest.mark.parametrize(
    "head", [LinformerForMaskedLM, LinformerForQuestionAnswering, LinformerForSequenceClassification]
)
def test_heads(head, recorded):
    made, plain = pair(made_of=head)
    for lengths in ([29, 20, 17], [31, 17, 18], [30, 19, 28], [28, 25, 20]):
        same(made, plain, batch(lengths))
    assert "replay" in recorded


def test_missing_texts_are_copies(recorded):
    made, plain = pair()
    for texts in (9, 10, 9):
        same(made, plain, batch([30] * texts))
    assert [kind.texts for kind in made.forward.graphs] == [10]


def test_all_hidden_states(recorded):
    made, plain = pair()
    made.config.output_hidden_states = plain.config.output_hidden_states = True
    given = batch([29, 20])
    with torch.no_grad():
        for _ in range(3):
            found, expected = made(**given), plain(**given)
    assert "replay" in recorded
    for one, other in zip(found.hidden_states, expected.hidden_states, strict=True):
        assert_close(one[given["attention_mask"].bool()], other[given["attention_mask"].bool()], scope="model")


def test_results_outlive_the_next_replay(recorded):
    made, _ = pair()
    one, other = batch([30, 20]), batch([30, 20])
    other["input_ids"] = other["input_ids"].flip(0) + 1
    with torch.inference_mode():
        made(**one)
        kept = made(**one).last_hidden_state
        before = kept.clone()
        made(**other)
    assert torch.equal(kept, before)
    assert not kept.is_inference()  # may be used anywhere


def test_the_least_used_graph_is_dropped(recorded):
    made, plain = pair(kept=2)

    shapes = (1, 16), (1, 32), (1, 16), (2, 16)  # texts, tokens; the second is the least used when the last comes
    for texts, tokens in shapes:
        for _ in range(2):
            same(made, plain, batch([tokens] * texts))
    assert [(kind.texts, kind.tokens) for kind in made.forward.graphs] == [(1, 16), (2, 16)]
    assert recorded.count("record") == 3


def test_ordinary_passes(recorded, monkeypatch):
    made, plain = pair()
    given = batch([30, 20])
    left = {"attention_mask": given["attention_mask"].flip(1)}
    empty = {"attention_mask": given["attention_mask"] * torch.tensor([[1], [0]])}
    for _ in range(3):
        same(made, plain, given | left)
        same(made, plain, given | empty)
        made(**given).last_hidden_state.sum().backward()  # with gradients
        with torch.no_grad():
            made(**given, output_attentions=True)
            made(given["input_ids"], given["attention_mask"])
            with torch.autocast("cpu", dtype=torch.bfloat16):
                made(**given)
            with longform.kernels.use(window="formula"):
                made(**given)
            torch.func.vmap(lambda ids: made(input_ids=ids[None]).last_hidden_state)(given["input_ids"])
    with monkeypatch.context() as patch:
        patch.setattr(graphs, "MOST_TOKENS", 59)
        for _ in range(3):
            same(made, plain, given)
    monkeypatch.setattr(graphs, "is_on_gpu", lambda x: x.is_cuda)
    for _ in range(3):
        same(made, plain, given)
    assert recorded == []


def test_a_hook_is_not_passed_by(recorded):
    made, plain = pair()
    for _ in range(2):
        same(made, plain, batch([30, 20]))
    called = []
    handle = made.encoder.layers[0].attention.register_forward_hook(lambda *given: called.append(given))
    same(made, plain, batch([30, 20]))
    handle.remove()
    assert len(called) == 1
    made.train()
    made(**batch([30, 20]))
    assert recorded == ["record", "replay", "replay"][: len(recorded)]


def test_other_weights_have_graphs_of_their_own(recorded):
    made, plain = pair()
    for _ in range(2):
        same(made, plain, batch([30, 20]))
    made.double(), plain.double()
    same(made, plain, batch([30, 20]))
    assert recorded.count("record") == 2


def test_adapters_that_are_not_merged(recorded):
    from peft import LoraConfig, inject_adapter_in_model

    made, plain = pair()
    for _ in range(2):
        same(made, plain, batch([30, 20]))
    inject_adapter_in_model(LoraConfig(target_modules=["query"]), made)
    for part in made.modules():
        if hasattr(part, "lora_B"):
            nn.init.ones_(part.lora_B["default"].weight)
    with torch.no_grad():
        changed = made.eval()(**batch([30, 20])).last_hidden_state
        assert not torch.allclose(changed, plain(**batch([30, 20])).last_hidden_state, atol=1e-3)
    assert recorded.count("record") == 1


@pytest.mark.parametrize("fault", ["raises", "another result"])
def test_a_capture_that_fails_is_said_once(fault, recorded, monkeypatch):
    def broken(run, pool):
        if fault == "raises":
            raise RuntimeError("operation not permitted\nand a long story")
        return (lambda: None), type(output := run())(**{name: 2 * x for name, x in output.items()})

    monkeypatch.setattr(graphs, "record", broken)
    made, plain = pair()
    same(made, plain, batch([30, 20]))
    with pytest.warns(UserWarning, match="^passes cannot be captured as CUDA graphs, ordinary ones serve: [^\n]*$"):
        same(made, plain, batch([30, 20]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            same(made, plain, batch([30, 20]))


def test_only_longforms(bert_folder):
    from transformers import AutoModel

    with pytest.raises(
        ConfigurationError, match=r"not BertModel: convert it first, or take torch.compile\(model, mode="
    ):
        longform.capture(AutoModel.from_pretrained(bert_folder))


def test_shapes_of_graphs():
    assert [graphs.padded_texts(n) for n in (1, 2, 5, 7, 8, 9, 11, 33)] == [1, 2, 5, 7, 8, 10, 12, 40]
    for limit in (100, 4096, 10_000):
        made = [graphs.padded_tokens(n, limit) for n in range(1, limit + 1)]
        assert made == sorted(made)
        assert all(n <= long <= min(max(n + 15, n * 9 // 8 + 1), limit) for n, long in enumerate(made, start=1))
        assert len(set(made)) < 80
        for long in set(made):
            assert graphs.shortest_tokens(long, limit) == made.index(long) + 1


def test_constants_are_sent_once():
    device = torch.device("cpu")
    assert execution.constant((1, 2), device) is execution.constant((1, 2), device)
    with torch.inference_mode():
        assert not execution.constant((1, 2, 3), device).is_inference()
    assert masks.unseen_lengths() is None
