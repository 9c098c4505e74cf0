"""Saved and loaded again: the same bits of every weight; what is damaged is refused.

Outputs are compared within rounding: how a product is summed depends on where in memory its factors lie.
"""

import json
import math
import resource
import shutil

import pytest
import torch
from model_kinds import KINDS, LONGEST, config, model, text
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertConfig,
    BertModel,
)

import longform
from longform import LinformerConfig, LinformerForMaskedLM, LinformerForSequenceClassification, LinformerModel
from longform.errors import CheckpointError, ConfigurationError
from longform.layers.sequence_projection import Learned
from longform.models.text_reader import Pooler
from longform_text.training.pretraining.model import new_model
from tolerances import assert_close

AUTO = {
    AutoModel: longform.LinformerModel,
    AutoModelForMaskedLM: longform.LinformerForMaskedLM,
    AutoModelForSequenceClassification: longform.LinformerForSequenceClassification,
    AutoModelForTokenClassification: longform.LinformerForTokenClassification,
    AutoModelForQuestionAnswering: longform.LinformerForQuestionAnswering,
}


@pytest.mark.parametrize("report", [False, True])
@pytest.mark.parametrize("kind", ["linear", "linear-layerwise", "convolution", "mean-window"])
def test_frozen_projections_come_back_frozen(kind, report, tmp_path):
    made = model(kind, LinformerForMaskedLM, freeze_projection=True)
    made.save_pretrained(tmp_path)
    loaded = LinformerForMaskedLM.from_pretrained(tmp_path, output_loading_info=report)
    loaded = loaded[0] if report else loaded
    trained = {name: weight.requires_grad for name, weight in loaded.named_parameters()}
    assert trained == {name: weight.requires_grad for name, weight in made.named_parameters()}
    assert all(trained.values()) == (kind == "mean-window")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_comes_back_bit_for_bit(kind, tmp_path):
    made = model(kind, LinformerForMaskedLM)
    made.save_pretrained(tmp_path)
    loaded, report = LinformerForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    assert not loaded.training
    before, after = made.state_dict(), loaded.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    kept = made.config.to_diff_dict().keys() - {"dtype", "_name_or_path", "architectures", "transformers_version"}
    assert {"projected_length", "max_position_embeddings"} <= kept
    assert {name: getattr(loaded.config, name) for name in kept} == {name: getattr(made.config, name) for name in kept}
    given = text(2, 21)
    assert_close(loaded(**given).logits, made(**given).logits)


def test_a_folder_from_before_slots_were_selected(tmp_path):
    made = model("mean-window-sinks")
    made.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    written = json.loads(file.read_text())
    assert written.pop("selected_slots", 0) == 0
    file.write_text(json.dumps(written))
    loaded = AutoModel.from_pretrained(tmp_path)
    assert loaded.config.selected_slots == 0
    given = text(2, LONGEST)
    assert_close(loaded(**given).last_hidden_state, made(**given).last_hidden_state)


def test_what_the_file_holds(tmp_path):
    """The one E of all layers and the tied decoder once; a fixed E too, though nothing trains it."""
    model("linear-layerwise", LinformerForMaskedLM).save_pretrained(tmp_path)
    held = load_file(tmp_path / "model.safetensors")
    assert [name for name in held if name.endswith("matrix")] == [
        "linformer.encoder.shared_projection.key_projection.matrix"
    ]
    assert "lm_head.decoder.weight" not in held
    made = model("random")
    made.save_pretrained(tmp_path)
    held = load_file(tmp_path / "model.safetensors")
    matrices = {name: value for name, value in held.items() if name.endswith("matrix")}
    assert len(matrices) == 4
    assert not any(name.endswith("matrix") for name, _ in made.named_parameters())
    for name, value in matrices.items():
        assert value.std() == pytest.approx(8**-0.5, rel=0.2), name


@pytest.mark.parametrize(("auto", "cls"), AUTO.items())
def test_auto_classes(auto, cls, tmp_path):
    made = model("mean-window", cls)
    assert type(auto.from_config(made.config)) is cls
    made.save_pretrained(tmp_path)
    assert type(AutoConfig.from_pretrained(tmp_path)) is LinformerConfig
    loaded = auto.from_pretrained(tmp_path)
    assert type(loaded) is cls
    assert all(torch.equal(value, made.state_dict()[name]) for name, value in loaded.state_dict().items())


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_encoder_of_a_checkpoint_with_another_head(tmp_path):
    made = model("mean", LinformerForMaskedLM)
    made.save_pretrained(tmp_path)
    loaded, report = LinformerForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert {name.split(".")[0] for name in report["missing_keys"]} == {"classifier"}
    given = text(2, 21)
    assert_close(loaded.linformer(**given)[0], made.linformer(**given)[0])


