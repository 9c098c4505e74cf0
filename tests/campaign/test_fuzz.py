"""Every reader given broken files: a LongformError or a result, and nothing else, in bounded time and memory."""

import contextlib
import io
import json
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from campaign.broken import changed, encoded, spoilt, values
from campaign.counting import FULL, Tally, scaled
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from longform.conversion.source import open_source
from longform.errors import LongformError
from longform.pretrained.sentence_folder import read_sentence_folder
from longform_lab.records import read_records
from longform_text.cli import embed, pretrain
from longform_text.cli.arguments import parse
from longform_text.cli.convert import read_lengths
from longform_text.data.text import read_documents
from longform_text.inference.encoders import Encoder
from longform_text.inference.resumable import ResumableOutput
from longform_text.training.labels import examples_of
from longform_text.training.pretraining.settings import load_preset
from longform_text.training.run_folder import RunFolder, checkpoints, is_whole

INPUTS = scaled(20, 500)  # of each reader
SECONDS = 20  # of the processor, for one input
WAITING = 300  # seconds for one input: on a busy machine most of them are waited for
MEMORY = 3 * 2**30  # bytes that reading one may map
IDENTITY = {"kind": "distillation", "data": "abc", "settings": {"seed": 0, "epochs": 1.0}}
RUN = {**IDENTITY, "steps": 4, "status": "running", "files": ["config.json", "1_Pooling/config.json"]}
ROWS = [{"step": 1, "loss": 2.5}, {"step": 2, "eval_accuracy": 0.5}]
RECORD = {
    "name": "speed",
    "metrics": {"ms": 1.5},
    "settings": {"n": 512},
    "units": {"ms": "ms"},
    "hardware": {"cpu": "x"},
}
OPTIONS = "sources: [texts.txt]\nmodel: x\noutput: out.jsonl\ndtype: float32\nmax_length: 12\noverlap: 1\n"
PRESET = {
    "description": "small",
    "tokenizer": {"vocab_size": 300},
    "model": {"hidden_size": 24},
    "training": {"seed": 1},
}


class TooLong(BaseException):
    """Of an input that took more than SECONDS; no Exception, which a reader might catch."""


