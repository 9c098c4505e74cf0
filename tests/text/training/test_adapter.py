"""An adapter that a training wrote, added to a new conversion: the same encoder; shipped ones by their names."""

import json
import os
import pwd
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from json_lines import write_lines
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from tiny_models import make_sentence_transformer, save_bert

import longform
from longform.conversion import adapter, shipped
from longform.conversion.local import local_source
from longform.errors import ConfigurationError, ConversionError
from longform_text.cli.main import main
from longform_text.training.alignment.settings import AlignmentSettings
from longform_text.training.students import load_encoder

TEXTS = ["the far text is bad", "the", "good or bad in it " * 5]
WORDS = ("far", "good", "bad", "near")
PAIRS = [f"text {word}" for word in WORDS], [f"this is the long {word} text for it. It is {word}." for word in WORDS]
SETTINGS = AlignmentSettings(
    max_steps=3, documents_per_step=4, learning_rate=3e-2, heldout_documents=0, keep_texts=2, bf16=False,
    lora_rank=2,
)  # fmt: skip
OPTIONS: dict[str, Any] = {"max_length": 48, "attention_window": 4, "memory_budget": None}


@pytest.fixture(scope="module")
def source(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_bert(tmp_path_factory.mktemp("source"), tiny_tokenizer)
    return make_sentence_transformer(folder, pooling={"pooling_mode_mean_tokens": True}, normalise=True)


@pytest.fixture(scope="module")
def aligned(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("aligned") / "out"
    converted = longform.convert(source, idf=TEXTS, **OPTIONS)
    longform.align(converted, PAIRS, SETTINGS, output=folder, progress=False)
    return folder


def test_a_new_conversion_with_the_adapter_is_the_trained_encoder(source: Path, aligned: Path, tmp_path: Path) -> None:
    result = longform.convert(source, adapter=aligned / "adapter")
    added = longform.Encoder.from_pretrained(result.save_pretrained(tmp_path / "out"))
    trained = longform.Encoder.from_pretrained(aligned)
    np.testing.assert_allclose(added.encode(TEXTS), trained.encode(TEXTS), rtol=0, atol=1e-6)
    assert (added.limit, added.model.config.attention_window) == (48, 4)
    before = longform.Encoder.from_pretrained(
        longform.convert(source, idf=TEXTS, **OPTIONS).save_pretrained(tmp_path / "before")
    )
    assert np.abs(added.encode(TEXTS) - before.encode(TEXTS)).max() > 0.01
    assert any("adapter" in note for note in result.report.notes)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "The adapter `adapter`, which was trained for long texts, is part of the weights." in card
    assert "Conversion trains nothing" not in card
    assert "own hidden states" not in card


def test_weights_of_tokens_are_learned_and_saved(aligned: Path) -> None:
    reloaded: Any = SentenceTransformer(str(aligned), device="cpu")
    learned = load_file(aligned / "adapter" / adapter.TOKEN_WEIGHTS)["weights"].float()
    found = next(module for module in reloaded if type(module).__name__ == "WordWeights").emb_layer.weight[:, 0]
    assert found.tolist() == learned.tolist()
    start = longform.conversion.pooling_modules.idf(TEXTS, reloaded.tokenizer, len(learned))
    assert np.abs(learned.numpy() - start).max() > 0.01  # more than float16 rounds


def test_another_encoder_and_other_options_are_refused(source: Path, aligned: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"is not for attention_window=5 \(it has 4\)"):
        longform.convert(source, adapter=aligned / "adapter", attention_window=5)
    with pytest.raises(ConfigurationError, match="has weights of tokens: leave idf out"):
        longform.convert(source, adapter=aligned / "adapter", idf=TEXTS)
    other = shutil.copytree(source, tmp_path / "other")
    weights = load_file(other / "model.safetensors")
    weights["embeddings.LayerNorm.bias"] += 0.01
    save_file(weights, other / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConversionError, match=f"{other} has other weights, on which it would do harm"):
        longform.convert(other, adapter=aligned / "adapter")
    with pytest.raises(ConversionError, match="is no adapter"):
        longform.convert(source, adapter=aligned)
    cut = shutil.copytree(aligned / "adapter", tmp_path / "cut")
    (cut / adapter.WEIGHTS).write_bytes((cut / adapter.WEIGHTS).read_bytes()[:-9])
    with pytest.raises(ConversionError, match="cannot be read as an adapter"):
        longform.convert(source, adapter=cut)


def test_one_that_comes_with_longform_is_known_by_its_name(
    source: Path, aligned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(aligned / "adapter", tmp_path / "adapters" / "tiny-48")
    monkeypatch.setattr(adapter, "SHIPPED", tmp_path / "adapters")
    monkeypatch.setattr(shipped, "SHIPPED", tmp_path / "adapters")
    monkeypatch.setattr(shipped, "bundled_encoder_folder", lambda: source)
    monkeypatch.setenv("LONGFORM_CACHE", str(tmp_path / "cache"))
    trained = longform.Encoder.from_pretrained(aligned).encode(TEXTS)
    for _ in range(2):  # the second time from the cache
        np.testing.assert_allclose(longform.Encoder.from_pretrained("tiny-48").encode(TEXTS), trained, atol=1e-6)
    (made,) = (path for path in (tmp_path / "cache").iterdir() if path.is_dir())
    elsewhere = SentenceTransformer(longform.path_of("tiny-48"), device="cpu")
    np.testing.assert_allclose(elsewhere.encode(TEXTS), trained, atol=1e-6)
    assert longform.path_of(made) == str(made)
    with pytest.raises(ConversionError, match='one of bundled, tiny-48; did you mean "tiny-48"'):
        longform.path_of("tiny-49")
    write_lines(tmp_path / "texts.jsonl", TEXTS)
    monkeypatch.chdir(tmp_path)
    main(["embed", "tiny-48", "texts.jsonl", "--output", "vectors.jsonl"])
    found = [json.loads(line)["embedding"] for line in Path("vectors.jsonl").read_text().splitlines()]
    np.testing.assert_allclose(found, trained, atol=1e-5)
    main(["convert", str(source), "out", "--adapter", "tiny-48"])
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith("next  longform embed out texts.jsonl --output vectors.jsonl, or longform align out ")
    assert "distill" not in said  # which would take from it what the adapter has taught
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (made / "model.safetensors").read_bytes()
    made.rename("tiny-48")  # a folder that is called so comes first
    assert local_source("tiny-48") == "tiny-48"


def test_names_of_ours_are_sources_of_a_conversion_and_teachers(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "bundled_encoder_folder", lambda: source)
    assert longform.convert("bundled", max_length=48).report.source == shipped.HUB_NAME
    assert load_encoder("bundled").config.model_type == "bert"


def _nobody(uid: int) -> None:
    raise KeyError(f"getpwuid(): uid not found: {uid}")


def test_the_cache_is_what_is_named_then_the_home_then_a_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("LONGFORM_CACHE", "named")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path))
    found = [shipped.cache()]
    for variable in ("LONGFORM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable)
        found.append(shipped.cache())
    assert found == [Path("named"), tmp_path / "xdg/longform", tmp_path / ".cache/longform"]
    temporary = tmp_path / f"longform-{os.getuid()}"
    monkeypatch.setattr(os, "access", lambda *_: False)  # of a home that cannot be written
    with pytest.warns(UserWarning, match="LONGFORM_CACHE names another"):
        assert shipped.cache() == temporary
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", _nobody)  # a user of a container
    with pytest.warns(UserWarning, match="no home to keep models in"):
        assert shipped.cache() == temporary
    assert temporary.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    (tmp_path / f"longform-{os.getuid()}").mkdir()  # as another user may have done
    with pytest.raises(ConfigurationError, match="is another user's"):
        shipped.cache()
    monkeypatch.setenv("LONGFORM_CACHE", "named")
    assert shipped.cache() == Path("named")
