"""Long conversations with questions about them, made of newsgroup posts: training pairs without a meeting.

A search that was trained on papers and articles alone has not met what transcripts of speech are like: several people,
several subjects one after another, little that is said outright. A document here is some threads of one newsgroup,
turn by turn, under the names of those who wrote them; a question asks, in words that any question about a discussion
has, for one thread's subject or for a phrase of one turn. Documents of one step come from kindred groups, so that the
others are near ones.
"""

import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import NamedTuple

FAMILIES = {
    "computers": ("comp.", "misc.forsale"),
    "leisure": ("rec.",),
    "science": ("sci.",),
    "politics": ("talk.politics",),
    "religion": ("alt.atheism", "soc.religion", "talk.religion"),
}
OF_SUBJECTS = (
    "Summarize the discussion about {}.",
    "What did the group discuss about {}?",
    "What was said about {}?",
    "What was the opinion of the others on {}?",
    "Summarize what was said on {}.",
    "Why was {} a problem?",
    "What were the difficulties with {}?",
)
OF_SPEAKERS = (
    "What did {speaker} think about {}?",
    "What did {speaker} say when discussing {}?",
    "Why did {speaker} disagree about {}?",
    "How did {speaker} explain {}?",
    "What did {speaker} recommend for {}?",
    "Summarize {speaker}'s opinions towards {}.",
)
ASIDES = ("Yeah .", "Okay .", "Mm - hmm .", "Right .", "Sure , yeah .", "Uh , no .", "I see .", "Well , okay .")
FILLERS = ("um ,", "uh ,", "you know ,", "I mean ,", "so", "well ,", "like ,")
CHARACTERS = 9000  # of a document at least; with the end of its last thread some 3,000 tokens, twice as many at most
POSTS_OF_A_THREAD = 5
QUESTIONS = 6
WORD = re.compile(r"[A-Za-z][A-Za-z0-9'-]+")


class Post(NamedTuple):
    """Group, subject and author of a post, and its own words without what it quotes."""

    group: str
    subject: str
    speaker: str
    text: str


class Conversation(NamedTuple):
    """A document and questions that ask for it; ``spans``: characters from-to of what each is about."""

    text: str
    questions: list[str]
    spans: list[tuple[int, int]]


def conversations(records: Iterable[Mapping[str, str]], seed: int = 0) -> dict[str, list[Conversation]]:
    """Conversations by family of newsgroups, the same for the same ``seed``.

    ``records``: with "text" (headers, an empty line, the body; a line ends with a tab or a line break) and "label" (the
    group).
    """
    posts = [post for record in records if (post := read_post(record["text"], record["label"])) is not None]
    rarity = rare_words([post.text for post in posts])
    draw = random.Random(seed)
    return {
        family: _of_family([post for post in posts if post.group.startswith(groups)], rarity, draw)
        for family, groups in FAMILIES.items()
    }


def read_post(text: str, group: str) -> Post | None:
    """The post, or None where it says less than 200 characters of its own."""
    header, _, body = text.replace("\t", "\n").partition("\n\n")
    subject = re.search(r"^Subject: (.*)$", header, re.MULTILINE)
    author = re.search(r"^From: (.*)$", header, re.MULTILINE)
    lines = [line.strip() for line in body.split("\n--\n")[0].splitlines()]
    own = [line for line in lines if not re.match(r"[>|:}#*]|.{0,12}>|.*(writes|wrote|writes):?$|In article", line)]
    said = re.sub(r"\n{2,}", "\n\n", "\n".join(own)).strip()
    if subject is None or author is None or len(said) < 200:
        return None
    title = re.sub(r"^((re|fwd?)(\[\d+\])?:\s*)+", "", subject[1], flags=re.IGNORECASE).strip()
    return Post(group, title, _name(author[1]), said)


def rare_words(texts: list[str]) -> dict[str, float]:
    """log(texts / texts with it) of each lower-case word that at least three texts have."""
    counts = Counter(word for text in texts for word in set(WORD.findall(text.lower())))
    return {word: math.log(len(texts) / count) for word, count in counts.items() if count >= 3}


def _name(author: str) -> str:
    """Name by which the author is called: the first word of the name in brackets, or of the address."""
    found = re.search(r"\(([^)]+)\)", author) or re.match(r'"?([^"<@]+)', author)
    words = WORD.findall(found[1]) if found else []
    return words[0].capitalize() if words else "Someone"


