"""The demo's second task: an encoder is converted, healed and fine-tuned to tell licence texts apart, in six steps."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from longform.runs.facts import environment
from longform.runs.files import write_lines
from longform_lab.demo import steps
from longform_lab.demo.comparing import compare
from longform_lab.demo.pipeline import Pipeline
from longform_lab.demo.report import growth, write_report
from longform_lab.demo.scale import Scale, scale_named

HEADINGS = 6


def run_classifying(pipeline: Pipeline, scale: str, seed: int, say: Callable[[str], None]) -> None:
    """The steps, a report, and the classifier in a folder. Raises ConfigurationError for another scale."""
    _all_steps(pipeline, scale_named(scale, seed=seed), seed, pipeline.folder, say)


def _all_steps(pipeline: Pipeline, scale: Scale, seed: int, folder: Path, say: Callable[[str], None]) -> None:
    def head(number: int, title: str) -> None:
        say(f"\n[{number}/{HEADINGS}] {title}")

    head(1, f"Reading texts, converting the encoder to {scale.length:,} tokens")
    prepared = pipeline.step("prepare", lambda: steps.prepare(pipeline, scale, seed=seed))
    say(prepared["summary"])
    head(2, f"Healing: the original teaches the Longform on {prepared['facts']['unlabelled']:,} texts without labels")
    healed = pipeline.step("heal", lambda: steps.heal(pipeline, scale))
    say(f"cosine to the original {healed['before']['cosine']:.4f} before, {healed['after']['cosine']:.4f} after")
    chosen = pipeline.step("choose", lambda: steps.choose_texts(pipeline, scale, healed))
    if chosen["texts"] < chosen["of"]:
        say(f"Of {chosen['of']} training texts there is time to fit heads to {chosen['heads']} and to fine-tune on "
            f"{chosen['texts']}.")  # fmt: skip
    pipeline.step("start", lambda: steps.start(pipeline, scale, texts=chosen["heads"]))
    for number, (name, length) in enumerate(scale.lengths.items(), start=3):
        head(number, f"Fine-tuning ({name}): {chosen['texts']} labelled texts, up to {length:,} tokens")
        pipeline.step(f"train {name}", lambda name=name: steps.train(pipeline, scale, name, texts=chosen["texts"]))
    head(5, "Testing both on texts that neither has seen")
    for name, length in scale.lengths.items():
        scores = pipeline.step(f"test {name}", lambda name=name: steps.score(pipeline, name))
        say(f"{name} at {length:,} tokens: accuracy {scores['accuracy']:.4f}, macro-F1 {scores['macro_f1']:.4f}")
    tests = [pipeline.results[f"test {name}"] for name in scale.lengths]
    pipeline.step("difference", lambda: compare(*tests, seed=seed))
    head(6, "Time and memory of one document against its length")
    pipeline.step("measure", lambda: steps.measure(pipeline, scale))
    _finish(pipeline, folder)


def _finish(pipeline: Pipeline, folder: Path) -> None:
    """Model, report and records; then the mark that all is done."""
    steps.place_model(pipeline)
    made_on = environment()
    write_report(folder / "report.html", pipeline.results, made_on, folder=folder.as_posix(), pictures=pipeline.work)
    write_lines(folder / "records.jsonl", records(pipeline, made_on))
    pipeline.step("finish", dict)


def records(pipeline: Pipeline, made_on: dict[str, str]) -> list[dict[str, Any]]:
    """Every measurement as one flat list: a record of the run, one of each step, and those within the steps."""
    rows: list[dict[str, Any]] = [{"record": "run", **pipeline.identity, **made_on}]
    for name, result in pipeline.results.items():
        rows.append({"record": "step", "name": name, **{key: x for key, x in result.items() if key != "rows"}})
        rows += [{"record": name, **row} for row in result.get("rows", ())]
    return rows


def summary(results: dict[str, dict[str, Any]], folder: Path) -> str:
    """About ten lines for the terminal."""
    long, original, gain = results["test longform"], results["test original"], results["difference"]
    tuned, facts, report = results["train longform"], results["prepare"]["facts"], results["prepare"]["report"]
    low, high = (100 * value for value in gain["interval"])
    minutes = sum(result["seconds"] for result in results.values()) / 60
    part = gain["long"]
    lines = [
        f"Longform demo: {report['source_length']:,} -> {report['max_length']:,} tokens, {minutes:.1f} minutes",
        f"  data        {facts['texts']:,} texts, {len(long['labels'])} categories; heads fitted to "
        f"{results['choose']['heads']}, fine-tuned on {tuned['texts']}, "
        f"tested on {len(long['truth'])}",
        f"  accuracy    Longform {long['accuracy']:.1%}   original {original['accuracy']:.1%}   "
        f"({100 * gain['accuracy']:+.1f} points, 95 % interval {low:+.1f} to {high:+.1f})",
        f"  macro-F1    Longform {long['macro_f1']:.1%}   original {original['macro_f1']:.1%}",
    ]
    if part["texts"]:
        lines.append(f"  long texts  Longform {part['longform']:.1%}   original {part['original']:.1%}   "
                     f"(accuracy on the {part['texts']} texts that the original cuts)")  # fmt: skip
    lines += [
        f"  healing     cosine to the original {results['heal']['before']['cosine']:.4f} -> "
        f"{results['heal']['after']['cosine']:.4f}",
        f"  length      {growth(results['measure']['rows'])}",
        f"  model       {folder}/model",
        f"  report      {folder}/report.html  (records: {folder}/records.jsonl)",
        f"  next        longform predict {folder}/model FILES --output labels.jsonl",
    ]
    return "\n".join(lines)
