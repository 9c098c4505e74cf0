"""The table of commands, and how errors leave."""

import errno
import os
import pkgutil
import re
import shlex
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from longform.errors import DataError
from longform_lab import commands as laboratory
from longform_text import cli
from longform_text.cli import main as command_line
from longform_text.cli.arguments import EXAMPLES, GROUPS, add_restart, command_parser, one_of, parse, put_in_groups
from longform_text.cli.main import COMMANDS, all_commands, command_module, main
from longform_text.cli.refusals import option_names


def fake_command(monkeypatch: pytest.MonkeyPatch, error: BaseException | None = None) -> list[Any]:
    """Make every command one with the option --some-name; returns what it was run with."""
    seen: list[Any] = []

    def run(settings: Any) -> None:
        seen.append(settings)
        if error is not None:
            raise error

    def parser() -> Any:
        made = command_parser("convert", "A fake.")
        made.add_argument("--some-name", type=int, default=3, help="a number")
        made.add_argument("--kind", **one_of(("mean", "cls"), null=True), default=None, help="a name")
        add_restart(made)
        return made

    def stand_in(name: str) -> Any:
        at_once = getattr(import_module(name), "AT_ONCE", False)
        return SimpleNamespace(parser=parser, run=run, AT_ONCE=at_once)

    monkeypatch.setattr(command_line, "import_module", stand_in)
    return seen


def test_prepared_shapes_are_few_unless_the_environment_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", raising=False)
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "7")
    main(["embed", "--help"])
    assert [os.environ[name] for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")] == ["64", "7"]


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, summary in all_commands().items():
        assert f"  {name}" in shown
        assert summary in shown


def test_the_table_has_every_command_and_nothing_else() -> None:
    modules = [
        import_module(f"{package.__name__}.{module.name}")
        for package in (cli, laboratory)
        for module in pkgutil.iter_modules(package.__path__)
    ]
    commands = {module.__name__ for module in modules if hasattr(module, "parser") and hasattr(module, "run")}
    found = {name: command_module(name) for name in all_commands()}
    assert {module.__name__ for module in found.values() if module} == commands
    assert [name for name, module in found.items() if not module or module.parser().prog != f"longform {name}"] == []


@pytest.mark.parametrize(
    ("given", "near"), [("convrt", "convert"), ("Embed", "embed"), ("--hepl", "--help"), ("fine-tune", "finetune")]
)
def test_a_misspelled_command_says_what_is_near(given: str, near: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([given]) == 2
    assert capsys.readouterr().err.endswith(f'; did you mean "{near}"?\n')


def test_a_name_near_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["xyz"]) == 2
    assert capsys.readouterr().err.endswith(", spectrum\n")


@pytest.mark.parametrize("given", ["--some-nmae=3", "--some_nmae", "--somename"])
def test_a_misspelled_option_says_what_is_near(
    given: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_command(monkeypatch)
    assert main(["convert", given]) == 2
    name = given.partition("=")[0]
    said = capsys.readouterr().err
    assert said == f'longform: error: there is no option "{name}"; did you mean "--some-name"?\n'


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--some-name", "many"], '--some-name is "many"; it is a whole number'),
        (["--some-name", "2.5"], '--some-name is "2.5"; it is a whole number'),
        (["--kind", "men"], '--kind is "men"; it is one of mean, cls or null; did you mean "mean"?'),
        (["--some", "3"], 'there is no option "--some"; did you mean "--some-name"?'),
        (
            ["--zzz"],
            'there is no option "--zzz"; longform convert --help lists all options; a text that begins with a dash '
            'comes after " -- "',
        ),
        (
            ["--restart", "true"],
            'unexpected argument "true": arguments without a name come before options; '
            "longform convert --help lists all options",
        ),
        ("some_nam: 3", 'the --config file has "some_nam", and there is no such option; did you mean "some_name"?'),
        ("some_name: many", '--some-name is "many"; it is a whole number'),
        ("kind: clss", '--kind is "clss"; it is one of mean, cls or null; did you mean "cls"?'),
        ("restart: 3", "Value not boolean: 3."),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(
    given: Any, said: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = fake_command(monkeypatch)
    if isinstance(given, str):
        (tmp_path / "a.yaml").write_text(given)
        given = ["--config", str(tmp_path / "a.yaml")]
    assert main(["convert", *given]) == 2
    assert capsys.readouterr().err == f"longform: error: {said}\n"
    assert seen == []


def test_what_is_lacking_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["embed", "folder"]) == 2
    said = "SOURCES, --output must be given; longform embed --help lists all options"
    assert capsys.readouterr().err == f"longform: error: {said}\n"


def test_usage_shows_what_an_option_may_be(capsys: pytest.CaptureFixture[str]) -> None:
    for command, shown in (
        ("embed", "--pooling {cls,mean,lead,cls_mean,cls_lead,max,null}"),
        ("finetune", "--task {auto,single-label,multi-label,regression,token-classification}"),
        ("pretrain", "--packing {full,documents,null}"), ("compare", "--scale {small,paper}"),
        ("reproduce", "{figure1,figure2,"),
    ):  # fmt: skip
        assert main([command, "--help"]) == 0
        assert shown in " ".join(capsys.readouterr().out.split())


def test_one_word_begins_anew() -> None:
    words = {"--restart", "--overwrite", "--resume", "--fresh", "--force"}
    found = {name: option_names(command_module(name).parser()) & words for name in all_commands()}
    assert set().union(*found.values()) == {"--restart"}
    begun = ("convert", "distill", "align", "finetune", "pretrain", "predict", "embed", "export", "benchmark", "demo")
    assert sorted(name for name, beginning in found.items() if beginning) == sorted(begun)


def test_options_of_subcommands_are_near_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "sts", "--data", "x", "--overlop", "2"]) == 2
    assert 'did you mean "--overlap"?' in capsys.readouterr().err


