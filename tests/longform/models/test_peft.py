"""PEFT beyond linear layers: LoRA on E, F and other parameters, prompts of vectors; prefix tuning is refused."""

import pytest
import torch
from model_kinds import model, text
from peft import LoraConfig, PrefixTuningConfig, PromptTuningConfig, get_peft_model

import longform
from longform.errors import InputError
from tolerances import assert_close

PARAMETERS = {
    "linear": ["key_projection.matrix", "value_projection.matrix"],
    "linear-none": ["key_projection.matrix"],
    "linear-layerwise": ["key_projection.matrix"],
    "convolution-window": ["value_projection.kernel"],
    "weighted_mean-window": ["scores.weight", "convolution.weight"],
    "mean-window": ["key.weight", "output.weight"],
}
HEADS = {
    "SEQ_CLS": longform.LinformerForSequenceClassification,
    "TOKEN_CLS": longform.LinformerForTokenClassification,
    "QUESTION_ANS": longform.LinformerForQuestionAnswering,
    "FEATURE_EXTRACTION": longform.LinformerModel,
}


@pytest.mark.parametrize(("kind", "names"), PARAMETERS.items(), ids=PARAMETERS)
def test_lora_on_parameters(kind, names):
    """Computes what the model with the sum of both weights computes, and every part of it learns."""
    made, given = model(kind), text(2, 21)
    before = made(**given).last_hidden_state
    tuned = get_peft_model(made, LoraConfig(r=2, target_parameters=names, target_modules=[])).eval()
    adapters = [x for name, x in tuned.named_parameters() if "lora_" in name]
    for x in adapters:
        torch.nn.init.normal_(x, std=0.3)
    out = tuned(**given).last_hidden_state
    out.square().sum().backward()
    assert all(x.grad is not None and x.grad.abs().max() > 0 for x in adapters)
    merged = tuned.merge_and_unload()
    assert_close(merged(**given).last_hidden_state, out, scope="model")
    assert (out - before).abs().max() > 1e-3


@pytest.mark.parametrize(("task", "head"), HEADS.items(), ids=HEADS)
def test_prefix_tuning_is_refused(task, head):
    tuned = get_peft_model(model("mean-window", head), PrefixTuningConfig(task_type=task, num_virtual_tokens=4))
    with pytest.raises(InputError, match="and not prefix tuning, which gives keys and values"):
        tuned(**text(2, 21))


def test_prompts_of_vectors():
    tuned = get_peft_model(
        model("mean-window"), PromptTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=4)
    ).eval()
    given = text(2, 21)
    vectors = torch.cat([tuned.get_prompt(2), tuned.get_input_embeddings()(given["input_ids"])], dim=1)
    mask = torch.nn.functional.pad(given["attention_mask"], (4, 0), value=1)
    expected = tuned.get_base_model()(inputs_embeds=vectors, attention_mask=mask).last_hidden_state
    assert_close(tuned(**given).last_hidden_state, expected, scope="model")