def test_an_older_checkpoint_has_a_pooler_that_was_never_used(tmp_path):
    made = model("mean", classifier_pooling="mean")
    made.pooler = Pooler(8)
    made.save_pretrained(tmp_path)
    assert "pooler.dense.weight" in load_file(tmp_path / "model.safetensors")
    loaded, report = LinformerModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    assert loaded.pooler is None
    made.pooler, given = None, text(2, 21)
    assert_close(loaded(**given).pooler_output, made(**given).pooler_output)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_dtypes(dtype, tmp_path):
    made = model("mean-window").to(dtype)
    made.save_pretrained(tmp_path)
    loaded = LinformerModel.from_pretrained(tmp_path)
    assert {p.dtype for p in loaded.parameters()} == {dtype}
    given = text(2, 21)
    assert_close(loaded(**given)[0], made(**given)[0])


def test_fresh_weights_have_their_laws():
    """N(0, 0.02) for linear layers, means for E (or N(0, 1/k)) and kernels, zero for the memory's bias."""
    options = {"hidden_size": 64, "intermediate_size": 128, "initializer_range": 0.02}
    made = LinformerModel(config("linear", projection_init="normal", **options))
    assert made.encoder.layers[0].attention.query.weight.std().item() == pytest.approx(0.02, rel=0.1)
    for matrix in made.encoder.layers[0].attention.groups[0].tensors():
        assert matrix.std().item() == pytest.approx(8**-0.5, rel=0.15)
    assert (made.embeddings.word_embeddings.weight[0] == 0).all()
    made = LinformerModel(config("convolution-window", **options))
    assert all((kernel == 0.25).all() for kernel in made.encoder.layers[0].attention.groups[0].tensors())
    assert (made.encoder.layers[0].attention.memory_bias == 0).all()
    made = LinformerModel(config("linear"))
    first = made.encoder.layers[0].attention.groups[0].tensors()[0]
    assert first[0, 1].tolist() == [0] * 4 + [0.25] * 4 + [0] * 24


def test_a_folder_that_does_not_say_how_its_projection_began_keeps_its_weights(tmp_path):
    """As they were written when N(0, 1/k) was what went without saying."""
    made = LinformerModel(config("linear", projection_init="normal")).eval()
    made.save_pretrained(tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())
    assert said.pop("projection_init") == "normal"
    (tmp_path / "config.json").write_text(json.dumps(said))
    loaded = LinformerModel.from_pretrained(tmp_path).eval()
    given = text(2, 21)
    assert_close(loaded(**given)[0], made(**given)[0])


@pytest.mark.parametrize("offset", [0, 2])
@pytest.mark.parametrize("make", [LinformerModel, lambda config: new_model(config, seed=0).base_model])
def test_positions_may_begin_as_sines(make, offset):
    """Position p, feature i: sin or cos of p / 10,000^(2 floor(i / 2) / D), sqrt(2) times as large as a word."""
    made = make(config("linear", position_init="sinusoidal", position_offset=offset, initializer_range=0.1))
    table, features = made.embeddings.position_embeddings.weight[offset:], made.config.hidden_size
    for place, feature in [(0, 0), (0, 1), (5, 0), (5, 3), (9, 6)]:
        angle = place / 10_000 ** (2 * (feature // 2) / features)
        wave = math.cos(angle) if feature % 2 else math.sin(angle)
        assert table[place, feature].item() == pytest.approx(0.1 * math.sqrt(2) * wave, abs=1e-6)


@pytest.fixture
def saved(tmp_path):
    model("mean", LinformerForMaskedLM).save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.99])
def test_a_truncated_file(saved, share):
    file = saved / "model.safetensors"
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * share)])
    for cls in (LinformerForMaskedLM, AutoModelForMaskedLM):
        with pytest.raises(CheckpointError, match=rf'"{saved}" is damaged .*: copy or download its weights again'):
            cls.from_pretrained(saved)