def test_no_command_and_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main(["train"]) == 2
    assert 'longform: error: there is no command "train"; there are: embed, search' in capsys.readouterr().err


def test_arguments_of_the_process_are_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = fake_command(monkeypatch)
    monkeypatch.setattr("sys.argv", ["longform", "convert", "--some-name", "7"])
    assert main() == 0
    assert seen[0].some_name == 7


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (DataError("a.txt\n  does not exist"), 2, "longform: error: a.txt does not exist"),
        (OSError(errno.ENOSPC, "No space left on device", "a.txt"), 2, "error: No space left on device: a.txt"),
        (KeyboardInterrupt(), 130, "longform: interrupted; nothing is kept, the same command begins anew"),
    ],
)
def test_errors_are_one_line_and_a_status(
    error: BaseException, status: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_command(monkeypatch, error)
    assert main(["convert"]) == status
    shown = capsys.readouterr()
    assert shown.err.strip().endswith(line)
    assert len(shown.err.strip().splitlines()) == 1
    assert shown.out == ""


@pytest.mark.parametrize(
    ("command", "settings", "said"),
    [
        ("embed", {"output": "a.jsonl", "restart": False}, "the same command goes on where it was"),
        ("embed", {"output": "a.jsonl", "restart": True}, "the same command without --restart goes on where it was"),
        ("embed", {"output": "-", "restart": False}, "nothing is kept, the same command begins anew"),
        ("finetune", {"output": "a"}, "the same command goes on where it was"),
        ("export", {"output": "a"}, "nothing is kept, the same command begins anew"),
    ],
)
def test_ctrl_c_says_what_the_same_command_does(
    command: str,
    settings: dict[str, Any],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake_command(monkeypatch, KeyboardInterrupt())
    monkeypatch.setattr(command_line, "parse", lambda *_: SimpleNamespace(**settings))
    assert main([command]) == 130
    assert capsys.readouterr().err == f"\nlongform: interrupted; {said}\n"


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_command(monkeypatch, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        main(["convert"])


def test_yaml_then_overrides_in_either_spelling(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    seen = fake_command(monkeypatch)
    (tmp_path / "a.yaml").write_text("some_name: 5\n")
    for arguments in (["--config", str(tmp_path / "a.yaml")], ["--some-name=6"], ["--some_name", "7"], []):
        assert main(["convert", *arguments]) == 0
    assert [settings.some_name for settings in seen] == [5, 6, 7, 3]


def test_spelling_reaches_subcommands() -> None:
    made, inner = command_parser("outer", "A fake."), command_parser("outer inner", "A fake.")
    inner.add_argument("--deep-name", type=int, default=1)
    made.add_subcommands(dest="task").add_subcommand("inner", inner)
    assert parse(made, ["inner", "--deep_name", "4"]).inner.deep_name == 4


@pytest.mark.parametrize(
    "said",
    [MemoryError("too much"), *map(RuntimeError, ("can't allocate memory: 8 bytes", "could not create a primitive"))],
)
def test_a_lack_of_memory_is_one_line(
    said: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_command(monkeypatch, said)
    assert main(["doctor"]) == 2
    assert capsys.readouterr().err.startswith(f"longform: error: out of memory ({said}): ")


def test_a_full_disk_is_one_line_where_a_library_has_no_error_for_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_command(monkeypatch, Exception("No space left on device (os error 28)"))
    assert main(["doctor"]) == 2
    assert capsys.readouterr().err == "longform: error: No space left on device (os error 28)\n"


@pytest.mark.parametrize("kind", [RuntimeError, Exception])
def test_a_fault_of_the_program_is_not_hidden(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    fake_command(monkeypatch, kind("a fault"))
    with pytest.raises(kind, match="a fault"):
        main(["doctor"])


@pytest.mark.parametrize("command", all_commands())
def test_a_help_begins_with_an_example_that_can_be_called(command: str) -> None:
    module = command_module(command)
    assert module is not None
    for name, shown in helps(command).items():
        example = shown.partition("\n")[0].removeprefix(f"usage: longform {name} ")
        parse(module.parser(), [*name.split()[1:], *shlex.split(example)])
        assert len(re.findall(r"^  -", shown.partition("\nadvanced:")[0], re.MULTILINE)) <= 25


def test_every_option_that_has_a_heading_exists() -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()
    there = set().union(*(option_names(command_module(name).parser()) for name in all_commands()))
    assert {option for names in GROUPS.values() for option in names.split()} - there == set()


def helps(command: str) -> dict[str, str]:
    """Helps of a command and its subcommands by name."""
    parser = command_module(command).parser()
    put_in_groups(parser)
    tasks = [action.choices for action in parser._actions if isinstance(action.choices, dict)]
    return {command: parser.format_help()} | {
        f"{command} {name}": each.format_help() for choices in tasks for name, each in choices.items()
    }
