"""Trials, errors, and the folder of ``longform bound``."""

import json
from dataclasses import replace

import pytest
import torch
from tiny_models import save_bert, save_longform

from longform.cli.main import main
from longform_lab.bounds import run as bound
from longform_lab.bounds.attention_samples import AttentionSample, aligned_sample, random_sample, spread
from longform_lab.bounds.compression_error import ErrorRow, compression_rows, decomposed
from longform_lab.bounds.fitted_projections import fitted_convolution, fitted_dense, mean_projections
from longform_lab.bounds.monte_carlo import failure_cells
from longform_lab.bounds.random_projection import gaussian_projection
from longform_lab.bounds.results import BoundResult
from longform_lab.bounds.settings import BoundSettings


def test_failures_are_counted_as_they_are_defined():
    sample = random_sample(length=9, head_size=3, generator=torch.Generator().manual_seed(0))
    cells = failure_cells(sample, slots=[5], epsilons=[0.6], trials=2, generator=torch.Generator().manual_seed(7))
    found = {cell.event: cell.failure for cell in cells}
    generator = torch.Generator().manual_seed(7)
    maps, values = sample.logits[0].softmax(-1).double(), sample.values[0].double()
    counts = dict.fromkeys(("row", "map", "all", "vector", "literal"), 0)
    for _ in range(2):
        drawn = gaussian_projection(5, 9, generator=generator, device=torch.device("cpu")).double()
        for head in range(4):
            off = maps[head] @ drawn.T @ drawn @ values[head] - maps[head] @ values[head]
            missed = [[abs(off[i, c]) > 0.6 * maps[head, i].norm() * values[head, :, c].norm() for c in range(3)]
                      for i in range(9)]  # fmt: skip
            counts["row"] += sum(map(sum, missed))
            counts["map"] += sum(any(row[c] for row in missed) for c in range(3))
            counts["all"] += any(map(any, missed))
            counts["vector"] += sum(off[i].norm() > 0.6 * maps[head, i].norm() * values[head].norm() for i in range(9))
            exact = maps[head] @ values[head]
            counts["literal"] += sum(off[:, c].norm() > 0.6 * exact[:, c].norm() for c in range(3))
    of = {"row": 27, "map": 3, "all": 1, "vector": 9, "literal": 3}
    for event, count in counts.items():
        assert found[event] == pytest.approx(float(count) / (8 * of[event])), event
    assert 0 < found["row"] < 1


def test_no_bound_below_1_is_broken_on_the_hardest_pairs():
    sample = aligned_sample(length=24, head_size=4, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)
    cells = failure_cells(sample, slots=[16, 64, 256], epsilons=[0.3, 0.6], trials=40, generator=generator)
    judged = [cell for cell in cells if cell.says_something and cell.event != "construction"]
    assert len({round(float(head[0, 0]), 6) for head in sample.logits[0]}) == 64
    assert len(judged) >= 10
    assert not any(cell.broken for cell in judged)
    assert max(cell.failure / cell.bound for cell in judged) > 0.1  # the bounds are put to the test
    rows, columns = sample.logits.softmax(-1), sample.values.transpose(2, 3)
    assert float(torch.nn.functional.cosine_similarity(rows, columns, dim=-1).min()) > 0.9999
    variance = {cell.k: cell.failure for cell in cells if (cell.event, cell.epsilon) == ("row", 0.3)}
    assert variance[16] > variance[64] > variance[256]


def test_theorem_2_as_constructed_misses_values_that_have_a_mean():
    sample = random_sample(length=24, head_size=4, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)
    shifted = AttentionSample("mean", None, sample.logits / 10, 1.0 + 0.1 * sample.values)
    cells = failure_cells(shifted, slots=[512], epsilons=[0.5], trials=4, generator=generator)
    found = {cell.event: cell for cell in cells}
    assert found["vector"].failure == 0.0
    assert found["construction"].failure > 0.9
    assert found["construction"].broken


def heads_that_shift(texts, *, seed, length=12):
    """Maps that look at the neighbours on the right: the same structure in every text, so that E and F can learn it."""
    logits = 4.0 * torch.eye(length).roll(1, 1) + 2.0 * torch.eye(length).roll(2, 1)
    noise = 0.1 * torch.randn(texts, 2, length, length, generator=torch.Generator().manual_seed(seed))
    return AttentionSample("layer 3", 2, logits + noise, torch.randn(texts, 2, length, 3))


