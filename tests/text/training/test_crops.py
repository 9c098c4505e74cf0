from itertools import islice
from typing import Any

import pytest

from longform.errors import ConfigurationError, DataError
from longform_text.training.distillation.crops import CropDataset, DataCollatorForCrops, at_most_a_fifth
from longform_text.training.distillation.settings import DistillationSettings

SETTINGS = DistillationSettings(length=48, min_length=12, tokens_per_step=150, seed=5)


def _source(texts: Any, tokenizer: Any, settings: DistillationSettings = SETTINGS, heldout: int = 5) -> CropDataset:
    return CropDataset(texts, tokenizer, settings, heldout=heldout)


def _ids(source: CropDataset, count: int) -> list[list[list[int]]]:
    return list(islice(source, count))


def test_steps_are_the_same_each_time(texts: list[str], tiny_tokenizer: Any) -> None:
    source = _source(texts, tiny_tokenizer)
    assert _ids(source, 12) == _ids(source, 12) == _ids(_source(texts, tiny_tokenizer), 12)


def test_rows_of_a_data_set_are_their_texts(texts: list[str], tiny_tokenizer: Any) -> None:
    rows = [{"text": text, "label": 3} for text in texts]
    found, expected = (_ids(_source(given, tiny_tokenizer), 4) for given in (rows, texts))
    assert found == expected
    with pytest.raises(DataError, match=r"the fields there are: content \(str\)"):
        next(iter(_source([{"content": text} for text in texts], tiny_tokenizer)))


def test_lengths_are_mixed_and_steps_are_full(texts: list[str], tiny_tokenizer: Any) -> None:
    lengths, collator = set(), DataCollatorForCrops(tiny_tokenizer)
    for crops in _ids(_source(texts, tiny_tokenizer), 30):
        assert 150 - 12 < sum(map(len, crops)) <= 150
        lengths |= set(map(len, crops))
        batch = collator([crops])
        assert batch["attention_mask"].sum(1).tolist() == [*map(len, crops)]
        for row, crop in zip(batch["input_ids"].tolist(), crops, strict=True):
            assert (crop[0], crop[-1]) == (2, 3)
            assert row == crop + [0] * (len(row) - len(crop))
    assert {12, 24, 48} <= lengths
    assert max(lengths) == 48


def test_held_out_documents_are_not_trained_on(tiny_tokenizer: Any) -> None:
    texts = [f"{letter} " * 20 for letter in "bcdfghjklmnpqrstvwxyz"]
    source = _source(texts, tiny_tokenizer)
    kept = {crop[1] for crop in source.heldout_crops()}
    seen = {row[1] for rows in _ids(source, 40) for row in rows}
    assert len(kept) == 5
    assert len(seen) == 16
    assert not kept & seen


def test_a_stream_is_read_in_its_order_and_again(tiny_tokenizer: Any) -> None:
    class Stream:
        times = 0

        def __iter__(self) -> Any:
            self.times += 1
            return iter([f"{letter} " * 20 for letter in "abcdefg"])

    stream = Stream()
    source = _source(stream, tiny_tokenizer)
    assert [crop[1] for crop in source.heldout_crops()] == tiny_tokenizer.convert_tokens_to_ids([*"abcde"])
    assert {row[1] for rows in _ids(source, 3) for row in rows} == set(tiny_tokenizer.convert_tokens_to_ids([*"fg"]))
    assert stream.times > 2


@pytest.mark.parametrize("nothing", [[], ["", " \n"], ["a b"] * 3])
def test_no_text_to_train_on(nothing: list[str], tiny_tokenizer: Any) -> None:
    with pytest.raises(DataError, match="no text to train on: beside 0 held-out"):
        next(iter(_source(nothing, tiny_tokenizer, heldout=0)))


def test_crops_without_room_for_text(tiny_tokenizer: Any) -> None:
    with pytest.raises(ConfigurationError, match="min_length=9 must be at least 10"):
        _source(["a"], tiny_tokenizer, DistillationSettings(length=48, min_length=9))


@pytest.mark.parametrize(("documents", "kept"), [(1, 1), (4, 1), (60, 12), (319, 63), (320, 64), (10_000, 64)])
def test_few_documents_keep_a_fifth_apart(documents, kept):
    read = []
    assert at_most_a_fifth(64, (read.append(place) or place for place in range(documents))) == kept
    assert len(read) <= 320
    assert at_most_a_fifth(0, range(documents)) == 0
