import contextlib
import random
import re
import sys
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from json_lines import read_lines, write_lines
from safetensors.torch import load_file

from longform.errors import ConfigurationError, DataError, InputError, MissingDependencyError
from longform.files import locked
from longform_lab.compare import run as module
from longform_lab.compare.architectures import ARCHITECTURES, build
from longform_lab.compare.learning import CHECKPOINT, Learner, LearningSettings
from longform_lab.compare.listops import SYMBOLS, ListOpsShape, listops
from longform_lab.compare.report import left_out, table_of
from longform_lab.compare.results import Result, folder_of, read_result
from longform_lab.compare.run import LOCK, WEIGHTS, compare
from longform_lab.compare.sequences import SequenceTask
from longform_lab.compare.texts import text_task
from longform_lab.records import provenance, read_records
from longform_lab.speed.sizes import Sizes
from longform_text.training.labels import Examples

LEARNING = LearningSettings(steps=6, batch_size=8, tokens_per_forward=64, evaluations=2)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def task():
    shape = ListOpsShape(min_length=3, max_length=20, max_depth=3, max_arguments=3)
    parts = [listops(count, shape, seed=0, part=part) for part, count in (("a", 40), ("b", 12), ("c", 12))]
    return SequenceTask("tiny ListOps", *parts, vocabulary=len(SYMBOLS))


@pytest.fixture(scope="module")
def sizes(task):
    return Sizes(
        length=20, vocabulary=task.vocabulary, labels=10, hidden_size=16, intermediate_size=16, projected_length=4,
        window=4,
    )  # fmt: skip


def test_a_comparison_writes_its_folder_and_goes_on_where_it_stood(task, sizes, tmp_path, monkeypatch):
    done = compare(task, sizes, LEARNING, tmp_path, architectures=("linformer", "tfidf"), memory=False, progress=False)
    first, baseline = done
    assert 0 <= first.accuracy <= 1
    assert (first.steps, baseline.steps) == (6, None)
    assert first.tokens == sum(len(task.train.sequences[p]) for b in _batches(task, LEARNING) for p in b)
    records = read_lines(tmp_path / "records.jsonl")
    assert [record["settings"]["architecture"] for record in records] == ["linformer", "tfidf"]
    for record in read_records([tmp_path / "records.jsonl"]):
        assert provenance([asdict(record)]).startswith("Measured on ")
        assert record.hardware["gpu"] is None
        assert (record.settings["device"], record.settings["train_texts"]) == ("cpu", 40)
    page = (tmp_path / "report.html").read_text()
    assert "data:image/png;base64," in page
    assert re.findall(r'(?:src|href)="(?!data:)', page) == []
    assert not list(tmp_path.rglob(CHECKPOINT))

    kept = build("linformer", sizes, seed=5)
    kept.load_state_dict(load_file(folder_of(tmp_path, "linformer") / WEIGHTS))
    tester = Learner(kept, task, LEARNING, device=CPU, folder=None, name="kept", progress=False)
    assert tester.scores(task.test).confusion == first.confusion

    trained = []
    real = module._attempt
    monkeypatch.setattr(module, "_attempt", lambda name, *a, **o: trained.append(name) or real(name, *a, **o))
    more = compare(task, sizes, LEARNING, tmp_path, architectures=("full", "linformer"), memory=False, progress=False)
    assert trained == ["full"]
    assert more[1] == first
    assert "| full attention |" in (tmp_path / "table.md").read_text()

    other = LearningSettings(steps=7)
    with pytest.raises(ConfigurationError, match=r"settings\.steps: 6 there, 7 now"):
        compare(task, sizes, other, tmp_path, architectures=("full",), memory=False, progress=False)


@pytest.mark.parametrize("steps", [1, 5, 33, 100])
@pytest.mark.parametrize("warmup", [0.0, 0.005, 0.1, 1.0])
def test_the_highest_rate_is_the_highest(steps, warmup):
    rates = [LearningSettings(steps=steps, warmup=warmup).rate(step) for step in range(steps)]
    assert 0.75 < max(rates) <= 1.0
    assert min(rates) > 0


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "out of memory on cpu: a smaller --batch-size"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "out of memory on cpu"),
        (InputError("the loss is nan at step 3"), "the loss is nan at step 3"),
    ],
)
def test_an_architecture_that_fails_is_a_row_with_its_reason(task, sizes, tmp_path, monkeypatch, error, said):
    reported = []

    def failing(self):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(Learner, "learn", failing)
        patched.setattr(module, "draw_comparison", lambda *_: None)
        patched.setattr(module, "report_comparison", lambda results, *_: reported.extend(left_out(results)))
        (done,) = compare(task, sizes, LEARNING, tmp_path, architectures=("linformer",), memory=False, progress=False)
    assert done.skipped.startswith(said)
    assert reported[0].startswith(f"Linformer: not run, {said}")


