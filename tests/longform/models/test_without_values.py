"""Models on the device "meta" and with fake tensors, under a counter of FLOPs as well."""

import pytest
import torch
from model_kinds import KINDS, config
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from longform import LinformerForSequenceClassification


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_without_values(kind, training):
    for device, mode in (("meta", FlopCounterMode(display=False)), ("cpu", FakeTensorMode())):
        with mode, torch.device(device), torch.set_grad_enabled(training):
            made = LinformerForSequenceClassification(config(kind, classifier_pooling="cls_mean")).train(training)
            ids, mask = torch.zeros(2, 30, dtype=torch.long), torch.ones(2, 30)
            labelled = {"attention_mask": mask, "position_ids": torch.arange(30), "labels": ids[:, 0]}
            for more in [labelled] if training else [{}, labelled]:
                out = made(ids, **more, output_attentions=not training)
                assert out.logits.shape == (2, 2)
            if training:
                out.loss.backward()
    assert made.linformer.embeddings.word_embeddings.weight.device == torch.device("cpu")
