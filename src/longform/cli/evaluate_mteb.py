"""``longform evaluate mteb``: the field's own harness runs a folder, on its tasks or on local queries and documents."""

from typing import Any

from longform.cli.arguments import (
    RETRIEVAL_FIELDS,
    add_retrieval_fields,
    command,
    command_parser,
    print_next,
    print_table,
)
from longform.errors import ConfigurationError


def task_parser() -> Any:
    """Options of the task."""
    made = command_parser("evaluate mteb", "Score a sentence-transformers folder with mteb, its prompts included.")
    made.add_argument("model", help="sentence-transformers folder or hub name")
    made.add_argument(
        "--output", required=True, help="folder: a result a task, in mteb's format; what is there is kept"
    )
    made.add_argument("--tasks", nargs="+", default=[], help="names of mteb's tasks, which it downloads")
    made.add_argument("--queries", type=str | None, default=None, help="local data: .jsonl, .parquet, ...")
    made.add_argument("--documents", type=str | None, default=None, help="as queries")
    made.add_argument("--name", default="LocalRetrieval", help="of the task that local data make")
    add_retrieval_fields(made)
    made.add_argument(
        "--max-length", type=int | None, default=None, help="tokens taken of a text; null: as the folder says"
    )
    made.add_argument("--batch-size", type=int, default=32, help="texts in a batch")
    made.add_argument("--device", type=str | None, default=None, help="null: a GPU where there is one")
    return made


def run_task(task: Any) -> None:
    """Run the tasks, print the table."""
    from longform.evaluation.mteb_tasks import evaluate_tasks, local_task, named_tasks
    from longform.evaluation.retrieval_data import read_retrieval
    from longform.runs.output import sole_output

    if (task.queries is None) != (task.documents is None) or not (task.tasks or task.queries):
        raise ConfigurationError("give --tasks, or local data by --queries and --documents, or all three")
    with sole_output(task.output, inputs=(task.model, task.queries, task.documents), folder=True) as folder:
        tasks = named_tasks(task.tasks)
        if task.queries is not None:
            data = read_retrieval(task.queries, task.documents, **{name: task[name] for name in RETRIEVAL_FIELDS})
            tasks.append(local_task(task.name, data))
        options = {"device": task.device, "batch_size": task.batch_size, "max_length": task.max_length}
        print_table("mteb", evaluate_tasks(task.model, tasks, folder, **options))
    print_next(command("embed", task.model, "texts.jsonl", "--output", "vectors.jsonl"))
