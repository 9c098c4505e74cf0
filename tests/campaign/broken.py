"""Files that are not what they should be: sound ones with bytes changed, and JSON and YAML of any value."""

import json
from typing import Any

from hypothesis import strategies as st

NUMBERS = ["0", "-1", "1e999", "-0.0", "NaN", "Infinity", "9" * 5000, "1e-400", str(2**63), "0x10", "1_000", "1.5"]
STRINGS = ['""', '"\\ud800"', '"\\u0000"', '"é\\n"', '"../.."', '"/"', '"a' + "b" * 300 + '"', '"--5"', '"inf"']
SCALARS = ["null", "true", "false", *NUMBERS, *STRINGS]
PIECES = [
    b"", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\n", b"\r", b"\r\n\r\n", b'"', b",", b"\xed\xa0\x80", b"[" * 2000,
    b"{" * 30, b'{"a":' * 1200, b"&a [*a]", b"*b", b"- " * 200, b"!!python/object:os.system", b"9" * 5000,
    b"\xe2\x80\xa8", b"\x7f" * 8, b"\xff" * 8, b"PK\x03\x04", b"\x1f\x8b", b"PAR1", b"null", b"[]", b"{}",
]  # fmt: skip


def values(*names: str) -> st.SearchStrategy[str]:
    """JSON of any value, as it is written; ``names``: keys that a reader looks for. Not all is what RFC 8259 allows."""
    keys = st.sampled_from([*map(json.dumps, names), '"x"', '""']) if names else st.sampled_from(['"x"', '"y"'])

    def containers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        pairs = st.tuples(keys, inner).map(": ".join)
        lists = st.lists(inner, max_size=4).map(lambda parts: f"[{', '.join(parts)}]")
        return lists | st.lists(pairs, max_size=5).map(lambda parts: f"{{{', '.join(parts)}}}")

    return st.recursive(st.sampled_from(SCALARS) | st.text(max_size=5).map(json.dumps), containers, max_leaves=12)


def changed(sound: Any) -> st.SearchStrategy[str]:
    """A sound value as JSON, in which some values, anywhere, are others or missing."""

    @st.composite
    def one(draw: st.DrawFn, value: Any) -> str | None:
        fate = draw(st.integers(0, 19))
        if fate == 0:
            return None
        if fate <= 2:
            return draw(st.sampled_from(SCALARS) | values())
        if isinstance(value, dict):
            pairs = [(json.dumps(name), draw(one(inner))) for name, inner in value.items()]
            return f"{{{', '.join(f'{name}: {inner}' for name, inner in pairs if inner is not None)}}}"
        if isinstance(value, list):
            return f"[{', '.join(inner for inner in (draw(one(each)) for each in value) if inner is not None)}]"
        return json.dumps(value)

    return one(sound).map(lambda text: text or "")


@st.composite
def spoilt(draw: st.DrawFn, *sound: bytes) -> bytes:
    """One of some sound files, with up to four places changed, or cut off; or bytes of no kind at all."""
    content = draw(st.sampled_from(sound) | st.binary(max_size=64))
    for _ in range(draw(st.integers(0, 4))):
        at, more = draw(st.integers(0, len(content))), draw(st.sampled_from(PIECES) | st.binary(max_size=8))
        over = draw(st.sampled_from([0, len(more), 1, 4, 200, len(content)]))
        content = content[:at] + more + content[at + over :]
    return content


def encoded(texts: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    """Texts as UTF-8."""
    return texts.map(lambda text: text.encode("utf-8", errors="surrogatepass"))
