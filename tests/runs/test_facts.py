"""What a run ran on: the same facts for records and for people."""

import torch

from longform.runs.facts import environment, hardware, record_facts, versions
from longform_lab.records import Record, provenance

CPU = torch.device("cpu")


def test_a_cpu_run_names_no_gpu_and_says_its_dtype():
    found = environment(CPU, torch.float32)
    assert (found["device"], found["matrix products"]) == ("CPU", "float32")
    assert versions().items() <= found.items()
    assert hardware(CPU)["cpu"] in found["machine"]
    assert {"system", "code"} <= found.keys()


def test_a_record_takes_the_facts_of_a_device():
    facts = record_facts(CPU)
    record = Record(name="made-up", metrics={}, **facts)
    assert record.hardware["gpu"] is None
    assert provenance([vars(record)] * 2).count(facts["date"][:10]) == 1
