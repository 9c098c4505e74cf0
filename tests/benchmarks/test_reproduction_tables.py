"""The tables of docs/lab/reproduction.md, from records of their own."""

from longform_lab.tables.reproduction_tables import finetunings, of_this_version


def row(task, length, accuracy):
    return {
        "settings": {
            "original": "bundled", "healing_tokens": 0, "model": "original", "label": "original", "task": task,
            "seed": 0, "max_length": length,
        },
        "metrics": {"accuracy": accuracy},
    }  # fmt: skip


def test_texts_that_were_cut_at_another_length_are_rows_of_their_own():
    heads, body = finetunings([row("SST-2", 64, 0.9), row("IMDB", 256, 0.8), row("IMDB", 512, 0.85)])
    assert heads[:4] == ["original", "model", "SST-2", "IMDB"]
    assert [line[:4] for line in body] == [
        ["all-MiniLM-L6-v2, not healed", "original", "90.0 (93.1)", "80.0 (94.1)"],
        ["all-MiniLM-L6-v2, not healed, cut at 512 tokens", "original", "–", "85.0 (94.1)"],
    ]


def test_a_linformer_of_the_older_version_is_left_out():
    old, new, first = (row(task, 64, 0.9) for task in ("SST-2", "SST-2", "SST-2"))
    for each in (old, new):
        each["settings"] |= {"model": "linear-128-headwise", "label": "Linformer, 128"}
    new["settings"]["fit_length"] = False
    assert of_this_version([old, new, first]) == [new, first]


def test_groups_with_other_tasks_share_the_heads():
    heads, body = finetunings([row("SST-2", 64, 0.9), row("IMDB", 512, 0.85)])
    assert heads == ["original", "model", "SST-2", "IMDB", "average", "against the original", "seeds"]
    assert [line[2:5] for line in body] == [["90.0 (93.1)", "–", "90.00"], ["–", "85.0 (94.1)", "85.00"]]
