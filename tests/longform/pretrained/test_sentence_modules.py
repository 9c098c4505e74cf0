"""Vectors of a sentence-transformers folder of any kind are those of that package, prompts and all."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer import modules as kinds
from tiny_models import make_sentence_transformer, save_bert, save_longform
from transformers import AutoConfig

from longform import convert
from longform.conversion.sublinear_tf import SublinearTF
from longform.errors import CheckpointError, ConfigurationError, ConversionError
from longform.pretrained import sentence_modules
from longform_text.inference.encoders import Encoder

TEXTS = ["the near text", "", "x", "good bad " * 4, "of " * 9]
WIDTH = 24
WEIGHTS = {"the": 0.2, "near": 3.0, "[CLS]": 0.5}
STACKS: dict[str, Callable[[list[str]], list[Any]]] = {
    "mean": lambda _: [kinds.Pooling(WIDTH)],
    "last token": lambda _: [kinds.Pooling(WIDTH, pooling_mode="lasttoken"), kinds.Normalize()],
    "two poolings": lambda _: [kinds.Pooling(WIDTH, pooling_mode=("mean", "max"))],
    "weighted by place": lambda _: [kinds.Pooling(WIDTH, pooling_mode="weightedmean")],
    "dense": lambda _: [kinds.Pooling(WIDTH), kinds.Dense(WIDTH, 7), kinds.Normalize()],
    "norm and dropout": lambda _: [kinds.Pooling(WIDTH), kinds.LayerNorm(WIDTH), kinds.Dropout(0.5)],
    "words weighted": lambda vocabulary: [kinds.WordWeights(vocabulary, WEIGHTS), kinds.Pooling(WIDTH)],
    "layers weighted": lambda _: [
        kinds.WeightedLayerPooling(WIDTH, num_hidden_layers=2, layer_start=1),
        kinds.Pooling(WIDTH),
    ],
    "normalised before": lambda _: [kinds.Pooling(WIDTH), kinds.Normalize(), kinds.Dense(WIDTH, 5)],
}


def _folder(place: Path, encoder: Path, stack: list[Any], **options: Any) -> tuple[Path, SentenceTransformer]:
    torch.manual_seed(1)
    model = SentenceTransformer(modules=[kinds.Transformer(str(encoder)), *stack], device="cpu", **options)
    model.save_pretrained(str(place))
    return place, SentenceTransformer(str(place), device="cpu")


def _near(found: np.ndarray, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("save", [save_bert, save_longform])
@pytest.mark.parametrize("name", STACKS)
def test_modules_after_the_encoder_are_run(name: str, save: Any, tiny_tokenizer: Any, tmp_path: Path) -> None:
    encoder = save(tmp_path / "encoder", tiny_tokenizer)
    if name == "layers weighted":
        config = AutoConfig.from_pretrained(encoder)
        config.output_hidden_states = True
        config.save_pretrained(encoder)
    vocabulary = tiny_tokenizer.convert_ids_to_tokens(range(len(tiny_tokenizer)))
    folder, theirs = _folder(tmp_path / "folder", encoder, STACKS[name](vocabulary))
    ours = Encoder.from_pretrained(folder)
    found = ours.encode(TEXTS, max_tokens_per_batch=40)
    _near(found, theirs.encode(TEXTS))
    assert found.shape[1] == ours.features
    if save is save_bert:
        convert(folder, max_length=64).save_pretrained(tmp_path / "long")
        _near(Encoder.from_pretrained(tmp_path / "long").encode(TEXTS), theirs.encode(TEXTS))
        _near(SentenceTransformer(str(tmp_path / "long"), device="cpu").encode(TEXTS), theirs.encode(TEXTS))


@pytest.mark.parametrize("weighted", [[], ["words"], ["repeated"], ["words", "repeated"]], ids="+".join)
def test_a_mean_with_weights_of_tokens_does_without_the_other_package(
    weighted: list[str], tiny_tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = save_longform(tmp_path / "encoder", tiny_tokenizer)
    vocabulary = tiny_tokenizer.convert_ids_to_tokens(range(len(tiny_tokenizer)))
    made = {"words": kinds.WordWeights(vocabulary, WEIGHTS, 0.7), "repeated": SublinearTF()}
    stack = [*(made[name] for name in weighted), kinds.Pooling(WIDTH), kinds.Normalize()]
    torch.manual_seed(1)
    theirs = SentenceTransformer(modules=[kinds.Transformer(str(encoder)), *stack], device="cpu")
    theirs.save_pretrained(str(tmp_path / "folder"))
    monkeypatch.setattr(sentence_modules, "require", lambda *_, **__: pytest.fail("it was asked for"))
    found = Encoder.from_pretrained(tmp_path / "folder")
    assert (found.pooling, found.normalise, found.features) == (None if weighted else "mean", True, WIDTH)
    _near(found.encode(TEXTS), theirs.encode(TEXTS))


def test_dimensions_of_the_modules_are_whole_where_the_folder_keeps_some(tiny_tokenizer: Any, tmp_path: Path) -> None:
    encoder = save_longform(tmp_path / "encoder", tiny_tokenizer)
    folder, _ = _folder(tmp_path / "folder", encoder, STACKS["dense"]([]), truncate_dim=3)
    found = Encoder.from_pretrained(folder)
    assert (found.whole, found.features) == (7, 3)
    assert found.encode_chunks("the near text " * 5, chunk_tokens=4).vectors.shape[1] == 3


def test_prompts_dimensions_and_conventions(tiny_tokenizer: Any, tmp_path: Path) -> None:
    prompts = {"query": "good: ", "passage": "bad ", "odd": "far "}
    encoder = save_longform(tmp_path / "encoder", tiny_tokenizer)
    stack = [kinds.Pooling(WIDTH), kinds.Normalize()]
    options: dict[str, Any] = {"prompts": prompts, "default_prompt_name": "odd", "truncate_dim": 9}
    folder, theirs = _folder(tmp_path / "folder", encoder, stack, **options)
    ours = Encoder.from_pretrained(folder)
    _near(ours.encode(TEXTS), theirs.encode(TEXTS, truncate_dim=theirs.truncate_dim))
    _near(ours.for_queries().encode(TEXTS), theirs.encode_query(TEXTS, truncate_dim=theirs.truncate_dim))
    _near(ours.for_documents().encode(TEXTS), theirs.encode_document(TEXTS, truncate_dim=theirs.truncate_dim))
    for how in ({"prompt_name": "passage"}, {"prompt": "for it "}, {"prompt": ""}):
        _near(
            Encoder.from_pretrained(folder, truncate_dim=4, **how).encode(TEXTS),
            theirs.encode(TEXTS, truncate_dim=4, **how),
        )
    short = Encoder.from_pretrained(folder, truncate_dim=4, normalise=True).encode(TEXTS)
    _near(short, theirs.encode(TEXTS, truncate_dim=4, normalize_embeddings=True))


def test_a_pooling_that_leaves_the_prompt_out(tiny_tokenizer: Any, tmp_path: Path) -> None:
    folder, theirs = _folder(
        tmp_path / "folder", save_bert(tmp_path / "encoder", tiny_tokenizer),
        [kinds.Pooling(WIDTH, include_prompt=False)], prompts={"query": "good: "},
    )  # fmt: skip
    _near(Encoder.from_pretrained(folder, prompt_name="query").encode(TEXTS), theirs.encode(TEXTS, prompt_name="query"))


def test_an_encoder_in_a_folder_of_its_own(tiny_tokenizer: Any, tmp_path: Path) -> None:
    folder, theirs = _folder(
        tmp_path / "folder", save_bert(tmp_path / "encoder", tiny_tokenizer), [kinds.Pooling(WIDTH)]
    )
    (folder / "0_Transformer").mkdir()
    modules = json.loads((folder / "modules.json").read_text())
    for file in [path for path in folder.iterdir() if path.is_file() and path.name not in ("modules.json",)]:
        file.rename(folder / "0_Transformer" / file.name)
    (folder / "modules.json").write_text(json.dumps([modules[0] | {"path": "0_Transformer"}, *modules[1:]]))
    _near(Encoder.from_pretrained(folder).encode(TEXTS), theirs.encode(TEXTS))


def test_what_cannot_be_used_is_said(tiny_tokenizer: Any, tmp_path: Path) -> None:
    folder = make_sentence_transformer(
        save_bert(tmp_path / "a", tiny_tokenizer), pooling={}, normalise=False,
        config_sentence_transformers={"prompts": {"passage": "bad "}, "default_prompt_name": "passage"},
    )  # fmt: skip
    with pytest.raises(ConfigurationError, match=r'has no prompt "other"; its prompts: .*passage'):
        Encoder.from_pretrained(folder, prompt_name="other")
    with pytest.raises(ConfigurationError, match="not both"):
        Encoder.from_pretrained(folder, prompt_name="passage", prompt="x")
    for dimensions in (25, -1):
        with pytest.raises(ConfigurationError, match=f"truncate_dim is {dimensions}; a vector has 24 dimensions"):
            Encoder.from_pretrained(folder, truncate_dim=dimensions)
    settings = folder / "config_sentence_transformers.json"
    settings.write_text(json.dumps({"prompts": {"passage": "bad "}, "default_prompt_name": "other"}))
    with pytest.raises(ConfigurationError, match=r'has no prompt "other"; its prompts: .*passage'):
        Encoder.from_pretrained(folder)
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([modules[0] | {"type": "elsewhere.Encoder"}, *modules[1:]]))
    with pytest.raises(CheckpointError, match="elsewhere"):
        Encoder.from_pretrained(folder)
    settings.unlink()
    for change in ({"type": "elsewhere.Pooling"}, {"path": "../elsewhere"}):
        (folder / "modules.json").write_text(json.dumps([modules[0], modules[1] | change]))
        with pytest.raises(CheckpointError, match="elsewhere"):
            Encoder.from_pretrained(folder)


def test_a_router_is_refused_with_what_to_do(tiny_tokenizer: Any, tmp_path: Path) -> None:
    encoder, width = str(save_bert(tmp_path / "encoder", tiny_tokenizer)), {"in_features": WIDTH, "out_features": 5}
    routes = Router.for_query_document([kinds.Dense(**width)], [kinds.Dense(**width)])
    after = [kinds.Transformer(encoder), kinds.Pooling(WIDTH), routes]
    whole = Router.for_query_document(
        [kinds.Transformer(encoder), kinds.Pooling(WIDTH)], [kinds.Transformer(encoder), kinds.Pooling(WIDTH)]
    )
    for place, modules in (("after", after), ("whole", [whole])):
        SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(tmp_path / place))
        with pytest.raises(CheckpointError, match=r"Router.*its vectors come from sentence-transformers"):
            Encoder.from_pretrained(tmp_path / place)
        with pytest.raises(ConversionError, match="Of a Router, save the modules of one route as a model of their own"):
            convert(tmp_path / place)