def test_the_svd_is_lowest_and_fitting_helps_on_texts_that_were_not_seen():
    fit, held_out = heads_that_shift(6, seed=1), heads_that_shift(2, seed=2)
    settings = BoundSettings(length=[12], projected_length=[5], fit_steps=60, learning_rate=0.02, seed=1)
    rows = compression_rows(fit, held_out, decomposed(held_out), 5, settings)
    assert {row.layer for row in rows} == {2}
    errors = {(row.method, row.fitted_to): row for row in rows}
    assert all(row.above_best > 0 for row in rows if row.method != "SVD")
    best, mean = errors["SVD", None], errors["mean", None]
    tail = torch.linalg.svdvals(held_out.logits.softmax(-1))
    expected = (tail[..., 5:].square().sum(-1) / tail.square().sum(-1)).sqrt()
    assert best.map_error == pytest.approx(float(expected.mean()), rel=1e-4)
    assert errors["E and F, fitted", "map"].map_error < 0.95 * mean.map_error
    assert errors["E and F, fitted", "output"].seen_output_error < mean.output_error
    assert errors["random, theorem 1", None].map_error > 1.0


def test_projections_that_are_fitted_have_their_form():
    sample = heads_that_shift(2, seed=1)
    means = mean_projections(5, 12)  # runs of 3: only 4 slots have tokens
    assert means.key.shape == (4, 12)
    assert means.key.sum(1).tolist() == pytest.approx([1.0] * 4)
    given = {"objective": "output", "steps": 3, "learning_rate": 0.01, "seed": 0}
    assert fitted_dense(sample, 5, **given).key.shape == (2, 5, 12)
    key, value = fitted_convolution(sample, 5, **given)
    assert key.shape == value.shape == (2, 4, 12)
    assert torch.equal(key[:, 0, :3], key[:, 3, 9:])
    assert not torch.equal(key, value)
    assert int((key != 0).sum()) == 2 * 12
    assert [spread(6, 3), spread(6, 9), spread(6, 1)] == [[0, 2, 5], [0, 1, 2, 3, 4, 5], [0]]


@pytest.mark.parametrize("objective", ["map", "output"])
@pytest.mark.parametrize("fitted", [fitted_dense, fitted_convolution])
def test_a_projection_without_error_stays_as_it_is(fitted, objective):
    """k = n begins as the identity, where the error is 0 and its root has no gradient."""
    found = fitted(heads_that_shift(2, seed=1), 12, objective=objective, steps=4, learning_rate=0.01, seed=0)
    for matrix in found:
        torch.testing.assert_close(matrix, torch.eye(12).expand(2, 12, 12), atol=0.05, rtol=0)


def test_an_error_below_the_svds_by_rounding_is_no_better_one():
    def found(above):
        kept = ErrorRow("SVD", None, 0, 12, 12, *[0.0] * 2, None, None, 0.0)
        return BoundResult(None, None, [], [], [kept, replace(kept, method="mean", above_best=above)]).closest_to_best()

    assert [found(above) for above in (-6e-7, 0.25, -0.5)] == [0.0, 0.25, -0.5]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    lines = [json.dumps({"text": "the long text is near and " * (3 + repeats) + "far"}) for repeats in range(4)]
    path.write_text("\n".join(lines))
    return str(path)


SMALL = ["--length", "[9,16]", "--epsilon", "[0.5]", "--trials", "2", "--trial-slots", "[32]", "--trial-texts", "1",
         "--projected-length", "[4,8]", "--fit-texts", "2", "--held-out-texts", "2", "--fit-steps", "2"]  # fmt: skip


