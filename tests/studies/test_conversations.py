"""Conversations made of posts, which train the shipped encoder."""

import random

from longform_lab.experiments.conversations import FAMILIES, conversations, rare_phrase, rare_words, read_post

OWN = "The telescope needs a longer exposure than last night, I think, because the nebula is far too faint. " * 3


def _post(subject="Re: Faint nebula photographs", body=OWN, author="ann@sky.org (Ann Bell)"):
    return (
        f"From: {author}\tSubject: {subject}\tLines: 9\t\tIn article <1@x> bob@x writes:\t> a quoted line\t\t{body}\t"
    )


def test_a_post_is_its_authors_own_words():
    post = read_post(_post(), "sci.space")
    assert post is not None
    assert (post.speaker, post.subject, post.text) == ("Ann", "Faint nebula photographs", OWN.strip())
    assert read_post(_post(body="too short"), "sci.space") is None
    assert read_post(OWN, "sci.space") is None  # no headers


def test_a_phrase_is_of_words_that_few_texts_have():
    texts = ["common words everywhere here"] * 40 + ["a quaternion gimbal everywhere"] * 3
    assert rare_phrase("common words everywhere", rare_words(texts), random.Random(0)) == ""
    said = "there was a quaternion gimbal. Then common words"
    found = {rare_phrase(said, rare_words(texts), random.Random(seed)) for seed in range(20)}
    assert found == {"", "quaternion gimbal"}  # "" where a longer one was asked for


def test_conversations_are_the_same_every_time_and_of_kindred_groups():
    groups = ["sci.space", "sci.med", "rec.autos"]
    posts = [
        {
            "text": _post(f"Faint nebula {place % 7}", f"{OWN} zirconium filament {place % 5}."),
            "label": groups[place % 3],
        }
        for place in range(120)
    ]
    made = conversations(posts)
    assert made == conversations(posts)
    assert set(made) == set(FAMILIES)
    assert [bool(made[family]) for family in ("science", "leisure", "politics")] == [True, True, False]
    for one in made["science"]:
        assert "Subject:" not in one.text
        assert "quoted" not in one.text
        assert one.text.startswith("Ann: ")
        assert 1 <= len(one.questions) == len(one.spans) <= 6
        for start, stop in one.spans:
            assert one.text[start:stop].startswith("Ann: ")
            assert one.text[stop : stop + 1] in ("\n", "")
