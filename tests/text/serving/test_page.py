"""The page in headless Chromium: a document, a question, the passage that lights up; trouble is told in words.

``apt-get install chromium chromium-driver``; without them the tests fail.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.support.ui import WebDriverWait

from longform_text.serving.engine import Engine
from longform_text.serving.settings import ServingSettings

pytestmark = pytest.mark.nightly
DRIVER, BROWSER = shutil.which("chromedriver"), shutil.which("chromium")
SHOTS = os.environ.get("LONGFORM_SCREENSHOTS")  # a folder to leave pictures in


@pytest.fixture(scope="module", params=["light", "dark"])
def browser(request: pytest.FixtureRequest) -> Iterator[Any]:
    if DRIVER is None or BROWSER is None:
        pytest.fail("there is no chromium with its driver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for option in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "window-size=1000,900"):
        options.add_argument(f"--{option}")
    if request.param == "dark":
        options.add_argument("--force-dark-mode")
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    made.set_script_timeout(120)
    made.name_of_theme = request.param
    yield made
    made.quit()


def find(browser: Any, id: str) -> Any:
    return browser.find_element("id", id)


def said(browser: Any, words: str) -> str:
    """What the page says, as soon as it has these words."""
    try:
        WebDriverWait(browser, 60).until(lambda _: words in find(browser, "said").text)
    except TimeoutException:
        raise AssertionError(f"the page says: {find(browser, 'said').text}") from None
    return find(browser, "said").text


def shot(browser: Any, name: str) -> None:
    if SHOTS:
        browser.save_screenshot(str(Path(SHOTS) / f"{name}-{browser.name_of_theme}.png"))


def opened(browser: Any, address: str) -> None:
    browser.get(f"http://{address}/ui")
    WebDriverWait(browser, 100).until(lambda _: "tokens at once" in find(browser, "model").text)


def paste(browser: Any, text: str) -> None:
    browser.execute_script("document.getElementById('given').value = arguments[0]", text)
    find(browser, "read").click()


def contrast(browser: Any, element: Any) -> float:
    """Contrast of text with the strongest colour that a passage has, as WCAG counts it."""
    browser.execute_script("arguments[0].style.background = 'rgb(var(--mark))'", element)
    lights = []
    for name in ("color", "background-color"):
        parts = [int(x) / 255 for x in re.findall(r"\d+", element.value_of_css_property(name))[:3]]
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(lights) + 0.05) / (min(lights) + 0.05)


WORDS = ["near and far", "a long text", "good or bad", "it is short"]
TEXT = "\n\n".join(
    f"{word} {number}. The 🙂 text is {word}, and so on and on." for number in range(40) for word in WORDS
)


def test_paste_ask_and_see_the_passage(browser: Any, address: str) -> None:
    opened(browser, address)
    shot(browser, "begin")
    paste(browser, TEXT + "\n\n<img src=x onerror=\"document.title='taken'\">")
    said(browser, "passages read")
    assert find(browser, "text").get_property("textContent").startswith(TEXT[:200])
    find(browser, "question").send_keys("is it short?\n")
    said(browser, "fits")
    best = browser.find_element("css selector", "#text .best")
    listed = browser.find_elements("css selector", "#found button span")
    assert best.text.split() == listed[0].get_property("textContent").split()
    assert len(listed) == 5
    assert best.location["y"] < 900  # in sight
    assert contrast(browser, best) >= 4.5
    assert browser.title == "Longform"
    passages = browser.find_elements("css selector", "#text span")
    assert len(browser.find_elements("css selector", "#bar span")) == len(passages)
    assert all(
        "🙂" in each.get_property("textContent") for each in passages if "The" in each.get_property("textContent")
    )
    shot(browser, "found")
    browser.set_window_size(390, 800)
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    shot(browser, "phone")
    browser.set_window_size(1000, 900)
    assert browser.get_log("browser") == []


def test_a_folder_is_searched_and_what_is_no_text_left_out(browser: Any, address: str, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(f"The near text {number} is good. " * 20 + "It is short and far.")
    (tmp_path / "scan.pdf").write_bytes(b"%PDF-1.4 text")
    (tmp_path / "image.bin").write_bytes(b"\x00\xff")
    opened(browser, address)
    find(browser, "walked").send_keys(str(tmp_path))
    words = said(browser, "of 3 documents read")
    assert all(name in words for name in ("scan.pdf", "image.bin", "are no text in UTF-8"))
    find(browser, "question").send_keys("is it short?\n")
    said(browser, "fits")
    listed = browser.find_elements("css selector", "#found button")
    assert {each.find_element("css selector", "em").text for each in listed} <= {"0.txt", "1.txt", "2.txt"}
    listed[-1].click()
    named = listed[-1].find_element("css selector", "em").get_attribute("title")
    assert find(browser, "text").get_attribute("aria-label") == named
    shot(browser, "folder")
    find(browser, "other").click()
    find(browser, "picked").send_keys(str(tmp_path / "scan.pdf"))
    said(browser, "scan.pdf is no text in UTF-8: save a PDF or another document as text first.")
    paste(browser, "%PDF-1.7 obj")
    said(browser, "This is a PDF, not its text")


def test_colours_are_absolute(browser: Any, address: str) -> None:
    """A question that fits worse than unrelated ones colours nothing, one that fits as a passage's own words all."""
    opened(browser, address)
    paste(browser, TEXT)
    said(browser, "passages read")
    for limits, words, share in (
        ("{low: 2, high: 3}", "Nothing here fits well", 0),
        ("{low: -2, high: -1}", "better", 1),
    ):
        browser.execute_script(f"limits = {limits}")
        find(browser, "question").send_keys(" short\n")
        said(browser, words)
        shares = browser.execute_script("return library[0].chunks.map((chunk) => chunk.share)")
        assert set(shares) == {share}
        listed = [each.text for each in browser.find_elements("css selector", "#found b")]
        assert listed
        assert all(each == "100 %" if share else re.fullmatch(r"-?\d\.\d\d", each) for each in listed)
        assert find(browser, "scale").is_displayed() == bool(share)