def _of_family(posts: list[Post], rarity: Mapping[str, float], draw: random.Random) -> list[Conversation]:
    """Conversations of the posts of some groups, each of one group; those that no question asks for are left out."""
    threads: dict[tuple[str, str], list[Post]] = defaultdict(list)
    for post in posts:
        threads[post.group, post.subject.lower()].append(post)
    by_group: dict[str, list[list[Post]]] = defaultdict(list)
    for (group, _), thread in threads.items():
        by_group[group] += [thread[i : i + POSTS_OF_A_THREAD] for i in range(0, len(thread), POSTS_OF_A_THREAD)]
    made = []
    for parts in by_group.values():
        draw.shuffle(parts)
        chosen: list[list[Post]] = []
        for part in parts:
            chosen.append(part)
            if sum(len(post.text) for thread in chosen for post in thread) >= CHARACTERS:
                made.append(_conversation(chosen, rarity, draw))
                chosen = []
    draw.shuffle(made)
    return [one for one in made if one.questions]


def _conversation(threads: list[list[Post]], rarity: Mapping[str, float], draw: random.Random) -> Conversation:
    turns: list[str] = []
    questions: list[tuple[str, int, int]] = []  # with its turns from-to
    for thread in threads:
        begun = len(turns)
        for post in thread:
            first = len(turns)
            paragraphs = [" ".join(part.split()) for part in post.text.split("\n\n")]
            for paragraph in filter(None, paragraphs):
                turns.append(f"{post.speaker}: {_spoken(paragraph, draw)}")
                if draw.random() < 0.3:
                    turns.append(f"{draw.choice(thread).speaker}: {draw.choice(ASIDES)}")
            phrase = rare_phrase(post.text, rarity, draw)
            if phrase:
                questions.append((_asked(phrase, post.speaker, draw), first, len(turns)))
        if len(WORD.findall(thread[0].subject)) >= 2:
            about = _asked(thread[0].subject.strip("?!.<>() "), draw.choice(thread).speaker, draw)
            questions.append((about, begun, len(turns)))
    draw.shuffle(questions)
    text, starts = "\n".join(turns)[: 2 * CHARACTERS], [0, *accumulate(len(turn) + 1 for turn in turns)]
    spans = [(starts[first], min(len(text), starts[end] - 1)) for _, first, end in questions[:QUESTIONS]]
    return Conversation(text, [asked for asked, _, _ in questions[:QUESTIONS]], spans)


def _spoken(text: str, draw: random.Random) -> str:
    """The text with a word of hesitation here and there."""
    words = []
    for word in text.split():
        if draw.random() < 0.04:
            words.append(draw.choice(FILLERS))
        words.append(word)
    return " ".join(words)


def _asked(about: str, speaker: str, draw: random.Random) -> str:
    if draw.random() < 0.5:
        return draw.choice(OF_SUBJECTS).format(about)
    return draw.choice(OF_SPEAKERS).format(about, speaker=speaker)


def rare_phrase(text: str, rarity: Mapping[str, float], draw: random.Random) -> str:
    """Two to five words of one clause, one of the four runs of that length whose words are rarest in the mean.

    "" where no such run begins and ends with a rare word. ``rarity``: as of ``rare_words``.
    """
    words = text.split()
    known = [rarity.get(word.lower().strip(".,;:!?"), 0.0) for word in words]
    length = draw.randint(2, 5)
    found = sorted(
        (
            (sum(known[start : start + length]) / length, start)
            for start in range(len(words) - length + 1)
            if min(known[start], known[start + length - 1]) > 2 and _one_clause(words[start : start + length])
        ),
        reverse=True,
    )[:4]
    if not found:
        return ""
    start = draw.choice(found)[1]
    return " ".join(words[start : start + length]).strip(".,;:!?")


def _one_clause(words: list[str]) -> bool:
    """Whether no sentence or bracket ends or begins among them."""
    return (
        all(re.fullmatch(r"[A-Za-z0-9'-]+", word) for word in words[:-1])
        and re.fullmatch(r"[A-Za-z0-9'-]+[.,;:!?]*", words[-1]) is not None
    )