def test_what_failed_is_tried_again(task, sizes, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(module, "_attempt", lambda name, setup: Result(name, name, skipped="out of memory"))
        names = ("linformer", "tfidf")
        done = compare(task, sizes, LEARNING, tmp_path, architectures=names, memory=False, progress=False)
    assert (done[0].accuracy, done[1].skipped) == (None, "")
    (again,) = compare(task, sizes, LEARNING, tmp_path, architectures=("linformer",), memory=False, progress=False)
    assert again.accuracy is not None


def test_faults_of_the_program_are_no_reasons(task, sizes, tmp_path, monkeypatch):
    monkeypatch.setattr(Learner, "learn", lambda self: torch.ones(2) @ torch.ones(3))
    with pytest.raises(RuntimeError, match="inconsistent tensor size"):
        compare(task, sizes, LEARNING, tmp_path, architectures=("linformer",), memory=False, progress=False)


def test_a_result_is_kept_before_its_memory_is_measured(task, sizes, tmp_path, monkeypatch):
    asked = []

    def killed(*given):
        asked.append(given)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "step_memory", killed)
    with pytest.raises(KeyboardInterrupt):
        compare(task, sizes, LEARNING, tmp_path, architectures=("linformer",), device="cpu", progress=False)
    kept = read_result(tmp_path, "linformer")
    assert kept.accuracy is not None
    assert [given[:4] for given in asked] == [("linformer", sizes, 3, CPU)]

    monkeypatch.setattr(module, "step_memory", lambda *given: (None, "killed"))
    done = compare(task, sizes, LEARNING, tmp_path, architectures=("linformer",), device="cpu", progress=False)
    assert done == [replace(kept, memory_reason="killed")]
    assert "Linformer: memory not measured, killed" in (tmp_path / "report.html").read_text()


def _batches(task, learning):
    model = torch.nn.Linear(1, 1)
    learner = Learner(model, task, learning, device=CPU, folder=None, name="", progress=False)
    return list(learner._batches(0))


def test_an_interrupted_architecture_ends_with_the_same_weights(task, sizes, tmp_path):
    def learner(folder):
        model = build("linformer", sizes, seed=0)
        return Learner(model, task, LEARNING, device=CPU, folder=folder, name="", progress=False)

    whole = learner(None)
    whole.learn()
    broken = learner(tmp_path)
    broken._resume()
    for step, places in enumerate(broken._batches(0)):
        if step == 4:
            break
        broken._step(places)
        if broken.progress.step % 3 == 0:
            broken.measure()
    broken._save()
    resumed = learner(tmp_path)
    done = resumed.learn()
    assert (done.step, done.best_step) == (6, whole.progress.best_step)
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, resumed.model.state_dict()[name]), name


def test_every_text_of_a_pass_is_seen_once_and_each_step_weighs_its_texts_alike(task):
    batches = _batches(task, LEARNING)
    assert sorted(place for batch in batches[:5] for place in batch) == list(range(40))
    assert batches[5] != batches[0]


def test_learning_reaches_what_can_be_learned(sizes, task):
    draw = random.Random(0)
    sequences = [np.array([draw.randint(1, 5)] * draw.randint(3, 9)) for _ in range(48)]
    part = type(task.train)(sequences, np.array([s[0] - 1 for s in sequences]), list("abcde"))
    simple = SequenceTask("which symbol", part, part, part, vocabulary=8)
    small = Sizes(**{**vars(sizes), "vocabulary": 8, "labels": 5, "dropout": 0.0})
    learning = LearningSettings(steps=40, batch_size=16, learning_rate=1e-2, evaluations=1)
    model = build("linformer", small, seed=0)
    learner = Learner(model, simple, learning, device=CPU, folder=None, name="", progress=False)
    learner.learn()
    assert learner.scores(simple.test).accuracy == 1.0


def test_texts_are_split_by_seed_and_cut(tmp_path):
    draw = random.Random(1)
    words = ["good", "bad", "long", "short", "near", "far"]
    texts = [" ".join(draw.choices(words, k=draw.randint(5, 60))) for _ in range(60)]
    given = Examples(texts, ["x" if "good" in text else "y" for text in texts])
    made = text_task(given, length=16, vocabulary=40)
    assert [len(part.labels) for part in (made.train, made.validation, made.test)] == [42, 6, 12]
    assert made.longest == 16
    assert made.digest() == text_task(given, length=16, vocabulary=40).digest()
    assert made.digest() != text_task(given, length=16, vocabulary=40, seed=1).digest()
    with pytest.raises(DataError, match="the corpus's characters alone"):
        text_task(given, length=16, vocabulary=12)


def test_texts_as_bytes_are_cut_and_keep_zero_for_padding():
    given = Examples(["near é far", "long"] * 15, ["x", "y"] * 15)
    made = text_task(given, length=7, vocabulary=None)
    found = {bytes((sequence - 1).tolist()) for part in made.parts for sequence in part.sequences}
    assert found == {"near é".encode(), b"long"}
    assert made.vocabulary == 257