def test_reading_can_be_stopped(browser: Any, address: str) -> None:
    opened(browser, address)
    browser.execute_script("""
        const plain = window.fetch;
        window.fetch = (route, how) => route !== "chunks" ? plain(route, how) : new Promise((_, refuse) =>
          how.signal.addEventListener("abort", () => refuse(how.signal.reason)));
    """)
    paste(browser, TEXT)
    said(browser, "Reading")
    assert find(browser, "progress").is_displayed()
    find(browser, "stop").click()
    said(browser, "Stopped.")
    assert not find(browser, "working").is_displayed()
    assert find(browser, "given").is_displayed()


def test_nothing_given_and_another_document(browser: Any, address: str) -> None:
    opened(browser, address)
    find(browser, "read").click()
    said(browser, "There is no text yet")
    find(browser, "example").click()
    said(browser, "read. Ask a question")
    find(browser, "other").click()
    assert find(browser, "given").is_displayed()
    assert not find(browser, "reader").is_displayed()


def test_a_document_over_the_limit_and_a_key(browser: Any, serve_at: Any, engine: Engine) -> None:
    address = serve_at(engine, max_request_bytes=2000, api_key="secret")
    browser.get(f"http://{address}/ui")
    said(browser, "The server wants its key.")
    find(browser, "key").send_keys("secret")
    find(browser, "unlock").click()
    said(browser, "")
    paste(browser, TEXT)
    said(browser, "more than the 2,000 bytes")
    shot(browser, "over")


def test_labels(browser: Any, serve_at: Any, classifier_folder: Path) -> None:
    opened(browser, serve_at(Engine.load(str(classifier_folder), ServingSettings())))
    assert not find(browser, "search").is_displayed()
    paste(browser, "a long text")
    said(browser, "It took")
    rows = browser.find_elements("css selector", "#labels tr")
    assert {row.text.split()[0] for row in rows} == {"bad", "good", "odd"}
    paste(browser, "a long text " * 30)
    said(browser, "The end was not read: 28 tokens are beyond the model's limit.")
    shot(browser, "labels")


def test_a_server_that_stops_in_between(browser: Any, sentence_folder: Path) -> None:
    command = [sys.executable, "-m", "longform", "serve", str(sentence_folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        opened(browser, lines[-1].split("/")[2])
        process.kill()
    paste(browser, TEXT)
    said(browser, "The server does not answer. Is it still running?")
    shot(browser, "stopped")


def test_the_documents_of_the_server(browser: Any, serve_at: Any, engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "near.txt").write_text("The near 🙂 text is good. <img src=x onerror=\"document.title='taken'\">")
    (tmp_path / "far.html").write_text("<title>A page</title><p>The far text is bad.</p>")
    opened(browser, serve_at(engine, documents=str(tmp_path)))
    assert find(browser, "asking").is_displayed()
    assert find(browser, "given").is_displayed()
    WebDriverWait(browser, 60).until(
        lambda _: "are ready" not in asked(browser, "GOOD?", f"passages in {tmp_path.name}")
    )
    cards = {card.text.split(",")[0]: card for card in browser.find_elements("css selector", "#found article")}
    assert sorted(cards) == ["far.html", "near.txt"]
    assert [mark.text for mark in cards["near.txt"].find_elements("css selector", "mark")] == ["good"]
    cards["far.html"].find_element("css selector", "a").click()
    said(browser, "far.html is shown at characters 0-20")
    assert find(browser, "text").text == "The far text is bad."
    shot(browser, "document")
    assert asked(browser, "onerror", "passages in")
    assert any("<img src=x" in card.text for card in browser.find_elements("css selector", "#found article"))
    assert browser.title == "Longform"
    shot(browser, "documents")
    paste(browser, TEXT)
    said(browser, "passages read")
    assert asked(browser, " short", "fits")
    find(browser, "other").click()
    assert asked(browser, " good", "passages in")
    assert browser.get_log("browser") == []


def asked(browser: Any, question: str, words: str) -> str:
    find(browser, "question").clear()
    find(browser, "question").send_keys(f"{question}\n")
    return said(browser, words)
