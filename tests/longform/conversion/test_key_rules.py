import pytest

from longform.conversion.families.family import KeyRules, Rule
from longform.conversion.families.registry import BY_MODEL_TYPE, FAMILIES

HEADS = {
    "encoder": "Model",
    "masked-lm": "ForMaskedLM",
    "sequence-classification": "ForSequenceClassification",
    "token-classification": "ForTokenClassification",
    "question-answering": "ForQuestionAnswering",
}
NAMES = ["Bert", "Roberta", "XLMRoberta", "Camembert", "DistilBert", "Electra", "MPNet"]


@pytest.mark.parametrize("task", HEADS)
@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_a_source_goes_there_and_back(make_source, name, task):
    source = make_source(name, HEADS[task])
    family = BY_MODEL_TYPE[source.config.model_type]
    rules = family.rules(task, bare_source=task == "encoder")
    renamed = {key: rules.rename(key) for key in source.state_dict()}
    assert None not in renamed.values()
    assert len(set(renamed.values())) == len(renamed)
    assert {key: rules.restore(target) for key, target in renamed.items()} == {key: key for key in renamed}


@pytest.mark.parametrize("task", HEADS)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_bare_and_a_prefixed_name_are_the_same_tensor(family, task):
    rules = family.rules(task, bare_source=False)
    key = family.encoder[0].source.removeprefix("{base}")  # the word embeddings
    assert rules.rename(key) == rules.rename(family.base_name + key)
    assert rules.restore(rules.rename(key)) == family.base_name + key


def test_layer_norms_of_the_first_checkpoints():
    rules = BY_MODEL_TYPE["bert"].rules("encoder", bare_source=True)
    name = "encoder.layer.11.attention.output.LayerNorm."
    assert rules.rename("bert." + name + "gamma") == "encoder.layers.11.attention_norm.weight"
    assert rules.rename("bert." + name + "beta") == "encoder.layers.11.attention_norm.bias"


@pytest.mark.parametrize("key", ["bert.encoder.layer.x.output.dense.weight", "encoder.layer.0.output.dense.scale", ""])
def test_an_unknown_name_has_no_translation(key):
    rules = BY_MODEL_TYPE["bert"].rules("encoder", bare_source=True)
    assert rules.rename(key) is None
    assert rules.restore(key) is None


def test_the_first_rule_that_matches_counts():
    rules = KeyRules(
        [Rule("a.0.{part}", "first.{part}"), Rule("a.{layer}.{part}", "b.{layer}.{part}")],
        base_name="x.", source_base="", target_base="",
    )  # fmt: skip
    assert rules.rename("a.0.bias") == "first.bias"
    assert rules.rename("a.1.bias") == "b.1.bias"


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([Rule("a.{layer}.w", "b.w")], "cannot be reversed"),
        ([Rule("a", "b"), Rule("a", "c")], "two rules for the source name a"),
        ([Rule("a", "c"), Rule("b", "c")], "two rules for the target name c"),
    ],
)
def test_a_table_that_does_not_read_backwards_is_refused(rules, message):
    with pytest.raises(ValueError, match=message):
        KeyRules(rules, base_name="x.", source_base="", target_base="")
