"""CrossEncoder, SparseEncoder and MultiVectorEncoder folders give inside the window what their sources give."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import longform
from longform.errors import CheckpointError, ConversionError
from longform_text.inference.encoders import Encoder

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # at import only, in the packages that sentence-transformers imports
    from sentence_transformers import CrossEncoder, MultiVectorEncoder, SparseEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling, MultiVectorMask
    from sentence_transformers.sentence_transformer.modules import Pooling
    from sentence_transformers.sparse_encoder.modules import MLMTransformer, SparseAutoEncoder, SpladePooling

TEXTS = ["a long text", "the near and the far of it in good and bad", "x"]
PAIRS = [("a long text", "the near"), ("good", "bad of it in the far"), ("x", "")]
NEAR = {"atol": 1e-5, "rtol": 1e-5}


def _saved(model: Any, folder: Path, tokenizer: Any) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _json(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def _converted(source: Path, output: Path, **options: Any) -> Path:
    made = longform.convert(source, **{"max_length": 96, "attention_window": 24} | options)
    return made.save_pretrained(output)


IDENTITY = "torch.nn.modules.linear.Identity"
IN_CONFIG = {"sentence_transformers": {"activation_fn": IDENTITY, "version": "4.1.0"}}
CROSS_ENCODERS = {  # labels, fields of its config, what sentence-transformers saves it again with, what it has then
    "as saved today": (1, {}, torch.nn.Tanh(), "Tanh"),
    "three labels, as saved today": (3, {}, torch.nn.Sigmoid(), "Sigmoid"),
    "in the config": (1, IN_CONFIG, None, "Identity"),
    "in the config, before version 4": (1, {"sbert_ce_default_activation_function": IDENTITY}, None, "Identity"),
    "nowhere": (1, {}, None, "Sigmoid"),
    "nowhere, three labels": (3, {}, None, "Identity"),
}


@pytest.mark.parametrize("name", CROSS_ENCODERS)
def test_a_cross_encoder_keeps_its_scores_and_their_scale(
    name: str, make_source: Any, tiny_tokenizer: Any, tmp_path: Path
) -> None:
    labels, fields, activation, expected = CROSS_ENCODERS[name]
    model = make_source("Bert", "ForSequenceClassification", num_labels=labels)
    source = _saved(model, tmp_path / "source", tiny_tokenizer)
    _json(source / "config.json", **fields)
    if activation is not None:
        theirs = CrossEncoder(str(source), device="cpu", activation_fn=activation, max_length=20)
        theirs.save_pretrained(str(source := tmp_path / "saved"))
    original = CrossEncoder(str(source), device="cpu")
    folder = _converted(source, tmp_path / "out")
    for place, length in (
        (folder, 96),
        (_converted(folder, tmp_path / "longer", max_length=192, attention_window="auto"), 192),
    ):
        ours = CrossEncoder(str(place), device="cpu")
        assert type(ours.activation_fn).__name__ == expected
        assert (ours.num_labels, ours.max_seq_length) == (labels, length)
        torch.testing.assert_close(ours.predict(PAIRS), original.predict(PAIRS), **NEAR)
    if activation is not None:
        assert "model = CrossEncoder(" in (folder / "README.md").read_text()


def test_another_head_is_no_longer_the_cross_encoder(make_source: Any, tiny_tokenizer: Any, tmp_path: Path) -> None:
    source = _saved(make_source("Bert", "ForSequenceClassification", num_labels=1), tmp_path / "a", tiny_tokenizer)
    CrossEncoder(str(source), device="cpu", activation_fn=torch.nn.Tanh()).save_pretrained(str(tmp_path / "saved"))
    result = longform.convert(tmp_path / "saved", max_length=96, num_labels=2)
    assert "not part of the result" in result.report.summary()
    folder = result.save_pretrained(tmp_path / "out")
    assert not (folder / "modules.json").exists()
    assert type(CrossEncoder(str(folder), device="cpu").activation_fn).__name__ == "Identity"


SPARSE: dict[str, tuple[str, str, Callable[[str], list[Any]]]] = {  # family and head of the source, and the modules
    "SPLADE of today": (
        "DistilBert", "ForMaskedLM", lambda at: [Transformer(at, transformer_task="fill-mask"), SpladePooling("max")],
    ),
    "SPLADE before": ("Bert", "ForMaskedLM", lambda at: [MLMTransformer(at), SpladePooling("sum")]),
    "a sparse autoencoder": (
        "Bert", "Model", lambda at: [Transformer(at), Pooling(24), SparseAutoEncoder(24, hidden_dim=60, k=9)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPARSE)
def test_a_sparse_encoder_keeps_its_vectors(name: str, make_source: Any, tiny_tokenizer: Any, tmp_path: Path) -> None:
    family, head, modules = SPARSE[name]
    source = _saved(make_source(family, head), tmp_path / "source", tiny_tokenizer)
    original = SparseEncoder(modules=modules(str(source)), device="cpu", similarity_fn_name="dot")
    original.save_pretrained(str(tmp_path / "saved"))
    ours = SparseEncoder(str(folder := _converted(tmp_path / "saved", tmp_path / "out")), device="cpu")
    named = f"Linformer{head}"
    assert (type(ours[0].auto_model).__name__, ours.max_seq_length) == (named, 96)
    expected = original.encode(TEXTS).to_dense()
    assert expected.amax() > 0.1
    torch.testing.assert_close(ours.encode(TEXTS).to_dense(), expected, **NEAR)
    torch.testing.assert_close(ours.encode_query(TEXTS).to_dense(), expected, **NEAR)
    assert ours.similarity_fn_name == "dot"
    assert "model = SparseEncoder(" in (folder / "README.md").read_text()
    with pytest.raises(CheckpointError, match="SparseEncoder"):
        Encoder.from_pretrained(folder)


def _late_interaction(encoder: Path, folder: Path, *, pooling: bool = False, **options: Any) -> Path:
    """Transformer -> Dense -> mask -> Normalize, and tokens merged at the end; prompts of their own."""
    first = Transformer(str(encoder), **{"document_length": 20} | options)
    dense = Dense(24, 8, bias=False, activation_function=torch.nn.Identity(), module_input_name="token_embeddings")
    modules = [first, dense, MultiVectorMask(["the"]), Normalize(module_input_name="token_embeddings")]
    modules += [HierarchicalTokenPooling(2)] if pooling else []
    prompts = {"query": "good ", "document": "bad "}
    MultiVectorEncoder(modules=modules, device="cpu", prompts=prompts).save_pretrained(str(folder))
    return folder


def _of_pylate(encoder: Path, folder: Path) -> Path:
    """What PyLate's version 3 and older save: two modules, the rest in the settings."""
    _late_interaction(encoder, folder)
    kinds = [("", "sentence_transformers.models.Transformer"), ("1_Dense", "pylate.models.Dense.Dense")]
    modules = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 19, "do_lower_case": false}')
    settings = {"model_type": "ColBERT", "prompts": {}, "query_prefix": "good ", "document_prefix": "bad "}
    settings |= {"query_length": 10, "document_length": 20, "attend_to_expansion_tokens": False}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    dense = {"in_features": 24, "out_features": 8, "bias": False, "activation_function": IDENTITY}
    (folder / "1_Dense" / "config.json").write_text(json.dumps(dense))
    return folder