def test_a_vocabulary_is_lowered_to_what_the_training_texts_support():
    given = Examples(["good near far", "bad long short"] * 15, ["x", "y"] * 15)
    made = text_task(given, length=16, vocabulary=4000)
    ids = [int(sequence.max()) for part in (made.train, made.validation, made.test) for sequence in part.sequences]
    assert max(ids) < made.vocabulary < 100
    small = text_task(given, length=16, vocabulary=made.vocabulary - 5)
    assert small.vocabulary <= made.vocabulary - 5


def test_pairs_are_one_sequence_of_two_parts(tmp_path):
    rows = [{"a": f"good near {place}", "b": "far short far", "label": "xy"[place % 2]} for place in range(30)]
    path = tmp_path / "pairs.jsonl"
    write_lines(path, rows)
    made = text_task(path, text_field="a", pair_field="b", length=64, vocabulary=200)
    alone = text_task(path, text_field="a", length=64, vocabulary=200)
    assert made.raw[0][0] == alone.raw[0][0] + " far short far"
    longer = [a - b for a, b in zip(made.train.lengths, alone.train.lengths, strict=True)]
    assert min(longer) >= 4  # three words or more pieces, and a [SEP]


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"batch_size": -1}, {"warmup": 2}, {"dtype": "float16"}])
def test_impossible_budgets_are_refused(wrong):
    (name, value), *_ = wrong.items()
    with pytest.raises(ConfigurationError, match=f"{name}=.?{value}"):
        LearningSettings(**wrong)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_every_architecture_is_trained_and_tested_in_both_dtypes(name, dtype, task, sizes, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_write", lambda *_: None)  # the other tests look at it
    settings = replace(LEARNING, dtype=dtype)
    (done,) = compare(task, sizes, settings, tmp_path, architectures=(name,), memory=False, progress=False)
    assert (done.skipped, done.steps) == ("", 6)
    assert done.accuracy is not None


def test_processes_that_share_a_folder_take_turns(task, sizes, tmp_path, monkeypatch):
    began = []
    real = module._attempt

    def attempt(name, *given, **options):
        began.append(name)
        held.close()  # the other process ends while this one works
        return real(name, *given, **options)

    # A folder is begun before anything in it is locked.
    compare(task, sizes, LEARNING, tmp_path, architectures=("tfidf",), memory=False, progress=False)
    with contextlib.ExitStack() as held:
        held.enter_context(locked(folder_of(tmp_path, "full") / LOCK))
        monkeypatch.setattr(module, "_attempt", attempt)
        names = ("full", "linformer")
        done = compare(task, sizes, LEARNING, tmp_path, architectures=names, memory=False, progress=False)
    assert began == ["linformer", "full"]
    assert [result.name for result in done] == ["full", "linformer"]


def test_a_name_with_dollars_is_no_formula(task, sizes, tmp_path):
    named = replace(task, name="cost_$1_$_x.jsonl")
    compare(named, sizes, LEARNING, tmp_path, architectures=("linformer",), memory=False, progress=False)
    assert (tmp_path / "comparison.png").exists()


def test_texts_that_are_no_task_are_refused_with_what_helps():
    with pytest.raises(DataError, match=r'"label" holds lists: a comparison takes one class a text'):
        text_task(Examples(["a b", "c d"], [["x"], ["y"]]), length=16, vocabulary=40)
    with pytest.raises(DataError, match=r"2 texts are too few to hold out 20% of them: give more texts$"):
        text_task(Examples(["a b", "c d"], ["x", "y"]), length=16, vocabulary=40)


def test_what_cannot_end_well_is_refused_before_the_first_training(task, sizes, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_attempt", lambda *_, **__: pytest.fail("a training was begun"))
    with pytest.raises(ConfigurationError, match="batch_size=64, but there are only 40 texts"):
        compare(task, sizes, replace(LEARNING, batch_size=64), tmp_path, architectures=("full",))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "sklearn", None)
        with pytest.raises(MissingDependencyError, match='package "sklearn"'):
            compare(task, sizes, LEARNING, tmp_path, architectures=("full", "tfidf"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingDependencyError, match=r'package "matplotlib".*\[train\]'):
        compare(task, sizes, LEARNING, tmp_path, architectures=("full",))
    assert not list(tmp_path.iterdir())


def test_unknown_architectures_are_refused_and_missing_ones_shown(task, sizes, tmp_path):
    with pytest.raises(ConfigurationError, match=r"\['mamba'\]: choose among full, longform"):
        compare(task, sizes, LEARNING, tmp_path, architectures=("full", "mamba"))
    rows = [Result("performer", "Performer", skipped="needs a package"), Result("full", "full", accuracy=0.5)]
    assert "| full | 50.00 |" in table_of(rows).markdown()
    assert left_out(rows) == ["Performer: not run, needs a package"]
