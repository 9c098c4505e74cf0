"""The field's own harness, mteb: its tasks by name, and queries and documents of one's own as a task of its kind."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoTokenizer

from longform.data.storage import atomic_write
from longform.errors import ConfigurationError, require
from longform.evaluation.comparison import Contender, RunSettings, how_read
from longform.evaluation.retrieval_data import RetrievalData, read_retrieval
from longform.inference.loading import pick_device, pick_dtype, position_limit
from longform.inference.sentence_modules import encoder_folder, load_sentence_transformer
from longform.inference.weights import reading
from longform.runs.digest import content_key
from longform.runs.files import read_json
from longform.runs.folder import open_run_folder
from longform.runs.subject import model_identity

RUN_FILE = "mteb_run.json"


def local_task(name: str, data: RetrievalData) -> Any:
    """A retrieval task of mteb that holds ``data``; its main score is nDCG@10."""
    retrieval = require("mteb.abstasks.retrieval", extra="mteb")
    dataset = require("datasets", extra="mteb").Dataset
    key = content_key(data.documents, data.questions, list(map(sorted, data.relevant)))
    metadata = require("mteb.abstasks.task_metadata", extra="mteb").TaskMetadata(
        name=name,
        description="Local queries and documents.",
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["und-Zyyy"],
        main_score="ndcg_at_10",
        dataset={"path": name, "revision": key},
    )
    ids = [f"query {place}" for place in range(len(data.questions))]
    split = {
        "queries": dataset.from_dict({"id": ids, "text": data.questions}),
        "corpus": dataset.from_dict(
            {
                "id": [document.id for document in data.documents],
                "title": [""] * len(data.documents),
                "text": [document.text for document in data.documents],
            }
        ),
        "relevant_docs": {
            query: {data.documents[place].id: 1 for place in sorted(places)}
            for query, places in zip(ids, data.relevant, strict=True)
        },
        "top_ranked": None,
    }

    class LocalRetrieval(retrieval.AbsTaskRetrieval):
        def load_data(self, *_: Any, **__: Any) -> None:
            self.dataset, self.data_loaded = {"default": {"test": split}}, True

    LocalRetrieval.metadata = metadata
    return LocalRetrieval()


def named_tasks(names: Sequence[str]) -> list[Any]:
    """mteb's tasks of these names. Raises ConfigurationError, with what is near it, for a name that mteb lacks."""
    mteb = require("mteb", extra="mteb")
    try:
        return [mteb.get_task(name) for name in names]
    except KeyError as error:
        raise ConfigurationError(f"mteb has no such task: {error.args[0]}") from error


def evaluate_tasks(
    model: str | Path,
    tasks: Iterable[Any],
    output: str | Path | None,
    *,
    device: str | None = None,
    dtype: str = "float32",
    batch_size: int = 32,
    max_length: int | None = None,
    progress: bool = True,
) -> list[dict[str, Any]]:
    """mteb's scores of a sentence-transformers folder or hub name: a row a task, with its main score x 100.

    Prompts are those of the folder. In the folder ``output`` each task's result is a file in mteb's own format; tasks
    whose result on the same data is there are not run again. None: nothing is written. Raises ConfigurationError for
    results of another model.
    """
    mteb = require("mteb", extra="mteb")
    folder = None if output is None else _opened(Path(output), {**model_identity(str(model)), "max_length": max_length})
    encoder: Any = None
    rows = []
    for task in tasks:
        place = None if folder is None else folder / f"{task.metadata.name}.json"
        found = None if place is None else _result(place, task)
        if found is None:
            encoder = encoder or _encoder(model, device=device, dtype=dtype, max_length=max_length)
            result = mteb.evaluate(
                encoder, [task], encode_kwargs={"batch_size": batch_size}, cache=None, show_progress_bar=progress
            ).task_results[0]
            if place is not None:
                with atomic_write(place) as file:
                    file.write(result.model_dump_json(indent=1))
            found = result.model_dump()
        rows.append(_row(found, task.metadata.main_score, place))
    return rows


def compare_mteb(
    models: Sequence[Contender],
    data: Any,
    documents: Any,
    settings: RunSettings,
    *,
    name: str = "LocalRetrieval",
    output: str | Path | None = None,
    batch_size: int = 32,
    **fields: str,
) -> list[dict[str, Any]]:
    """mteb's scores x 100: a record for each model and task. Texts are cut where a model ends, none run in chunks.

    ``data``: names of mteb's tasks, or queries, which with ``documents`` and ``fields`` (as in ``compare_retrieval``)
    make a task called ``name``. ``output``: a folder with one for each model, "longform" and "original", for results in
    mteb's format; what is there is not run again. ``batch_size``: texts in a batch.
    """
    names = [data] if isinstance(data, str) else data
    local = documents is not None
    tasks = [local_task(name, read_retrieval(data, documents, **fields))] if local else named_tasks(names)
    how: Any = {"device": str(pick_device(settings.device)), "dtype": settings.dtype, "progress": settings.progress}
    records = []
    for model in (model for model in models if model.strategy != "chunk-average"):
        place = None if output is None else Path(output) / model.name.partition(",")[0]
        config, most = _most_tokens(model.model)
        limit = model.max_length or most
        rows = evaluate_tasks(model.model, tasks, place, batch_size=batch_size, max_length=limit, **how)
        about = {"task": "mteb", **asdict(model), **how_read(model, limit, config)}
        records += [about | {"mteb_task": row.pop("task"), **row} for row in rows]
    return records


def _most_tokens(source: str) -> tuple[Any, int]:
    """The config of a folder or hub name, and the tokens that fit into it, though its settings may ask for fewer."""
    place = encoder_folder(source)
    with reading(f'"{source}"', source):
        config, tokenizer = AutoConfig.from_pretrained(place), AutoTokenizer.from_pretrained(place)
    assert tokenizer is not None
    return config, min(position_limit(config), tokenizer.model_max_length)


def _opened(folder: Path, identity: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    open_run_folder(folder, RUN_FILE, identity, what="results of mteb")
    return folder


def _encoder(model: str | Path, *, device: str | None, dtype: str, max_length: int | None) -> Any:
    kind = {"dtype": pick_dtype(dtype, pick_device(device or "auto"))}
    encoder = load_sentence_transformer(model, device=device, model_kwargs=kind)
    encoder.max_seq_length = max_length or encoder.max_seq_length
    return encoder


def _result(place: Path, task: Any) -> dict[str, Any] | None:
    """The task's result as it was written, None where there is none of the same data."""
    if not place.exists():
        return None
    found = read_json(place, way_out="delete it to run the task again")
    return found if found.get("dataset_revision") == task.metadata.dataset["revision"] else None


def _row(found: dict[str, Any], main_score: str, place: Path | None) -> dict[str, Any]:
    scores = [part["main_score"] for parts in found["scores"].values() for part in parts]
    row = {
        "task": found["task_name"],
        "main_score": main_score,
        "score": 100 * sum(scores) / len(scores),
        "seconds": found["evaluation_time"],
    }
    return row if place is None else row | {"file": str(place)}
