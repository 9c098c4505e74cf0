"""Embeddings are those of the plain model, however texts are batched, cut or chunked, and of files those in memory."""

import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
import pytest
import torch
from json_lines import read_lines, write_lines
from sentence_transformers import SentenceTransformer
from tiny_models import make_sentence_transformer, save_bert
from tokenizers.normalizers import BertNormalizer
from transformers import AutoModel

import longform
from longform.errors import CheckpointError, ConfigurationError, DataError
from longform_text.cli.main import main
from longform_text.data.given import InMemory
from longform_text.data.records import clean_text
from longform_text.data.text import Document, read_documents
from longform_text.inference.classifiers import Classifier
from longform_text.inference.encoders import Encoder
from longform_text.inference.strategies import chunks
from tolerances import TOLERANCES

MODES = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens"}  # as sentence-transformers' folders say
TEXTS = ["the near text", "", "a " * 11, "x", "good bad long short", "of " * 25, "far"]
LONG = "the long text is far and near for it in a " * 5  # 57 tokens: over 32, under 64


@pytest.fixture
def copy(bert_folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(bert_folder, tmp_path / "copy")


def assert_near(actual: np.ndarray, expected: np.ndarray) -> None:
    tolerance = TOLERANCES["model"][torch.float32]
    np.testing.assert_allclose(actual, expected, atol=tolerance.atol, rtol=tolerance.rtol)


def plain_states(folder: Path, tokenizer: Any, ids: list[int]) -> np.ndarray:
    """Hidden states of one text alone, by transformers' own class."""
    model = AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        return model(torch.tensor([ids])).last_hidden_state[0].numpy()


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("model", ["bert_folder", "longform_folder"])
def test_embeddings_are_the_models_own(
    model: str, pooling: str, tiny_tokenizer: Any, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(model)
    vectors = Encoder.from_pretrained(folder, pooling=pooling).encode(TEXTS, max_tokens_per_batch=70)
    assert vectors.dtype == np.float32
    pool = {"mean": lambda x: x.mean(0), "cls": lambda x: x[0], "max": lambda x: x.max(0)}[pooling]
    expected = [pool(plain_states(folder, tiny_tokenizer, tiny_tokenizer(text)["input_ids"])) for text in TEXTS]
    assert_near(vectors, np.stack(expected))


def test_bfloat16_is_near_float32(bert_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longform_text.inference.loading.native_bfloat16", lambda device: True)  # emulated
    half = Encoder.from_pretrained(bert_folder, dtype="bfloat16").encode(TEXTS)
    assert half.dtype == np.float32
    whole = Encoder.from_pretrained(bert_folder).encode(TEXTS)
    cosines = (half * whole).sum(axis=1) / np.linalg.norm(half, axis=1) / np.linalg.norm(whole, axis=1)
    assert cosines.min() > 0.999


def test_cut_takes_the_models_limit(bert_folder: Path, tiny_tokenizer: Any) -> None:
    encoder = Encoder.from_pretrained(bert_folder)
    assert encoder.limit == 32
    (outcome,) = encoder.outcomes([LONG], strategy="cut")
    total = len(tiny_tokenizer(LONG)["input_ids"])
    assert (outcome.tokens, outcome.truncated) == (32, total - 32)
    ids = tiny_tokenizer(LONG, truncation=True, max_length=32)["input_ids"]
    assert_near(outcome.values, plain_states(bert_folder, tiny_tokenizer, ids).mean(0))


def test_whole_takes_a_longforms_limit(longform_folder: Path, tiny_tokenizer: Any) -> None:
    encoder = Encoder.from_pretrained(longform_folder)
    assert encoder.limit == 64
    (outcome,) = encoder.outcomes([LONG], strategy="whole")
    ids = tiny_tokenizer(LONG)["input_ids"]
    assert (outcome.tokens, outcome.truncated) == (len(ids), 0)
    assert_near(outcome.values, plain_states(longform_folder, tiny_tokenizer, ids).mean(0))


@pytest.mark.parametrize("overlap", [0, 7])
def test_chunk_average_weights_windows_by_their_tokens(bert_folder: Path, tiny_tokenizer: Any, overlap: int) -> None:
    encoder = Encoder.from_pretrained(bert_folder)
    vectors = encoder.encode([*TEXTS, LONG], strategy="chunk-average", overlap=overlap, max_tokens_per_batch=70)
    content = tiny_tokenizer(LONG, add_special_tokens=False)["input_ids"]
    pieces, start = [], 0
    while True:
        pieces.append(content[start : start + 30])
        if start + 30 >= len(content):
            break
        start += 30 - overlap
    cls, sep = tiny_tokenizer.cls_token_id, tiny_tokenizer.sep_token_id
    means = [plain_states(bert_folder, tiny_tokenizer, [cls, *piece, sep]).mean(0) for piece in pieces]
    assert_near(vectors[-1], np.average(means, axis=0, weights=[len(piece) for piece in pieces]))
    assert_near(vectors[:-1], encoder.encode(TEXTS))


def test_chunks_of_windows_go_on_across_windows_of_texts(bert_folder: Path) -> None:
    encoder = Encoder.from_pretrained(bert_folder)
    texts = [*TEXTS, LONG] * 3
    outcomes = list(encoder.outcomes(texts, strategy="chunk-average", window=5))
    assert [outcome.index for outcome in outcomes] == list(range(24))
    assert_near(outcomes[-1].values, outcomes[7].values)


def test_chunks_cover_everything() -> None:
    assert chunks([], size=3, overlap=0) == [[]]
    assert chunks([1, 2, 3], size=3, overlap=1) == [[1, 2, 3]]
    assert chunks([1, 2, 3, 4], size=3, overlap=1) == [[1, 2, 3], [3, 4]]
    assert chunks([1, 2, 3, 4, 5], size=3, overlap=1) == [[1, 2, 3], [3, 4, 5]]
    assert chunks([1, 2, 3, 4, 5], size=2, overlap=0) == [[1, 2], [3, 4], [5]]


def test_sentence_transformers_folder_gives_pooling_and_normalisation(
    sentence_transformer_folder: Path, tiny_tokenizer: Any
) -> None:
    encoder = Encoder.from_pretrained(sentence_transformer_folder)
    assert (encoder.pooling, encoder.normalise) == ("cls", True)
    (vector,) = encoder.encode(["the near text"])
    first = plain_states(sentence_transformer_folder, tiny_tokenizer, tiny_tokenizer("the near text")["input_ids"])[0]
    assert_near(vector, first / np.linalg.norm(first))
    assert not Encoder.from_pretrained(sentence_transformer_folder, normalise=False).normalise


PROMPTS = {"prompts": {"query": "good: ", "passage": "bad "}}
FOLDERS: dict[str, dict[str, Any]] = {
    "default prompt": {"config_sentence_transformers": {**PROMPTS, "default_prompt_name": "passage"}},
    "no default prompt": {"config_sentence_transformers": PROMPTS},
    "prompt of a name that any folder has": {"config_sentence_transformers": {"default_prompt_name": "document"}},
    "lower case": {"sentence_bert_config": {"do_lower_case": True, "max_seq_length": None}},
    "shorter": {"sentence_bert_config": {"max_seq_length": 9}},
    "shorter, in an older folder": {"sentence_distilbert_config": {"max_seq_length": 9}},
    "longer than the tokenizer": {"sentence_bert_config": {"max_seq_length": 30}},
    "all": {
        "config_sentence_transformers": {"prompts": {"passage": "BAD "}, "default_prompt_name": "passage"},
        "sentence_bert_config": {"do_lower_case": True, "max_seq_length": 12},
    },
}


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("files", FOLDERS.values(), ids=FOLDERS)
def test_vectors_are_those_of_sentence_transformers(
    files: dict[str, Any], pooling: str, tiny_tokenizer: Any, tmp_path: Path
) -> None:
    tokenizer = deepcopy(tiny_tokenizer)
    tokenizer.backend_tokenizer.normalizer = BertNormalizer(lowercase=False)
    tokenizer.model_max_length = 24
    modes = {"pooling_mode_mean_tokens": False, f"pooling_mode_{MODES[pooling]}": True, "word_embedding_dimension": 24}
    folder = make_sentence_transformer(save_bert(tmp_path, tokenizer), pooling=modes, normalise=True, **files)
    texts = ["The NEAR text", "", "x", "good bad " * 4, LONG, "GOOD: Bad"]
    expected = SentenceTransformer(str(folder), device="cpu").encode(texts)
    found = Encoder.from_pretrained(folder).encode(texts)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)  # of length 1, two layers in float32
    documents = [Document(str(number), text, {}) for number, text in enumerate(texts)]
    assert_near(Encoder.from_pretrained(folder).encode(documents), expected)


def test_a_chosen_length_may_be_more_than_the_folders(tiny_tokenizer: Any, tmp_path: Path) -> None:
    files = {"sentence_bert_config": {"max_seq_length": 9}}
    folder = make_sentence_transformer(save_bert(tmp_path, tiny_tokenizer), pooling={}, normalise=False, **files)
    assert [Encoder.from_pretrained(folder, max_length=length).limit for length in (None, 5, 32)] == [9, 5, 32]


def test_the_first_state_and_the_mean_make_a_vector_twice_as_wide(bert_folder: Path) -> None:
    texts = ["the near text", "far"]
    found, first = (Encoder.from_pretrained(bert_folder, pooling=kind).encode(texts) for kind in ("cls_lead", "cls"))
    assert_near(found[:, : first.shape[1]], first)
    assert_near(found[:, first.shape[1] :], Encoder.from_pretrained(bert_folder, pooling="lead").encode(texts))


def test_one_text_gives_one_vector(bert_folder: Path, classifier_folder: Path) -> None:
    encoder, classifier = Encoder.from_pretrained(bert_folder), Classifier.from_pretrained(classifier_folder)
    several = encoder.encode(["the near text", "far"])
    assert several.shape == (2, encoder.features)
    for one in ("the near text", Document("a", "the near text", {})):
        assert encoder.encode(one).shape == (encoder.features,)
        assert_near(encoder.encode(one), several[0])
        assert_near(next(encoder.outcomes(one)).values, several[0])
    assert classifier.logits("the near text").shape == (3,)
    assert encoder.collect("far").values.shape == (1, encoder.features)


def test_texts_of_odd_characters_and_pairs(bert_folder: Path) -> None:
    encoder = Encoder.from_pretrained(bert_folder)
    assert_near(encoder.encode(["ne\udc00ar \x00"]), encoder.encode(["ne\ufffdar  "]))  # as it is read from files
    assert encoder.encode([("near", "far"), ["far", "near"]]).shape == (2, encoder.features)


@pytest.mark.parametrize(
    "content", ["[{", "3", '{"a": 1}', "[3]", "[{}]", '[{"type": "x.Transformer"}]', '[{"type": 3, "path": ""}]']
)
def test_a_broken_list_of_modules_is_refused(copy: Path, content: str) -> None:
    make_sentence_transformer(copy, pooling={"pooling_mode_cls_token": True}, normalise=False)
    (copy / "modules.json").write_text(content)
    with pytest.raises(CheckpointError, match=f'"{copy}|modules.json'):
        Encoder.from_pretrained(copy)


@pytest.mark.parametrize("content", ["[{", "[3]"])
def test_broken_settings_of_the_pooling_are_refused(copy: Path, content: str) -> None:
    make_sentence_transformer(copy, pooling={}, normalise=False)
    settings = copy / "1_Pooling" / "config.json"
    settings.write_text(content)
    with pytest.raises(CheckpointError, match=f'"{settings}" is damaged'):
        Encoder.from_pretrained(copy)


def test_options_that_make_no_sense(bert_folder: Path) -> None:
    with pytest.raises(ConfigurationError, match='pooling is "sum"'):
        Encoder.from_pretrained(bert_folder, pooling="sum")
    with pytest.raises(ConfigurationError, match="takes 32 tokens"):
        Encoder.from_pretrained(bert_folder, max_length=33)
    with pytest.raises(ConfigurationError, match='dtype is "int4"'):
        Encoder.from_pretrained(bert_folder, dtype="int4")
    with pytest.raises(ConfigurationError, match='dtype is "int8"; it is "float32", "bfloat16" or "auto"'):
        Encoder.from_pretrained(bert_folder, dtype="int8")
    encoder = Encoder.from_pretrained(bert_folder)
    with pytest.raises(ConfigurationError, match="overlap is 30; with 32 tokens a chunk it is from 0 to 29"):
        encoder.encode(["a"], strategy="chunk-average", overlap=30)
    with pytest.raises(ConfigurationError, match='strategy is "guess"'):
        encoder.encode(["a"], strategy="guess")
    with pytest.raises(DataError, match="pairs"):
        encoder.encode([("a", "b")], strategy="chunk-average")


def test_a_maximum_does_not_hide_what_is_not_finite(bert_folder: Path) -> None:
    encoder = Encoder.from_pretrained(bert_folder, pooling="max")
    with torch.no_grad():
        encoder.model.embeddings.word_embeddings.weight.fill_(torch.nan)
    assert np.isnan(encoder.encode(["a text"])).all()


IN_MEMORY = ["the near text", " ", "a " * 90, "x", "good bad long short"]
TABLE = pandas.DataFrame({"body": IN_MEMORY, "key": list("abcde")})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "a.jsonl", TABLE.to_dict("records"))


def counts(report: str) -> list[str]:
    """Lines of a report without those that differ: where the output is, and times."""
    return [line for line in report.splitlines() if not line.startswith(("output", "seconds", "tokens per"))]


def test_vectors_are_those_that_the_command_writes(
    longform_folder: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.jsonl"
    options = ["--text-field", "body", "--id-field", "key"]
    assert main(["embed", str(longform_folder), str(source), "--output", str(output), *options]) == 0
    printed, records = capsys.readouterr().out, read_lines(output)
    written = np.array([record["embedding"] for record in records], dtype=np.float32)
    np.testing.assert_array_equal(
        longform.Encoder.from_pretrained(longform_folder).encode(TABLE, text_field="body"), written
    )
    for given in (TABLE, datasets.Dataset.from_pandas(TABLE), source):
        result = longform.embed(longform_folder, given, text_field="body", id_field="key", progress=False)
        np.testing.assert_array_equal(result.vectors, written)
        assert [each["id"] for each in result.results or []] == [record["id"] for record in records]
        assert set(counts(result.report)) <= set(printed.splitlines())
        assert (result.documents, result.empty, result.truncated) == (5, 1, 1)


@pytest.mark.parametrize("made", [list, iter, tuple, pandas.Series])
def test_plain_texts_have_their_places_as_ids(longform_folder: Path, tmp_path: Path, made: Any) -> None:
    kept = longform.embed(longform_folder, made(IN_MEMORY), progress=False)
    result = longform.embed(longform_folder, made(IN_MEMORY), tmp_path / "out.jsonl", progress=False)
    records = read_lines(tmp_path / "out.jsonl")
    assert [record["id"] for record in records] == [f"texts:{place}" for place in range(5)]
    np.testing.assert_array_equal(np.array([each["embedding"] for each in records], dtype=np.float32), kept.vectors)
    assert (result.results, result.output) == (None, str(tmp_path / "out.jsonl"))
    with pytest.raises(ConfigurationError, match=r'the results are in ".*out\.jsonl"'):
        _ = result.vectors


def test_chunks_in_memory(longform_folder: Path) -> None:
    result = longform.embed(longform_folder, IN_MEMORY, chunk_tokens=30, progress=False)
    assert [(each["id"], each["chunk"]) for each in result.results or []][2:6] == [
        ("texts:2", 0),
        ("texts:2", 1),
        ("texts:2", 2),
        ("texts:3", 0),
    ]
    assert result.vectors.shape == (7, 24)


def test_predictions_in_memory_are_those_of_a_file(classifier_folder: Path, source: Path, tmp_path: Path) -> None:
    settings = longform.InferenceSettings(progress=False, text_field="body")
    longform.predict(classifier_folder, source, tmp_path / "out.jsonl", settings, id_field="key")
    result = longform.predict(classifier_folder, TABLE, settings=settings, id_field="key")
    assert result.results == read_lines(tmp_path / "out.jsonl")
    assert result.output is None
    with pytest.raises(ConfigurationError, match="labels were predicted"):
        _ = result.vectors


def test_an_interrupted_run_over_texts_in_memory_goes_on(longform_folder: Path, tmp_path: Path) -> None:
    output, texts = tmp_path / "out.jsonl", IN_MEMORY * 120
    with pytest.raises(DataError, match=r"text number 600 is int"):
        longform.embed(longform_folder, [*texts, 3], output, progress=False)
    done = len(read_lines(tmp_path / "out.jsonl.partial"))
    assert 0 < done < 600
    with pytest.raises(DataError, match=r"number 1 is another one \(texts:0\)"):
        longform.embed(longform_folder, ["other", *texts], output, progress=False)
    assert longform.embed(longform_folder, texts, output, progress=False).resumed == done


@pytest.fixture
def cleaned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were cleaned so far."""
    found: list[str] = []

    def counting(given: str) -> tuple[str, int]:
        found.append(given)
        return clean_text(given)

    for module in ("data.text", "data.records", "inference.encoders", "inference.chunks"):
        monkeypatch.setattr(f"longform_text.{module}.clean_text", counting)
    return found


@pytest.mark.parametrize("prompt", [None, "good: "])
def test_each_text_is_cleaned_once(prompt: str | None, bert_folder: Path, cleaned: list[str]) -> None:
    """Whatever holds it and whatever comes of it."""
    encoder = Encoder.from_pretrained(bert_folder, prompt=prompt)
    texts = [f"near {number}\x00" for number in range(4)]
    documents = [Document(each, each, {"title": "a"}) for each in texts]
    rows = [{"body": each, "title": "a"} for each in texts]
    pairs = [(each, f"far {number}") for number, each in enumerate(texts)]
    for run, more in (
        (lambda: encoder.encode(texts), []),
        (lambda: encoder.encode(texts, strategy="chunk-average"), []),
        (lambda: encoder.encode(iter(documents), batch_size=2), []),
        (lambda: encoder.encode(rows, text_field="body"), []),
        (lambda: [encoder.encode(each) for each in texts], []),
        (lambda: encoder.encode_query(texts), []),
        (lambda: encoder.encode(pairs), [second for _, second in pairs]),
        (lambda: list(encoder.outcomes(texts)), []),
        (lambda: list(encoder.encode_chunks(texts)), []),
        (lambda: list(encoder.encode_chunks(rows, text_field="body", title_field="title")), ["a"] * 4),
        (lambda: encoder.encode_chunks(texts[0], boundaries=[(0, 3)]), []),
        (lambda: list(encoder.run(read_documents(InMemory(texts)))), []),
    ):
        cleaned.clear()
        run()
        found = [each for each in cleaned if each != encoder.prompt]
        assert sorted(found) == sorted([*(texts if len(found) > 1 else texts[:1]), *more])


def test_a_prompt_is_cleaned_too(bert_folder: Path) -> None:
    plain, odd = (Encoder.from_pretrained(bert_folder, prompt=prompt) for prompt in ("good : ", "good\x00: "))
    assert_near(odd.encode(TEXTS), plain.encode(TEXTS))
    assert_near(*(each.encode_chunks(LONG, chunk_tokens=9).vectors for each in (odd, plain)))
