"""Each head: shapes, losses by hand, gradients in every parameter."""

import pytest
import torch
from model_kinds import KINDS, LONGEST, config, model, text
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss
from transformers import Trainer, TrainingArguments

from longform import (
    LinformerForMaskedLM,
    LinformerForQuestionAnswering,
    LinformerForSequenceClassification,
    LinformerForTokenClassification,
    LinformerModel,
)
from longform.choices import POOLINGS
from longform.errors import InputError
from longform.functional.pooling import pooled
from tolerances import assert_close

QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def test_masked_lm():
    made, given = model("linear", LinformerForMaskedLM), text(3, 11)
    labels = torch.where(given["attention_mask"].bool(), given["input_ids"], -100)
    out = made(**given, labels=labels)
    assert out.logits.shape == (3, 11, 40)
    assert_close(out.loss, cross_entropy(out.logits.flatten(0, 1), labels.flatten(), ignore_index=-100))
    assert made.lm_head.decoder.weight is made.linformer.embeddings.word_embeddings.weight


@pytest.mark.parametrize("pooling", POOLINGS)
def test_single_label(pooling):
    made = model("mean", LinformerForSequenceClassification, num_labels=4, classifier_pooling=pooling)
    labels = torch.tensor([3, 0, 1])
    out = made(**text(3, 11), labels=labels)
    assert out.logits.shape == (3, 4)
    assert_close(out.loss, cross_entropy(out.logits, labels))


def test_multi_label():
    made = model("mean", LinformerForSequenceClassification, num_labels=4, problem_type="multi_label_classification")
    labels = torch.tensor([[1.0, 0, 1, 0], [0, 0, 0, 0]])
    out = made(**text(2, 11), labels=labels)
    assert_close(out.loss, binary_cross_entropy_with_logits(out.logits, labels))


def test_regression():
    made = model("mean", LinformerForSequenceClassification, num_labels=1)
    labels = torch.tensor([0.3, -2.0])
    out = made(**text(2, 11), labels=labels)
    assert out.logits.shape == (2, 1)
    assert_close(out.loss, mse_loss(out.logits[:, 0], labels))


def test_token_classification():
    made, given = model("mean-window", LinformerForTokenClassification, num_labels=5), text(2, 30)
    labels = torch.where(given["attention_mask"].bool(), given["input_ids"] % 5, -100)
    out = made(**given, labels=labels)
    assert out.logits.shape == (2, 30, 5)
    assert_close(out.loss, cross_entropy(out.logits.flatten(0, 1), labels.flatten()))


def test_question_answering():
    made = model("linear", LinformerForQuestionAnswering)
    start, end = torch.tensor([1, 4]), torch.tensor([2, 9])
    out = made(**text(2, 11), start_positions=start, end_positions=end)
    assert out.start_logits.shape == out.end_logits.shape == (2, 11)
    assert_close(out.loss, (cross_entropy(out.start_logits, start) + cross_entropy(out.end_logits, end)) / 2)


def test_token_types_count():
    made, given = model("linear"), text(2, 9)
    kinds = (torch.arange(9) > 4).long().expand(2, -1)
    assert not torch.allclose(made(**given, token_type_ids=kinds)[0], made(**given)[0])
    assert torch.equal(made(**given, token_type_ids=torch.zeros_like(kinds))[0], made(**given)[0])


def test_pooler():
    made, given = model("linear"), text(2, 9)
    out = made(**given)
    assert_close(out.pooler_output, torch.tanh(made.pooler.dense(out.last_hidden_state[:, 0])))
    assert model("linear", use_pooler=False).pooler is None


@pytest.mark.parametrize("kind", [kind for kind in POOLINGS if kind != "cls"])
def test_another_pooling_has_no_weights(kind):
    made, given = model("linear", classifier_pooling=kind), text(2, 9)
    assert made.pooler is None
    out = made(**given)
    assert_close(out.pooler_output, pooled(out.last_hidden_state, given["attention_mask"].bool(), kind=kind))
    assert model("linear", classifier_pooling=kind, use_pooler=False)(**given).pooler_output is None


def test_tuples_and_vectors_in_place_of_ids():
    made, given = model("mean", LinformerForSequenceClassification), text(2, 9)
    vectors = made.get_input_embeddings()(given["input_ids"])
    by_vectors = made(inputs_embeds=vectors, attention_mask=given["attention_mask"], return_dict=False)
    assert isinstance(by_vectors, tuple)
    assert torch.equal(by_vectors[0], made(**given).logits)


def cases_with_every_sharing():
    for kind, settings in KINDS.items():
        learned = settings["projection"] in ("linear", "convolution", "random")
        shareable = learned and "projection_sharing" not in settings
        for sharing in ("none", "headwise", "key_value", "layerwise") if shareable else (None,):
            yield pytest.param(kind, {} if sharing is None else {"projection_sharing": sharing}, id=f"{kind}-{sharing}")