class Reader(NamedTuple):
    """A file's ``name`` in a folder, its ``contents``, and what reads it there."""

    name: str
    contents: st.SearchStrategy[bytes]
    read: Callable[[Path], object]


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Inside, time and memory are limited."""

    def stop(*_: object) -> None:
        raise TooLong(f"more than {SECONDS} seconds of work, or {WAITING} in all")

    signals = {kind: signal.signal(kind, stop) for kind in (signal.SIGALRM, signal.SIGPROF)}
    limits = resource.getrlimit(resource.RLIMIT_AS)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, limits[1]))
    signal.alarm(WAITING)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for kind, before in signals.items():
            signal.signal(kind, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def parquet(rows: list[dict[str, Any]]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    return file.getvalue()


def odd_columns() -> st.SearchStrategy[bytes]:
    """Parquet files that are sound, of columns that Python has no values for."""
    import pyarrow
    import pyarrow.parquet

    types = [pyarrow.timestamp("s"), pyarrow.date64(), pyarrow.duration("us"), pyarrow.date32(), pyarrow.time64("us")]

    @st.composite
    def one(draw: st.DrawFn) -> bytes:
        kind = draw(st.sampled_from(types))
        width = 32 if kind.bit_width == 32 else 64
        number = draw(st.integers(-(2 ** (width - 1)), 2 ** (width - 1) - 1))
        odd = pyarrow.array([number], pyarrow.int64() if width == 64 else pyarrow.int32()).view(kind)
        raw = pyarrow.array([draw(st.binary(max_size=6))], pyarrow.binary())
        text = pyarrow.Array.from_buffers(pyarrow.string(), 1, raw.buffers())
        file = io.BytesIO()
        names = draw(st.sampled_from([["text", "other"], ["other", "text"]]))
        with contextlib.suppress(pyarrow.ArrowException, ValueError):  # what cannot be written cannot be read
            pyarrow.parquet.write_table(pyarrow.table([odd, text], names=names), file)
        return file.getvalue()

    return one()


def documents(path: Path) -> None:
    for text_field in ("text", "x"):
        with contextlib.suppress(LongformError):
            list(read_documents(path, text_field=text_field))


def labelled(path: Path) -> None:
    documents(path)
    examples_of(path)


@cache
def parsers() -> list[Any]:
    return [command.parser() for command in (embed, pretrain)]


def settings_file(path: Path) -> None:
    for parser in parsers():
        with contextlib.suppress(SystemExit, LongformError), contextlib.redirect_stderr(io.StringIO()):
            parse(parser, ["--config", str(path)])


def lengths_and_preset(path: Path) -> None:
    with contextlib.suppress(LongformError):
        read_lengths(str(path))
    load_preset(path)


def run_folder(path: Path) -> None:
    for restart in (False, True):
        content = path.read_bytes()
        with contextlib.suppress(LongformError):
            RunFolder(path.parent, IDENTITY, kept=True, restart=restart)
        path.write_bytes(content)


def trainer_state(path: Path) -> None:
    assert is_whole(path.parent) in (True, False)
    checkpoints(path.parent.parent)


def unfinished_output(path: Path) -> None:
    output = path.with_suffix("")  # out.jsonl.settings or .partial
    settings_path, partial = (output.with_name(output.name + end) for end in (".settings", ".partial"))
    if not settings_path.exists():
        settings_path.write_text(json.dumps(IDENTITY))
    if not partial.exists():
        partial.write_text('{"id": "a"}\n')
    try:
        for _ in range(2):
            ResumableOutput(output, IDENTITY).close()
    finally:
        for left in (settings_path, partial):
            left.unlink(missing_ok=True)


def converted(path: Path) -> None:
    open_source(path.parent)


def encoder(path: Path) -> None:
    with contextlib.suppress(LongformError):
        read_sentence_folder(path.parent)
    Encoder.from_pretrained(path.parent, device="cpu")


def readers(model: Path) -> dict[str, Reader]:
    """By what is read; ``model``: the folder of a sound sentence-transformers model."""
    jsonl = b'{"text": "one", "label": "a"}\n{"text": "two", "label": "b", "n": 1}\n'
    table = b'text,label,x\n"one, two",a,1\nthree,b,2\n'
    lines = st.lists(values("text", "label", "x"), max_size=3).map("\n".join)
    columns = parquet([{"text": "one", "label": "a", "x": [1, 2]}, {"text": "two", "label": None, "x": []}])
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"] = dict(list(tokenizer["model"]["vocab"].items())[:12])
    modules = json.loads((model / "modules.json").read_text())
    weights = save({"bias": torch.ones(3), "weight": torch.ones(2, 3, dtype=torch.bfloat16)})
    header = int.from_bytes(weights[:8], "little")
    sound = json.loads(weights[8 : 8 + header])

    def with_header(text: str) -> bytes:
        changed_header = text.encode("utf-8", errors="surrogatepass")
        return len(changed_header).to_bytes(8, "little") + changed_header + weights[8 + header :]

    def both(value: Any, *names: str) -> st.SearchStrategy[bytes]:
        return encoded(changed(value) | values(*names)) | spoilt(json.dumps(value).encode())

    return {
        "jsonl": Reader("a.jsonl", spoilt(jsonl) | encoded(lines), labelled),
        "json": Reader("a.json", spoilt(b"[" + jsonl.replace(b"}\n{", b"},{") + b"]") | encoded(lines), documents),
        "csv": Reader("a.csv", spoilt(table), labelled),
        "parquet": Reader("a.parquet", spoilt(columns) | odd_columns(), labelled),
        "text": Reader("a.txt", spoilt("one text\nö".encode()), documents),
        "settings": Reader("a.yaml", spoilt(OPTIONS.encode()) | both({"dtype": "float32", "seed": 1}), settings_file),
        "lengths and preset": Reader("b.yaml", both({**PRESET, "projected_length": [8, [4, 2]]}), lengths_and_preset),
        "run.json": Reader("run/run.json", both(RUN, *RUN), run_folder),
        "records.jsonl": Reader("records/records.jsonl", encoded(
            st.lists(changed(ROWS[0]) | values("loss", "step"), max_size=3).map("\n".join)
        ) | spoilt("\n".join(map(json.dumps, ROWS)).encode()), trainer_state),
        "settings of an output": Reader("out.jsonl.settings", both(IDENTITY, *IDENTITY), unfinished_output),
        "partial output": Reader("out.jsonl.partial", spoilt(b'{"id": "a"}\n{"id": "b"}\n'), unfinished_output),
        "benchmark records": Reader("benchmark.jsonl", both(RECORD, *RECORD), lambda path: read_records([path])),
        "safetensors": Reader("model/model.safetensors", spoilt(weights) | changed(sound).map(with_header), converted),
        "config.json": Reader("model/config.json", both(json.loads((model / "config.json").read_text())), converted),
        "modules.json": Reader("model/modules.json", both(modules, "type", "path"), encoder),
        "pooling": Reader("model/1_Pooling/config.json", both({"pooling_mode": "cls"}, "pooling_mode"), encoder),
        "tokenizer.json": Reader("model/tokenizer.json", both(tokenizer, "model", "vocab", "type"), converted),
        "tokenizer_config.json": Reader("model/tokenizer_config.json", both(
            json.loads((model / "tokenizer_config.json").read_text()), "model_max_length", "tokenizer_class"
        ), converted),
    }  # fmt: skip


NAMES = [
    "jsonl", "json", "csv", "parquet", "text", "settings", "lengths and preset", "run.json", "records.jsonl",
    "settings of an output", "partial output", "benchmark records", "safetensors", "config.json",
    "modules.json", "pooling", "tokenizer.json", "tokenizer_config.json",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # what a broken file makes another package say
@pytest.mark.parametrize("name", NAMES)
def test_a_broken_file_is_an_error_of_ours_or_a_result(
    name: str, tmp_path: Path, sentence_transformer_folder: Path, tally: Tally
) -> None:
    shutil.copytree(sentence_transformer_folder, tmp_path / "model")
    reader = readers(sentence_transformer_folder)[name]
    path = tmp_path / reader.name
    path.parent.mkdir(parents=True, exist_ok=True)

    @settings(max_examples=INPUTS, deadline=None, database=None, derandomize=not FULL)
    @given(reader.contents)
    def read(content: bytes) -> None:
        path.write_bytes(content)
        tally.inputs += 1
        with bounded(), contextlib.suppress(LongformError):
            reader.read(path)

    read()