LATE: dict[str, Callable[[Path, Path], Path]] = {
    "no expansion": _late_interaction,
    "expansion that is not attended": lambda source, folder: _late_interaction(
        source, folder, query_expansion={"strategy": "fixed", "attend": False, "length": 12}
    ),
    "expansion that is attended, tokens merged": lambda source, folder: _late_interaction(
        source, folder, pooling=True, query_expansion={"strategy": "min", "attend": True, "length": 9}
    ),
    "from PyLate": _of_pylate,
}


@pytest.mark.parametrize("name", LATE)
def test_a_multi_vector_encoder_keeps_its_vectors(name: str, bert_folder: Path, tmp_path: Path) -> None:
    source = LATE[name](bert_folder, tmp_path / "source")
    original, folder = MultiVectorEncoder(str(source), device="cpu"), _converted(source, tmp_path / "out")
    ours = MultiVectorEncoder(str(folder), device="cpu")
    assert type(ours[0].auto_model).__name__ == "LinformerModel"
    tokens = ours.preprocess(["a " * 500], task="document")["input_ids"].shape[1]
    assert tokens == 96  # where the source cuts at 20
    queries, documents = original.encode_query(TEXTS), original.encode_document(TEXTS)
    for found, expected in ((ours.encode_query(TEXTS), queries), (ours.encode_document(TEXTS), documents)):
        assert {len(vectors[0]) for vectors in expected} == {8}
        for own, its in zip(found, expected, strict=True):
            torch.testing.assert_close(own, its, **NEAR)
    scores = ours.similarity(ours.encode_query(TEXTS), ours.encode_document(TEXTS))
    torch.testing.assert_close(scores, original.similarity(queries, documents), atol=1e-4, rtol=1e-5)
    assert "model = MultiVectorEncoder(" in (folder / "README.md").read_text()
    with pytest.raises(CheckpointError, match="MultiVectorEncoder"):
        Encoder.from_pretrained(folder)


def test_a_colbert_of_its_first_code_says_what_to_do(make_source: Any, tiny_tokenizer: Any, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    source = _saved(make_source("Bert"), tmp_path / "colbert", tiny_tokenizer)
    _json(source / "config.json", architectures=["HF_ColBERT"])
    tensors = {f"bert.{name}": tensor for name, tensor in make_source("Bert").state_dict().items()}
    save_file(tensors | {"linear.weight": torch.randn(8, 24)}, source / "model.safetensors")
    with pytest.raises(ConversionError, match="MultiVectorEncoder"):
        longform.convert(source)
    original = MultiVectorEncoder(str(source), device="cpu")
    original.save_pretrained(str(tmp_path / "saved"))
    ours = MultiVectorEncoder(str(_converted(tmp_path / "saved", tmp_path / "out")), device="cpu")
    for own, its in zip(ours.encode_query(TEXTS), original.encode_query(TEXTS), strict=True):
        torch.testing.assert_close(own, its, **NEAR)


def test_an_encoder_for_something_else(bert_folder: Path, tmp_path: Path) -> None:
    source = _late_interaction(bert_folder, tmp_path / "source")
    _json(source / "sentence_bert_config.json", transformer_task="text-generation")
    with pytest.raises(ConversionError, match="is for 'text-generation'; supported: feature-extraction"):
        longform.convert(source)