@pytest.mark.parametrize(("kind", "options"), list(cases_with_every_sharing()))
def test_no_parameter_is_unused(kind, options):
    """A long text gives every parameter a gradient, as several processes (DDP) demand."""
    for normalization, head in [("post", LinformerForMaskedLM), ("pre", LinformerForSequenceClassification)]:
        made = model(kind, head, normalization=normalization, **QUIET, **options).train()
        given = text(2, LONGEST)
        labels = given["input_ids"] if head is LinformerForMaskedLM else torch.tensor([0, 1])
        made(**given, labels=labels).loss.backward()
        missing = [name for name, p in made.named_parameters() if p.grad is None]
        assert missing == []
        grown = ("embeddings_project", "attention", "feed_forward", "memory_bias", "matrix", "kernel")
        zero = [n for n, p in made.named_parameters() if any(part in n for part in grown) and not p.grad.any()]
        assert [name for name in zero if not name.endswith("key.bias")] == []  # softmax ignores a shift of all keys


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("kind", ["linear", "mean-window"])
def test_no_parameter_of_the_bare_model_is_unused(kind, pooling):
    made = model(kind, classifier_pooling=pooling, **QUIET).train()
    out = made(**text(2, LONGEST))
    (out.last_hidden_state.square().sum() + out.pooler_output.square().sum()).backward()
    assert [name for name, p in made.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("projection", ["linear", "convolution"])
def test_a_frozen_projection_is_not_trained(projection):
    made = model(projection, LinformerForMaskedLM, freeze_projection=True)
    frozen = {name for name, p in made.named_parameters() if not p.requires_grad}
    assert frozen == {name for name, _ in made.named_parameters() if name.endswith((".matrix", ".kernel"))}
    assert frozen


def test_roberta_geometry():
    """Positions begin at row 2, and there are no token types."""
    made = model("linear", position_offset=2, type_vocab_size=0, pad_token_id=1)
    assert made.embeddings.token_type_embeddings is None
    assert made.embeddings.position_embeddings.weight.shape[0] == LONGEST + 2
    given = text(2, LONGEST)
    before = made(**given)[0]
    assert torch.equal(made(**given, token_type_ids=torch.zeros_like(given["input_ids"]))[0], before)
    with pytest.raises(InputError, match="token_type_ids are from 1 to 1; this model takes 0 to 0"):
        made(**given, token_type_ids=torch.ones_like(given["input_ids"]))
    with torch.no_grad():
        made.embeddings.position_embeddings.weight[:2] = 100.0
    assert torch.equal(made(**given)[0], before)
    assert torch.equal(made(**given, position_ids=torch.arange(LONGEST))[0], before)


def test_pre_norm_normalises_at_the_end():
    made, given = model("linear", normalization="pre"), text(2, 9)
    out = made(**given, output_hidden_states=True)
    assert torch.equal(out.hidden_states[-1], out.last_hidden_state)
    assert made.encoder.final_norm is not None
    assert model("linear").encoder.final_norm is None


def test_narrow_word_vectors():
    """ELECTRA's factorised embeddings; the tied decoder is as narrow."""
    made, given = model("mean", LinformerForMaskedLM, embedding_size=6), text(2, 9)
    out = made(**given)
    assert out.logits.shape == (2, 9, 40)
    assert made.get_input_embeddings().weight.shape == (40, 6)
    assert made.lm_head.decoder.weight is made.get_input_embeddings().weight
    assert made.linformer.embeddings_project.weight.shape == (8, 6)
    vectors = made.get_input_embeddings()(given["input_ids"])
    assert torch.equal(made(inputs_embeds=vectors, attention_mask=given["attention_mask"]).logits, out.logits)


def test_no_layers_is_embeddings():
    made = LinformerModel(config("linear", num_hidden_layers=0)).eval()
    assert made(**text(2, 9), output_hidden_states=True, output_attentions=True).attentions == ()


@pytest.mark.parametrize("head", [LinformerForSequenceClassification, LinformerForMaskedLM])
def test_the_trainer_of_hugging_face_divides_by_its_accumulation_steps(head, tmp_path):
    rows = [{"input_ids": [2, 5 + n, 9, 3], "labels": n % 2 if "Sequence" in head.__name__ else [2, 5 + n, 9, 3]}
            for n in range(8)]  # fmt: skip
    found = []
    for batch, accumulated in ((8, 1), (2, 4)):
        torch.manual_seed(0)
        made = model("mean", head, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        arguments = TrainingArguments(
            output_dir=str(tmp_path), per_device_train_batch_size=batch, gradient_accumulation_steps=accumulated,
            max_steps=1, logging_steps=1, report_to="none", save_strategy="no", use_cpu=True, disable_tqdm=True,
        )  # fmt: skip
        trainer = Trainer(made, arguments, train_dataset=rows)
        trainer.train()
        found.append([trainer.state.log_history[0][name] for name in ("loss", "grad_norm")])
    assert found[1] == pytest.approx(found[0], rel=1e-3)
