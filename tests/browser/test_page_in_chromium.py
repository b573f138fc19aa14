"""The page in headless Chromium: `make web-test` brings what these tests need, and without it they are skipped.

SFNODE_CHROMIUM: the browser's program, where it is not found by its name. SFNODE_AXE: the file axe.min.js.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from sfnode.page.report import write_report
from sfnode.quality_figures import SampleAnswer
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.evaluations import EvaluatedStep, Gain
from tests.browser.served_pages import served_in_thread
from tests.support.ledgers import signer
from tests.support.made_pages import MadeNode

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page as Tab

CHROMIUM = os.environ.get("SFNODE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
AXE = Path(os.environ.get("SFNODE_AXE", "build/web-test/node_modules/axe-core/axe.min.js"))
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
SIZES = {"phone": (360, 780), "desktop": (1280, 900)}
SHOTS = os.environ.get("SFNODE_SHOTS")  # a folder for pictures of all states
playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: make web-test installs it")

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,  # `make web-test` runs them
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@contextmanager
def opened(browser: Browser, url: str, size: str = "desktop", scheme: Scheme = "light") -> Iterator[Tab]:
    """A tab that shows the page; at the end nothing has been said on its console, and nothing has failed."""
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    tab, said = context.new_page(), []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("requestfailed", lambda request: None if request.url.endswith("/events") else said.append(request.url))
    tab.goto(url)
    tab.locator("#tiles dd").nth(3).wait_for()  # functions to wait for are against the page's policy
    yield tab
    context.close()
    assert said == []


def at_start(node: MadeNode) -> None:
    model = {"stage": "loading", "text": "loading the model, 12 s", "done_bytes": 0, "total_bytes": 0}
    node.link(1)
    node.advance(0, authors=1, model=model | {"givers": 0, "bytes_per_s": 0}, loss=None)


def catching_up(node: MadeNode) -> None:
    node.link(1, 2, 3)
    node.advance(120, authors=6, catching_up=1_500, loss=None)


def in_training(node: MadeNode) -> None:
    node.link(1, 2, 3, 4)
    node.advance(240, authors=9, bytes_in=2_345_000, bytes_out=1_234_000)
    node.tail.take(logging.INFO, ("step 240: accuracy 74.0 %, loss 0.433 on 64 rows",))
    node.tail.take(logging.WARNING, ("the loss on held-out data has risen",))


def without_peers(node: MadeNode) -> None:
    in_training(node)
    node.neighbours = []
    node.advance(260, authors=9, expects_peers=True)


def not_admitted(node: MadeNode) -> None:
    in_training(node)
    node.advance(240, authors=9, is_admitted=False, admission="invite")


def finished(node: MadeNode) -> None:
    prompt = "a warm, funny film about very little, which never overstays its welcome, and says so at length It was"
    told = [SampleAnswer(prompt=prompt, text=text, reward=float(text == "yes"), right="yes") for text in ("no", "yes")]
    before, own, after = (
        EvaluatedStep(step=step, accuracy=accuracy, loss=0.5, rows=1_500, answers=answers)
        for step, accuracy, answers in ((0, 0.5524, (told[0],) * 4), (400, 0.7211, ()), (400, 0.8018, (told[1],) * 4))
    )
    DataDirectory(node.directory).gain.write(Gain(before=before, own=own, after=after, is_public=True))
    node.link(1, 2, 3)
    node.advance(400, authors=9, is_finished=True, is_over=True, equal_peers=3)


STATES = (at_start, catching_up, in_training, without_peers, not_admitted, finished)


@pytest.fixture(params=STATES, ids=lambda state: state.__name__)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> MadeNode:
    """A node in each state in turn."""
    node = MadeNode(tmp_path)
    state: Callable[[MadeNode], None] = request.param
    state(node)
    return node


def audit(tab: Tab) -> list[str]:
    """What axe finds against the accessibility guidelines, with the places."""
    if not AXE.exists():
        pytest.skip(f"no {AXE}: make web-test fetches it")
    tab.evaluate(AXE.read_text("utf-8"))  # a script element would be against the page's policy
    found = tab.evaluate("axe.run().then(result => result.violations.map(v => [v.id, v.nodes.map(n => n.html)]))")
    return [f"{name}: {places}" for name, places in found]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", SIZES)
def test_page__every_state__is_within_the_width_and_accessible(
    browser: Browser, made: MadeNode, size: str, scheme: Scheme, request: pytest.FixtureRequest
) -> None:
    with served_in_thread(made.page()) as url, opened(browser, url, size, scheme) as tab:
        if SHOTS:
            tab.screenshot(path=f"{SHOTS}/{request.node.callspec.id}.png", full_page=True)
        assert tab.evaluate("document.documentElement.scrollWidth") == SIZES[size][0]
        assert audit(tab) == []


@pytest.fixture
def training(tmp_path: Path) -> MadeNode:
    node = MadeNode(tmp_path)
    in_training(node)
    return node


def test_page__the_node_goes_on__its_figures_follow(browser: Browser, training: MadeNode) -> None:
    with served_in_thread(training.page()) as url, opened(browser, url) as tab:
        assert tab.text_content("#stage") == "Step 240/400"
        training.advance(280, authors=9)
        tab.locator("#stage", has_text="Step 280/400").wait_for(timeout=5_000)
        assert tab.title().startswith("280/400 ")
        assert tab.text_content("#connection") == "live"


def test_page__a_neighbour_leaves__the_map_says_so(browser: Browser, training: MadeNode) -> None:
    with served_in_thread(training.page()) as url, opened(browser, url) as tab:
        assert tab.locator("#map .node.near").count() == 4
        training.link(1, 2, 3)
        training.advance(250, authors=9)
        tab.wait_for_selector("#map .node.gone", state="attached", timeout=5_000)
        assert tab.locator("#map .gone-text").text_content() == f"{signer(4).author.hex()[:8]} left"
        assert tab.locator("#map .node.near").count() == 3


def test_page__light_and_dark__differ_in_paper_and_ink(browser: Browser, training: MadeNode) -> None:
    colours = []
    for scheme in SCHEMES:
        with served_in_thread(training.page()) as url, opened(browser, url, scheme=scheme) as tab:
            paper = "getComputedStyle(document.body).backgroundColor"
            colours.append((tab.evaluate(paper), tab.evaluate(paper.replace("backgroundColor", "color"))))
    assert colours[0][0] != colours[1][0] and colours[0][1] != colours[1][1]


def test_page__text_of_a_stranger__stays_text(browser: Browser, training: MadeNode) -> None:
    training.tail.take(logging.INFO, ("peer <img src=x onerror=alert(1)> joined",))
    with served_in_thread(training.page()) as url, opened(browser, url) as tab:
        assert "<img src=x onerror=alert(1)>" in (tab.text_content("#log") or "")
        assert tab.locator("#log img").count() == 0


def test_page__the_node_ends__says_that_it_does_not_answer(browser: Browser, training: MadeNode) -> None:
    with served_in_thread(training.page()) as url:
        context = browser.new_context()
        tab = context.new_page()
        tab.goto(url)
        tab.locator("#connection", has_text="live").wait_for()
    tab.locator("#connection", has_text="the node does not answer").wait_for(timeout=9_000)
    context.close()


@pytest.mark.parametrize("size", SIZES)
def test_report__opened_from_the_disk__shows_the_run_without_a_node(
    browser: Browser, tmp_path: Path, size: str
) -> None:
    (tmp_path / "node").mkdir(mode=0o700)
    node = MadeNode(tmp_path / "node")
    finished(node)
    node.store()
    write_report(DataDirectory(node.directory), tmp_path / "run.html", lambda done, total: None)
    with opened(browser, (tmp_path / "run.html").as_uri(), size) as tab:
        if SHOTS:
            tab.screenshot(path=f"{SHOTS}/report-{size}.png", full_page=True)
        assert tab.text_content("#stage") == "400 of 400 steps done"
        assert "was checked against its author's signature" in (tab.text_content("#under") or "")
        assert tab.locator("#authors li").count() == 9
        assert tab.locator("#won dt").all_text_contents() == ["The model alone", "The run now", "Own data alone"]
        assert tab.locator("#answers li").count() == 4
        assert not tab.is_visible("#log-card") and not tab.is_visible("#map-card")
        assert tab.evaluate("document.documentElement.scrollWidth") == SIZES[size][0]
        assert audit(tab) == []
