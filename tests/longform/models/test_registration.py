"""Auto classes know the models in new processes, and saved folders load in programs that import nothing of Longform."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sparse_encoder.modules import SpladePooling
from transformers import AutoModel, AutoModelForSequenceClassification, pipeline

from longform import LinformerConfig
from longform.models.configuration_linformer import AUTO_MAP
from tests.tiny_models import make_sentence_transformer, save_longform

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
AutoModel.register(longform.LinformerConfig, Own, exist_ok=True)  # as for a model of transformers
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


TEXTS = ["the whole of it", "a text that is longer than the other one"]
WINDOW = {"attention_window": 16}
PROGRAM = """
import json, sys
assert "longform" not in sys.modules
from pathlib import Path
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, pipeline
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder
encoder, classifier, sparse, late, copies = map(Path, sys.argv[1:])
trust = {"trust_remote_code": True}
texts = json.loads(sys.stdin.read())
torch.set_num_threads(1)

def states(model, folder):
    return model(**AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt"))[0].tolist()

found = {}
model = AutoModel.from_pretrained(encoder, **trust)
found["AutoModel"] = states(model, encoder)
model.save_pretrained(copies / "model")
found["AutoModel, saved again"] = states(AutoModel.from_pretrained(copies / "model", **trust), encoder)
head = AutoModelForSequenceClassification.from_pretrained(classifier, **trust)
found["classifier"] = states(head, classifier)
sentences = SentenceTransformer(str(encoder), device="cpu", **trust)
found["SentenceTransformer"] = sentences.encode(texts).tolist()
sentences.save_pretrained(str(copies / "sentences"))
again = SentenceTransformer(str(copies / "sentences"), device="cpu", **trust)
found["SentenceTransformer, saved again"] = again.encode(texts).tolist()
found["CrossEncoder"] = CrossEncoder(str(classifier), device="cpu", **trust).predict([texts]).tolist()
found["SparseEncoder"] = SparseEncoder(str(sparse), device="cpu", **trust).encode(texts).to_dense().tolist()
found["MultiVectorEncoder"] = MultiVectorEncoder(str(late), device="cpu", **trust).encode_query(texts[0]).tolist()
found["pipeline"] = pipeline("text-classification", str(classifier), device="cpu", **trust)(texts)
print(json.dumps(found))
"""
MISSING = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "longform":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Without())
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Any) -> tuple[Path, Path]:
    """A sentence-transformers folder and a classifier's."""
    at = tmp_path_factory.mktemp("folders")
    encoder = save_longform(at / "encoder", tiny_tokenizer)
    make_sentence_transformer(
        encoder, pooling={"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True}, normalise=True
    )
    return encoder, save_longform(at / "classifier", tiny_tokenizer, head="classification", num_labels=1)


def _run(program: str, *arguments: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], input=json.dumps(TEXTS), text=True, capture_output=True,
        env={**os.environ, "HF_MODULES_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}, check=False,
    )  # fmt: skip


@pytest.fixture
def others(tmp_path: Path, tiny_tokenizer: Any) -> tuple[Path, Path]:
    """Folders of a SparseEncoder and of a MultiVectorEncoder whose queries are expanded."""
    sparse, late = tmp_path / "sparse", tmp_path / "late"
    heads = {sparse: "masked-lm", late: None}
    at = {folder: str(save_longform(tmp_path / f"{folder.name}-model", tiny_tokenizer, head=head, **WINDOW))
          for folder, head in heads.items()}  # fmt: skip
    first = Transformer(at[sparse], transformer_task="fill-mask")
    SparseEncoder(modules=[first, SpladePooling()], device="cpu").save_pretrained(str(sparse))
    first = Transformer(at[late], query_expansion={"strategy": "fixed", "attend": False, "length": 20})
    MultiVectorEncoder(modules=[first, MultiVectorMask()], device="cpu").save_pretrained(str(late))
    return sparse, late


@pytest.mark.nightly  # programs that import everything anew
def test_a_program_without_our_import_gives_the_same_numbers(
    folders: tuple[Path, Path], others: tuple[Path, Path], tmp_path: Path
) -> None:
    (encoder, classifier), (sparse, late) = folders, others
    done = _run(PROGRAM, *folders, *others, tmp_path / "copies", cache=tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    tokens = pipeline("text-classification", str(classifier), device="cpu").tokenizer(
        TEXTS, padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        states = AutoModel.from_pretrained(encoder)(**tokens)[0]
        logits = AutoModelForSequenceClassification.from_pretrained(classifier)(**tokens)[0]
    vectors = SentenceTransformer(str(encoder), device="cpu").encode(TEXTS)
    scores = CrossEncoder(str(classifier), device="cpu").predict([tuple(TEXTS)])
    lexical = SparseEncoder(str(sparse), device="cpu").encode(TEXTS).to_dense()
    tokens = MultiVectorEncoder(str(late), device="cpu").encode_query(TEXTS[0])
    assert tokens.shape == (20, 24)
    expected = {
        "AutoModel": states, "AutoModel, saved again": states, "classifier": logits, "SentenceTransformer": vectors,
        "SentenceTransformer, saved again": vectors, "CrossEncoder": scores, "SparseEncoder": lexical,
        "MultiVectorEncoder": tokens,
    }  # fmt: skip
    for name, value in expected.items():
        torch.testing.assert_close(torch.tensor(found[name]), torch.as_tensor(value), msg=lambda said, n=name: n + said)
    ours = pipeline("text-classification", str(classifier), device="cpu")(TEXTS)
    assert [each["score"] for each in found["pipeline"]] == pytest.approx([each["score"] for each in ours])
    for copy in ("model", "sentences"):
        code = {file.name: file.read_text() for file in (tmp_path / "copies" / copy).glob("*.py")}
        assert code == {file.name: file.read_text() for file in encoder.glob("*.py")}
        assert json.loads((tmp_path / "copies" / copy / "config.json").read_text())["auto_map"] == AUTO_MAP


LOADS = [
    "from transformers import AutoModel as load; load.from_pretrained",
    pytest.param("from sentence_transformers import SentenceTransformer as load; load", marks=pytest.mark.nightly),
]


@pytest.mark.nightly
@pytest.mark.parametrize("load", LOADS)
def test_where_the_package_is_missing_the_message_names_it(
    folders: tuple[Path, Path], tmp_path: Path, load: str
) -> None:
    done = _run(f"{MISSING}\n{load}({str(folders[0])!r}, trust_remote_code=True)", cache=tmp_path)
    assert done.returncode == 1
    assert "pip install longform" in done.stderr.splitlines()[-1]


def test_with_longform_imported_nothing_is_asked(folders: tuple[Path, Path]) -> None:
    assert type(AutoModel.from_pretrained(folders[0])).__module__ == "longform.models.modeling_linformer"
    assert type(AutoModel.from_pretrained(folders[0], trust_remote_code=True)).__name__ == "LinformerModel"
