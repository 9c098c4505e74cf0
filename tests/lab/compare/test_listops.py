import random
from collections import Counter, defaultdict

import pytest

from longform.errors import ConfigurationError
from longform_lab.compare.listops import END, IDS, OPERATIONS, SYMBOLS, ListOpsShape, generate, listops
from longform_lab.compare.tasks import open_task
from longform_lab.compare.tfidf_baseline import logistic_regression

SMALL = ListOpsShape(min_length=5, max_length=40, max_depth=4, max_arguments=4)


def evaluate(symbols):
    """The value of an expression, by reading it from left to right: another way than the generator's."""
    stack, operations = [[]], []
    for symbol in (SYMBOLS[place] for place in symbols):
        if symbol in OPERATIONS:
            operations.append(symbol)
            stack.append([])
        elif symbol == END:
            values = stack.pop()
            stack[-1].append(OPERATIONS[operations.pop()](values))
        else:
            stack[-1].append(int(symbol))
    (value,) = stack[0]
    return value


def ids(expression):
    return [IDS[symbol] for symbol in expression.split()]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("7", 7),
        ("[MAX 2 9 4 ]", 9),
        ("[MIN 2 9 4 ]", 2),
        ("[MED 1 2 9 ]", 2),
        ("[MED 1 4 ]", 2),  # the mean of the middle two, cut
        ("[SM 8 7 6 ]", 1),
        ("[MAX 4 3 [MIN 2 3 ] 1 0 [MED 1 5 8 9 2 ] ]", 5),  # the paper's example
    ],
)
def test_operations_have_their_published_meaning(expression, value):
    assert evaluate(ids(expression)) == value


def test_labels_are_what_another_evaluator_finds_and_lengths_are_kept():
    made = listops(60, SMALL, seed=3, part="train")
    assert made.labels.tolist() == [evaluate(sequence) for sequence in made.sequences]
    assert min(made.lengths) >= 5
    assert max(made.lengths) <= 40
    assert all(sequence.min() > 0 for sequence in made.sequences)  # 0 is padding
    assert len(set(made.labels.tolist())) > 5


def test_depth_and_arguments_have_their_limits():
    for number in range(40):
        symbols, _ = generate(random.Random(number), SMALL)
        depth, deepest, arguments, most = 0, 0, [0], 0
        for symbol in symbols:
            if symbol == IDS["]"]:
                most, depth = max(most, arguments.pop()), depth - 1
            else:
                arguments[-1] += 1
                if symbol > IDS["9"]:
                    arguments.append(0)
                    depth += 1
            deepest = max(deepest, depth)
        assert deepest < SMALL.max_depth
        assert 2 <= most <= SMALL.max_arguments


def test_a_sequence_depends_on_seed_part_and_number_alone():
    def first(count, **which):
        return [sequence.tolist() for sequence in listops(count, SMALL, **which).sequences][:5]

    assert first(5, seed=0, part="train") == first(9, seed=0, part="train")
    assert first(5, seed=0, part="train") != first(5, seed=1, part="train")
    assert first(5, seed=0, part="train") != first(5, seed=0, part="test")


@pytest.mark.parametrize("wrong", [{"min_length": 9, "max_length": 8}, {"max_depth": 1}, {"max_arguments": 1}])
def test_impossible_shapes_are_refused(wrong):
    with pytest.raises(ConfigurationError, match=str(next(iter(wrong.values())))):
        ListOpsShape(**wrong)


@pytest.mark.nightly
def test_the_baseline_knows_the_outermost_operation_and_no_more():
    task = open_task("listops", length=40, progress=False).task
    labels_after = defaultdict(Counter)
    for sequence, label in zip(task.train.sequences, task.train.labels, strict=True):
        labels_after[sequence[0]][label] += 1
    likeliest = [labels_after[sequence[0]].most_common(1)[0][0] for sequence in task.test.sequences]
    _, found, spent = logistic_regression(task)
    assert found.accuracy == pytest.approx(float((likeliest == task.test.labels).mean()))
    assert spent["features"] == 4
    assert task.reads == "outermost operation"