def test_a_folder_with_a_report_that_goes_on_and_refuses_other_settings(
    corpus, tmp_path, tiny_tokenizer, monkeypatch, capsys
):
    model, output = str(save_bert(tmp_path / "tinybert", tiny_tokenizer)), tmp_path / "out"
    given = ["bound", model, "--text", corpus, "--output", str(output), *SMALL]
    measured = []
    real = bound.compression_rows

    def counted(*rest):
        measured.append(rest[3])
        if len(measured) == 2:
            raise KeyboardInterrupt
        return real(*rest)

    monkeypatch.setattr(bound, "compression_rows", counted)
    assert main(given) == 130
    assert main(given) == 0
    assert measured == [4, 8, 8, 4, 8]  # two layers
    said = capsys.readouterr().out
    assert "theorem 1: n rows, one column" in said
    assert "the SVD's map error is the lowest" in said
    records = [json.loads(line) for line in (output / "records.jsonl").read_text().splitlines()]
    assert {row["event"] for row in records} == {"run", "guarantee", "trial", "error"}
    assert records[0]["settings"]["length"] == [9, 16]
    assert len([row for row in records if row["event"] == "error"]) == 2 * 2 * 8
    assert {row["source"] for row in records if row["event"] == "trial"} == {"random", "aligned", "layer 1", "layer 2"}
    page = (output / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 3
    assert "http" not in page
    assert main([*given, "--trials", "3"]) == 2
    assert "trials: 2 there, 3 now" in capsys.readouterr().err


def test_a_folder_goes_on_with_the_same_model_texts_and_field_alone(corpus, tmp_path, tiny_tokenizer, capsys):
    model = str(save_bert(tmp_path / "tinybert", tiny_tokenizer))
    given = ["--output", str(tmp_path / "out"), *SMALL, "--length", "[9]", "--projected-length", "[4]"]
    assert main(["bound", model, "--text", corpus, *given]) == 0
    other = str(save_bert(tmp_path / "elsewhere" / "tinybert", tiny_tokenizer))
    changed = json.dumps({"text": "another text " * 9}) + "\n"
    for now, said in (
        ([other, "--text", corpus], f"model: {model} there, {other} now"),
        ([model, "--text", corpus, "--text-field", "body"], "text_field: text there, body now"),
        ([model, "--text", corpus], "corpus_key: "),
    ):
        if said == "corpus_key: ":
            with open(corpus, "a") as file:
                file.write(changed)
        assert main(["bound", *now, *given]) == 2
        assert said in capsys.readouterr().err


def test_maps_that_no_machine_holds_are_refused_before_the_first_trial(tmp_path, capsys):
    assert main(["bound", "--length", "[1000000]", "--output", str(tmp_path / "out")]) == 2
    assert "length=1,000,000: the trials' maps take" in capsys.readouterr().err


def test_k_alone_is_printed(capsys):
    assert main(["bound", "--length", "[512]", "--epsilon", "[0.25,0.5]", "--projected-length", "[128]"]) == 0
    said = capsys.readouterr().out
    assert "666" in said
    assert "250" in said


def test_k_alone_for_texts_shorter_than_the_scale_s_slots(capsys):
    assert main(["bound", "--length", "20"]) == 0  # one number is a list of one
    assert "20" in capsys.readouterr().out


@pytest.mark.nightly
def test_a_printed_configuration_does_what_the_line_does(corpus, tmp_path, tiny_tokenizer, capsys):
    model, output = str(save_bert(tmp_path / "model", tiny_tokenizer)), tmp_path / "out"
    places = ["bound", model, "--text", corpus, "--output", str(output)]
    assert main([*places, *SMALL, "--layer-count", "9", "--head-count", "1", "--print_config"]) == 0
    config = tmp_path / "bound.yaml"
    config.write_text(capsys.readouterr().out)
    assert main(["bound", "--config", str(config)]) == 0
    rows = [json.loads(line) for line in (output / "records.jsonl").read_text().splitlines()]
    assert rows[0]["model"]
    assert json.loads((output / "bound.json").read_text())["layer_count"] == 9


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--epsilon", "[1.5]"], "epsilon is 1.5"),
        (["--scale", "huge"], "it is one of small, paper"),
        (["--text", "somewhere.txt"], "--text is for a model"),
        (["MODEL"], "give --output"),
        (["MODEL", "--output", "OUT"], "Give --text FILE"),
        (["MODEL", "--output", "OUT", "--text", "-"], '"-" cannot be read again'),
        (["MODEL", "--output", "OUT", "--text", "CORPUS", *SMALL, "--fit-texts", "9"], "4 of 4 texts have 16 tokens"),
        (["MODEL", "--output", "OUT", "--text", "CORPUS", *SMALL, "--length", "[40]"], "takes 32 tokens"),
        (["OURS", "--output", "OUT", "--text", "CORPUS", *SMALL], "does not compute softmax"),
    ],
)
def test_wrong_options_are_one_clear_line(corpus, tmp_path, tiny_tokenizer, capsys, more, message):
    made = {"MODEL": save_bert, "OURS": save_longform}
    places = {"OUT": str(tmp_path / "out"), "CORPUS": corpus}
    for name in set(more) & set(made):
        places[name] = str(made[name](tmp_path / name, tiny_tokenizer))
    assert main(["bound", *(places.get(word, word) for word in more)]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.glob("out/parts/*"))  # no trials before the texts are known to be enough