def test_a_list_of_files_that_is_not_whole(saved):
    (saved / "model.safetensors").unlink()
    for listed in ("{", '{"metadata": {}, "weight_map": {"embeddings.word_embeddings.weight": "gone.safetensors"}}'):
        (saved / "model.safetensors.index.json").write_text(listed)
        with pytest.raises(CheckpointError, match=rf'"{saved}" is damaged .*: copy or download its weights again'):
            LinformerModel.from_pretrained(saved)


def test_no_configuration(saved):
    (saved / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="has no configuration: config"):
        LinformerModel.from_pretrained(saved)
    (saved / "config.json").unlink()
    with pytest.raises(CheckpointError, match="has no configuration: config"):
        LinformerModel.from_pretrained(saved)


def test_no_weights(saved):
    (saved / "model.safetensors").unlink()
    with pytest.raises(OSError, match=r"model\.safetensors"):
        LinformerForMaskedLM.from_pretrained(saved)


def test_weights_of_other_sizes(saved):
    changed = LinformerConfig.from_pretrained(saved)
    changed.max_position_embeddings = 16
    changed.save_pretrained(saved)
    with pytest.raises(RuntimeError, match="mismatch"):
        LinformerForMaskedLM.from_pretrained(saved)


def test_a_config_that_was_edited(saved):
    file = saved / "config.json"
    file.write_text(file.read_text().replace('"projected_length": 8', '"projected_length": 99'))
    with pytest.raises(ConfigurationError, match=r"projected_length=99 must be .* max_position_embeddings=32"):
        LinformerForMaskedLM.from_pretrained(saved)


def test_a_full_disk_keeps_the_earlier_weights(saved):
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, hard))
    try:
        with pytest.raises((SafetensorError, OSError), match=r"os error 27|File too large"):
            model("mean", LinformerForMaskedLM, num_hidden_layers=3).save_pretrained(saved)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (saved / "model.safetensors").read_bytes() == before["model.safetensors"]


def test_a_pickle_in_the_folder_is_left_alone(saved, tmp_path):
    """Beside safetensors, a file that would run code when unpickled is not opened."""
    shutil.copytree(saved, tmp_path / "both")
    (tmp_path / "both" / "pytorch_model.bin").write_bytes(b"\x80\x04cos\nabort\n(tR.")
    loaded = LinformerForMaskedLM.from_pretrained(tmp_path / "both")
    given = text(1, 5)
    assert_close(loaded(**given).logits, LinformerForMaskedLM.from_pretrained(saved)(**given).logits)


def test_a_pickle_alone_is_not_read(saved):
    (saved / "model.safetensors").unlink()
    torch.save(model("mean", LinformerForMaskedLM).state_dict(), saved / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"as a pickle.*save_pretrained, which writes safetensors"):
        LinformerForMaskedLM.from_pretrained(saved)
    with pytest.raises(OSError, match=r"no file named model\.safetensors"):
        AutoModelForMaskedLM.from_pretrained(saved)


@pytest.mark.parametrize("cls", [LinformerModel, LinformerForMaskedLM])
def test_another_architecture(cls, tmp_path):
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
    BertModel(BertConfig(vocab_size=40, **sizes)).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"of type 'bert', not 'linformer'.*longform\.convert\("):
        cls.from_pretrained(tmp_path)


@pytest.mark.parametrize("changed", [
    {"projected_length": 16}, {"projection_sharing": "none"}, {"projection_sharing": "layerwise"},
    {"projection": "convolution"}, {"projection": "random"}, {"projection_init": "block_mean", "projected_length": 16},
])  # fmt: skip
@pytest.mark.parametrize("kind", ["linear", "mean"])
def test_what_a_checkpoint_lacks_begins_as_a_new_model_has_it(kind, changed, tmp_path):
    model(kind, LinformerForMaskedLM, projection_init="normal").save_pretrained(tmp_path)
    changed = {"projection": "linear", **changed}
    loaded = LinformerForMaskedLM.from_pretrained(tmp_path, ignore_mismatched_sizes=True, **changed)
    parts = [part for part in loaded.modules() if isinstance(part, Learned)]
    assert parts
    for part in parts:
        value, law = part(), part.initial()
        if changed.get("projection_init") == "block_mean" or changed["projection"] == "convolution":
            assert torch.equal(value, law)
        else:
            assert value.std().item() == pytest.approx(law.shape[1] ** -0.5, rel=0.3)
    assert loaded(**text(2, 12)).logits.isfinite().all()
