"""Models to train that cannot be opened, and the teacher they learn from."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertModel

from longform.errors import CheckpointError, ConfigurationError
from longform.pretrained.tokenizers import SpecialTokens, special_tokens
from longform_text.data.batching import padded
from longform_text.training.distillation.run import distill
from longform_text.training.distillation.teacher import Teacher, layer_states
from longform_text.training.finetuning.run import finetune
from longform_text.training.labels import Examples
from longform_text.training.students import load_encoder

EXAMPLES = Examples(["a good text", "a bad text"] * 8, ["good", "bad"] * 8)


@pytest.mark.parametrize("name", ["/no/such/model", "./none", "../../a/none", "no-such-model", "nobody/no-such-model"])
def test_models_that_are_not_there(name: str, student_folder: Path, teacher: BertModel, texts: list[str]) -> None:
    with pytest.raises(CheckpointError, match=f'"{name}" cannot be loaded: .*there is no such folder'):
        finetune(name, EXAMPLES, progress=False)
    with pytest.raises(CheckpointError, match=f'"{name}" cannot be loaded: .*there is no such folder'):
        distill(student_folder, name, texts, progress=False)
    with pytest.raises(ConfigurationError, match=f'the student "{name}" is not a folder'):
        distill(name, teacher, texts, progress=False)


def test_what_is_no_student(teacher: BertModel, texts: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="needs its tokenizer"):
        distill(teacher, teacher, texts, progress=False)
    student: Any = 3
    with pytest.raises(ConfigurationError, match="not int"):
        distill(student, teacher, texts, progress=False)
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        distill(tmp_path, teacher, texts, progress=False)


def test_an_encoder_under_the_name_of_its_language_model(teacher: BertModel, tmp_path: Path) -> None:
    """As sentence-transformers saves it; without its modules.json it is a language model that lacks its head."""
    teacher.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["BertForMaskedLM"]}))
    with pytest.raises(CheckpointError, match="lacks the weights cls"):
        load_encoder(tmp_path)
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    found = load_encoder(tmp_path)
    assert type(found) is BertModel
    assert torch.equal(found.get_input_embeddings().weight, teacher.get_input_embeddings().weight)
    (tmp_path / "sentence_bert_config.json").write_text('{"transformer_task": "fill-mask"}')
    with pytest.raises(CheckpointError, match="lacks the weights cls"):
        load_encoder(tmp_path)


FRAME = SpecialTokens((2,), (3,))


def _teacher(model: Any, *, limit: int, stride: int | None = None) -> Teacher:
    teacher = Teacher(model, FRAME, limit=limit, pad_id=0)
    teacher.stride = stride or teacher.stride
    return teacher


class Crops(NamedTuple):
    """Crops side by side, the mask None without padding."""

    input_ids: torch.Tensor
    attention_mask: torch.Tensor | None
    lengths: list[int]


def stack(crops: list[list[int]]) -> Crops:
    ids, mask = padded(crops)
    return Crops(ids, None if mask.all() else mask, [*map(len, crops)])


def _crop(length: int) -> list[int]:
    return [2, *torch.randint(5, 60, (length - 2,)).tolist(), 3]


def test_special_tokens_are_found(tiny_tokenizer: Any) -> None:
    assert special_tokens(tiny_tokenizer) == FRAME


@given(tokens=st.integers(1, 200), limit=st.integers(3, 24), share=st.floats(0.05, 1.0))
def test_every_token_belongs_to_the_window_where_it_is_farthest_from_a_cut(
    tokens: int, limit: int, share: float
) -> None:
    size = limit - FRAME.total
    teacher = _teacher(torch.nn.Identity(), limit=limit, stride=max(1, int(share * size)))
    starts, borders = teacher.cut(tokens)
    assert borders[0] == 0
    assert borders[-1] == tokens
    assert all(one <= other for one, other in pairwise(borders))

    def margin(place: int, number: int) -> float:
        start = starts[number]
        if not start <= place < start + size:
            return -1.0
        left = float("inf") if number == 0 else place - start
        right = float("inf") if number == len(starts) - 1 else start + size - 1 - place
        return min(left, right)

    for number, (begin, end) in enumerate(pairwise(borders)):
        for place in range(begin, end):
            assert margin(place, number) == max(margin(place, other) for other in range(len(starts))) >= 0


def test_a_text_that_fits_is_read_as_it_is(teacher: BertModel) -> None:
    crops = stack([_crop(17), _crop(11)])
    expected = teacher(crops.input_ids, crops.attention_mask, output_hidden_states=True).hidden_states[1:]
    found = _teacher(teacher, limit=17).read(crops.input_ids, crops.attention_mask, crops.lengths)
    for state, other in zip(found, expected, strict=True):
        torch.testing.assert_close(state, other)


def test_a_long_text_is_stitched_from_its_windows(teacher: BertModel) -> None:
    long, short = _crop(41), _crop(13)
    crops = stack([long, short])
    reader = _teacher(teacher, limit=16, stride=9)
    found = reader.read(crops.input_ids, crops.attention_mask, crops.lengths)
    content = long[1:-1]
    starts, borders = reader.cut(len(content))
    assert starts == [0, 9, 18, 25]

    with torch.no_grad():
        for layer in range(2):
            pieces = []
            for number, start in enumerate(starts):
                window = torch.tensor([[2, *content[start : start + 14], 3]])
                state = layer_states(teacher, window, None)[layer][0]
                own = state[1 + borders[number] - start : 1 + borders[number + 1] - start]
                first, last = number == 0, number == len(starts) - 1
                pieces += [*([state[:1]] if first else []), own, *([state[-1:]] if last else [])]
            torch.testing.assert_close(found[layer][0], torch.cat(pieces))


def test_windows_are_read_some_at_a_time(teacher: BertModel, monkeypatch: pytest.MonkeyPatch) -> None:
    crops = stack([_crop(61)])
    reader = _teacher(teacher, limit=16)
    whole = reader.read(crops.input_ids, crops.attention_mask, crops.lengths)
    monkeypatch.setattr("longform_text.training.distillation.teacher.PARALLEL_TOKENS", 32)
    parts = reader.read(crops.input_ids, crops.attention_mask, crops.lengths)
    torch.testing.assert_close(parts, whole)


def test_windows_that_cannot_be(teacher: BertModel) -> None:
    with pytest.raises(ConfigurationError, match="teacher_length=2"):
        _teacher(teacher, limit=2)
