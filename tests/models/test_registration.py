"""Hugging Face's Auto classes know the models, whichever package is imported first, and in new processes.

Each program is a process of its own, because what is registered stays registered.
"""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from longform import LinformerConfig

ORDERS = {
    "longform, then transformers": """
import longform
from transformers import AutoModel
show(AutoModel.from_pretrained(folder))""",
    "transformers, then longform": """
from transformers import AutoConfig, AutoModel
import longform
assert AutoConfig.from_pretrained(folder).model_type == "linformer"
show(AutoModel.from_pretrained(folder))""",
    "the table of configurations alone, then longform": """
from transformers import AutoConfig
import longform
config = AutoConfig.from_pretrained(folder)
from transformers import AutoModel
show(AutoModel.from_config(config))""",
    "the Auto classes in the middle of another model's import": """
import longform
from transformers import BertModel
from transformers import AutoModel
show(AutoModel.from_pretrained(folder))""",
    "the Auto classes in the middle of our own models' import": """
from longform import LinformerModel
from transformers import AutoModel
show(AutoModel.from_pretrained(folder))""",
    "a submodule, then a class of transformers' without Auto classes": """
from longform.models.configuration_linformer import LinformerConfig
import transformers.modeling_utils
from transformers import AutoModelForMaskedLM
config = LinformerConfig.from_pretrained(folder)
assert type(AutoModelForMaskedLM.from_config(config)).__name__ == "LinformerForMaskedLM"
from transformers import AutoModel
show(AutoModel.from_config(config))""",
    "longform, then a pipeline": """
import longform
from transformers import pipeline
show(pipeline("feature-extraction", folder).model)""",
    "a pipeline's module, then longform": """
from transformers import pipeline
import longform
show(pipeline("feature-extraction", folder).model)""",
    "longform, then sentence-transformers": """
import longform
from sentence_transformers import SentenceTransformer
show(SentenceTransformer(folder, device="cpu")[0].auto_model)""",
    "sentence-transformers, then longform": """
from sentence_transformers import SentenceTransformer
import longform
show(SentenceTransformer(folder, device="cpu")[0].auto_model)""",
    "an unpickled configuration, and longform named nowhere": """
import pickle
config = pickle.loads(bytes.fromhex(sys.argv[2]))
from transformers import AutoModel
show(AutoModel.from_config(config))""",
    "an entry of a table, and PEFT": """
import longform
from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as targets
assert targets["linformer"] == ["query", "value"]
from transformers import AutoConfig, AutoModel
settings = AutoConfig.from_pretrained(folder).to_dict()
settings.pop("model_type")
show(AutoModel.from_config(AutoConfig.for_model("linformer", **settings)))""",
    "a spawned process": """
import multiprocessing
import longform
from transformers import AutoModel
with multiprocessing.get_context("spawn").Pool(1) as pool:
    show(pool.apply(AutoModel.from_config, (longform.LinformerConfig.from_pretrained(folder),)))""",
    "two threads at once": """
import importlib, threading
import longform
import transformers.configuration_utils  # whose first import transformers itself does not bear in two threads
names = ["transformers.models.auto.modeling_auto", "longform.models.task_heads", "transformers.modeling_layers"]
threads = [threading.Thread(target=importlib.import_module, args=(name,)) for name in names]
for thread in threads: thread.start()
for thread in threads: thread.join()
from transformers import AutoModel
show(AutoModel.from_pretrained(folder))""",
    "a class of the user's own stays": """
import longform
from transformers import AutoModel
class Own(longform.LinformerModel): pass
AutoModel.register(longform.LinformerConfig, Own)
assert type(AutoModel.from_pretrained(folder)) is Own
show(longform.LinformerModel.from_pretrained(folder))""",
}
HEAD = """
import sys
folder = sys.argv[1]
def show(model): print(type(model).__module__, type(model).__name__)
"""


@pytest.mark.nightly  # processes that import everything anew
@pytest.mark.parametrize("program", [
    pytest.param(program, id=name) for name, program in ORDERS.items()
])  # fmt: skip
def test_auto_classes_know_the_models(program: str, longform_folder: Path) -> None:
    config = pickle.dumps(LinformerConfig.from_pretrained(longform_folder)).hex()
    arguments = [sys.executable, "-c", HEAD + program, str(longform_folder), config]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "longform.models.modeling_linformer LinformerModel"


@pytest.mark.nightly
def test_the_table_looks_as_ever_and_loads_no_model_before_one_is_asked_for() -> None:
    program = """
import inspect, sys, longform
assert not any(name.startswith(("transformers", "peft")) for name in sys.modules)
from transformers.models.auto import configuration_auto
assert configuration_auto.__loader__ is configuration_auto.__spec__.loader
assert type(configuration_auto.__loader__).__module__.startswith(("_frozen_importlib", "importlib")), "wrapped"
assert "class AutoConfig" in inspect.getsource(configuration_auto)
assert "linformer" in configuration_auto.CONFIG_MAPPING
assert "transformers.models.auto.modeling_auto" not in sys.modules and "longform.models" not in sys.modules
assert configuration_auto.CONFIG_MAPPING["linformer"] is longform.LinformerConfig
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
