"""``longform export``: one graph beside the model, run in its place by ONNX Runtime; its slow cases are nightly."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from model_kinds import KINDS, LONGEST, model, text
from tiny_models import make_sentence_transformer, save_bert, save_longform

from longform.errors import CheckpointError, ConfigurationError
from longform_text.cli.main import main
from longform_text.export import run as checking
from longform_text.export.formats import write
from longform_text.export.run import ExportResult, export_model
from longform_text.inference.classifiers import Classifier
from longform_text.inference.encoders import Encoder
from longform_text.inference.exported import open_graph
from longform_text.inference.run import embed
from tolerances import IN_OTHER_BATCHES, assert_close

TEXTS = ["a short text", "", "it is good", "the far and the near " * 20, "x"]


def exported(folder: Path, tokenizer: Any, **settings: Any) -> ExportResult:
    save_longform(folder, tokenizer, max_position_embeddings=32, num_hidden_layers=1, projected_length=5, **settings)
    make_sentence_transformer(folder, pooling={"pooling_mode_mean_tokens": True}, normalise=True)
    return export_model(folder, int8=True, check=True)


@pytest.fixture(scope="module")
def made(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> ExportResult:
    return exported(tmp_path_factory.mktemp("exported"), tiny_tokenizer, projection="linear")


@pytest.fixture(scope="module")
def folder(made: ExportResult) -> Path:
    return Path(made.file).parents[1]


def test_what_an_export_writes_and_says(made: ExportResult, folder: Path) -> None:
    assert sorted(path.name for path in (folder / "onnx").iterdir()) == ["model.onnx", "model_quantized.onnx"]
    assert (made.inputs, made.output, made.longest) == (
        "input_ids, attention_mask, token_type_ids", "last_hidden_state", 32,
    )  # fmt: skip
    assert {row.length for row in made.checked} == {1, 2, 4, 5, 6, 31, 32}
    assert {row.batch for row in made.checked} == {1, 3}
    assert max(row.difference for row in made.checked) < checking.TOLERANCE


def test_inputs_and_the_output_have_the_names_and_axes_that_others_expect(folder: Path) -> None:
    session = ort.InferenceSession(folder / "onnx/model.onnx")
    assert [port.name for port in session.get_inputs()] == ["input_ids", "attention_mask", "token_type_ids"]
    (output,) = session.get_outputs()
    assert output.name == "last_hidden_state"
    assert output.shape[2] == 24
    assert all(isinstance(axis, str) for axis in (*output.shape[:2], *session.get_inputs()[0].shape))


def test_in_8_bits_the_second_product_of_a_feed_forward_layer_stays_in_float32(folder: Path) -> None:
    graph = onnx.load(folder / "onnx/model_quantized.onnx").graph
    whole = [tuple(each.dims) for each in graph.initializer if each.data_type == onnx.TensorProto.FLOAT]
    assert [shape for shape in whole if len(shape) == 2 and 24 in shape] == [(40, 24)]


def test_a_graph_does_not_say_where_it_was_made(folder: Path) -> None:
    graph = (folder / "onnx/model.onnx").read_bytes()
    assert b".py" not in graph
    assert str(Path(__file__).parents[3]).encode() not in graph


def test_embedding_by_onnx_gives_the_records_of_torch(folder: Path) -> None:
    runs = [embed(folder, TEXTS, backend=backend, batch_tokens=40) for backend in ("torch", "onnx", "onnx-int8")]
    expected, found, rounded = runs
    np.testing.assert_allclose(found.vectors, expected.vectors, atol=IN_OTHER_BATCHES.atol)
    assert [{**each, "embedding": 0} for each in found.results or []] == [
        {**each, "embedding": 0} for each in expected.results or []
    ]
    assert (rounded.vectors * expected.vectors).sum(axis=1).min() > 0.95
    assert not np.allclose(rounded.vectors, expected.vectors, atol=IN_OTHER_BATCHES.atol)


def test_openvino_reads_the_same_graphs(folder: Path) -> None:
    expected, found, rounded = (
        Encoder.from_pretrained(folder, backend=backend).encode(TEXTS)
        for backend in ("torch", "openvino", "openvino-int8")
    )
    np.testing.assert_allclose(found, expected, atol=IN_OTHER_BATCHES.atol)
    assert (rounded * expected).sum(axis=1).min() > 0.95


def test_chunks_by_onnx(folder: Path) -> None:
    expected, found = (
        Encoder.from_pretrained(folder, backend=backend).encode_chunks(TEXTS[3], chunk_tokens=8)
        for backend in ("torch", "onnx")
    )
    np.testing.assert_allclose(found.vectors, expected.vectors, atol=IN_OTHER_BATCHES.atol)


def test_the_command_line_runs_it(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in TEXTS))
    output = tmp_path / "vectors.jsonl"
    line = ["embed", str(folder), str(tmp_path / "texts.jsonl"), "--output", str(output), "--backend", "onnx"]
    assert main(line) == 0
    vectors = [json.loads(line)["embedding"] for line in output.read_text().splitlines()]
    np.testing.assert_allclose(vectors, Encoder.from_pretrained(folder).encode(TEXTS), atol=IN_OTHER_BATCHES.atol)


def test_an_export_is_replaced_only_when_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (folder / "onnx/model.onnx").stat()
    assert main(["export", str(folder)]) == 2
    assert "holds an export already (model.onnx, model_quantized.onnx): make it anew with" in capsys.readouterr().err
    (folder / "onnx/mine.txt").write_text("kept")
    with pytest.raises(ConfigurationError, match=r"not replaced, since it holds more than an export \(mine.txt\)"):
        export_model(folder, restart=True)
    (folder / "onnx/mine.txt").unlink()
    assert (folder / "onnx/model.onnx").stat() == before


def test_a_graph_that_differs_is_not_written(
    longform_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import longform_text.export.run as run

    def other_graph(file: Path, config: Any) -> Any:
        loaded = run.load_whole(run.AutoModel, longform_folder, dtype=run.torch.float32).eval()
        loaded.embeddings.word_embeddings.weight.data *= 2
        loaded.inputs, loaded.output = ("input_ids", "attention_mask"), "last_hidden_state"
        return loaded

    monkeypatch.setattr(run, "write", lambda model, folder, **options: folder / "model.onnx")
    monkeypatch.setattr(run, "open_graph", other_graph)
    with pytest.raises(CheckpointError, match=r"differs from the model by more than 0.0001 at n=1 \(batch 1\)"):
        export_model(longform_folder, tmp_path / "new", check=True)
    assert not (tmp_path / "new").exists()


def test_folders_that_are_not_exported(bert_folder: Path, tiny_tokenizer: Any, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds a BertModel; what is exported is an encoder or a sequence class"):
        export_model(bert_folder)
    with pytest.raises(CheckpointError, match="is no folder"):
        export_model(tmp_path / "nowhere")
    (tmp_path / "there").mkdir()
    (tmp_path / "there/file").touch()
    save_longform(tmp_path / "small", tiny_tokenizer)
    with pytest.raises(ConfigurationError, match=r"is not empty \(file\): give another folder"):
        export_model(tmp_path / "small", tmp_path / "there")
    assert not (tmp_path / "small/onnx").exists()


def test_what_cannot_be_run(longform_folder: Path, folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no onnx/model.onnx: make it with longform export \S+$"):
        Encoder.from_pretrained(longform_folder, backend="onnx")
    with pytest.raises(CheckpointError, match=r"has no onnx/model_quantized.onnx: make it .* --int8$"):
        Encoder.from_pretrained(longform_folder, backend="openvino-int8")
    with pytest.raises(CheckpointError, match="gives last_hidden_state, and logits is needed"):
        Classifier.from_pretrained(folder, backend="onnx")
    with pytest.raises(ConfigurationError, match=r"not with dtype=bfloat16, compile=True: leave that out"):
        Encoder.from_pretrained(folder, backend="onnx", dtype="bfloat16", compile=True)
    with pytest.raises(ConfigurationError, match='backend is "tensorrt"; it is one of torch, onnx, onnx-int8, open'):
        Encoder.from_pretrained(folder, backend="tensorrt")


def test_a_graph_that_is_cut_off(tiny_tokenizer: Any, tmp_path: Path) -> None:
    save_bert(tmp_path, tiny_tokenizer)
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx/model.onnx").write_bytes(b"\x08\x0a")
    with pytest.raises(CheckpointError, match=r"model.onnx\" cannot be opened .*: make it again with longform export"):
        Encoder.from_pretrained(tmp_path, backend="onnx")


@pytest.mark.nightly
@pytest.mark.parametrize("runtime", ["onnx", "openvino"])
def test_a_classifier_in_a_copy_of_its_folder(classifier_folder: Path, tmp_path: Path, runtime: str) -> None:
    copy = tmp_path / "copy"
    result = export_model(classifier_folder, copy, int8=True, check=True)
    assert result.output == "logits"
    assert not (classifier_folder / "onnx").exists()
    expected = Classifier.from_pretrained(classifier_folder).logits(TEXTS)
    found, rounded = (
        Classifier.from_pretrained(copy, backend=f"{runtime}{end}").logits(TEXTS) for end in ("", "-int8")
    )
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert rounded.shape == expected.shape
    assert np.isfinite(rounded).all()
    assert not np.allclose(rounded, expected, atol=1e-4)


@pytest.mark.nightly
def test_weights_beside_a_graph_that_would_be_too_large(
    longform_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from longform_text.export import formats

    monkeypatch.setattr(formats, "MOST_INSIDE", 1000)
    result = export_model(longform_folder, tmp_path / "copy", int8=True, check=True)
    assert Path(f"{result.file}_data").stat().st_size > 10_000
    export_model(tmp_path / "copy", int8=True, restart=True)
    assert Encoder.from_pretrained(tmp_path / "copy", backend="onnx-int8").encode(TEXTS).shape == (len(TEXTS), 24)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_every_length_up_to_the_maximum(kind: str, tmp_path: Path) -> None:
    made: Any = model(kind)
    file = write(made, tmp_path, inputs=("input_ids", "attention_mask"), output="last_hidden_state")
    graphs = [open_graph(file, made.config, runtime) for runtime in ("onnx", "openvino")]
    for length in range(1, LONGEST + 1):
        for batch in (1, 3):
            given = text(batch, length)
            kept = given["attention_mask"].bool()
            expected = made(**given).last_hidden_state[kept]
            for graph in graphs:
                assert_close(graph(**given).last_hidden_state[kept], expected, scope="model")
