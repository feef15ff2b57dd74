"""Pages in Chromium."""

import json
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from catalogue.commoncrawl.crawls import COLLINFO
from catalogue.demo import LoopbackServer
from catalogue.settings import Settings
from tests.support.browsers import open_chromium, waiting, without_browser
from tests.support.catalogues import harvested_in
from tests.support.crawls import CRAWL, crawl_of, index_path, table
from tests.support.faults import FaultServer
from tests.support.gates import Gate, nth
from tests.support.served_records import OK, TIME, answer, url_of, write_records
from tests.support.serving import serving
from tests.support.web_pages import serving_site

TELEPHONE, DESK = 320, 1280
ENTER, TAB = "\ue007", "\ue004"  # as WebDriver names keys
OVERFLOW = "const page = document.documentElement; return page.scrollWidth - page.clientWidth"
OVERFLOWING = """
const within = (e) => e.closest('.skip, thead, svg svg') !== null;
return [...document.body.querySelectorAll('*')]
  .filter((e) => !within(e) && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML)
"""
pytestmark = without_browser
site = pytest.fixture(scope="module")(serving_site)
WAITING = f"/search?url=example.com/*&crawl={CRAWL}"


@pytest.fixture
def on_demand(settings: Settings, tmp_path: Path) -> Iterator[tuple[str, Gate]]:
    """A server that harvests on demand, with a gate for the second file; the third is damaged."""
    mirror = crawl_of(tmp_path / "mirror", *(table([f"com,example)/{name}"]) for name in "abc"))
    index_path(mirror, 2).write_bytes(b"torn")
    (mirror / COLLINFO).write_text(json.dumps([{"id": CRAWL, "name": "November/December 2022 Index"}]))
    gate = Gate(nth(0, "part-00001"))
    with FaultServer(mirror, gate=gate) as source:
        reading = replace(settings, source=source.url, cache=tmp_path / "cache")
        with serving(tmp_path / "data", reading, on_demand=True) as address:
            yield address, gate
            gate.open()


chromium = pytest.fixture(scope="module")(open_chromium)


@pytest.fixture
def browser(chromium: Any) -> Iterator[Any]:
    """A desktop browser; its console must have no messages."""
    look(chromium, DESK, "light")
    chromium.get("about:blank")
    messages(chromium)
    yield chromium
    assert messages(chromium) == []


def look(browser: Any, width: int, theme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < DESK}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def messages(browser: Any) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser")]


def run(browser: Any, script: str) -> Any:
    return browser.execute_script(script)


@pytest.mark.in_soak
def test_keyboard_reaches_everything_and_searches(browser: Any, site: str, crawl: str) -> None:
    browser.get(f"{site}/{crawl}/")
    browser.switch_to.active_element.send_keys(TAB)
    browser.switch_to.active_element.send_keys(ENTER)
    assert run(browser, "return document.activeElement.id") == "main"
    browser.get(f"{site}/{crawl}/")
    reached = []
    for _ in range(9):
        browser.switch_to.active_element.send_keys(TAB)
        active = browser.switch_to.active_element
        reached.append(active.get_attribute("name") or active.text)
        assert run(browser, "return getComputedStyle(document.activeElement).outlineStyle") != "none"
    assert reached[0] == "Skip to the content"
    assert {"url", "Search", "Filters"} <= set(reached)
    browser.find_element("name", "url").send_keys("*.example.com", ENTER)
    wait = waiting(browser)
    rows = wait.until(lambda driver: driver.find_elements("css selector", "table.captures tbody tr"))
    assert len(rows) == 100
    assert all("example.com" in row.find_element("tag name", "bdi").text for row in rows[:5])
    bars, marks, (box,) = (
        run(browser, f"return [...document.querySelectorAll('{each}')].map((e) => e.getBoundingClientRect())")
        for each in (".map > svg > rect.read", ".map > svg > line.mark", ".map > svg")
    )
    assert bars
    assert all(bar["width"] > 0 and bar["height"] > 0 for bar in bars)
    assert marks
    assert all(box["left"] - 2 <= mark["x"] <= box["right"] + 2 for mark in marks)
    browser.find_element("link text", "Show up to 1,000").click()
    more = wait.until(lambda driver: driver.find_elements("css selector", "tbody tr:nth-child(101)"))
    assert len(more) == 1
    assert browser.find_element("name", "limit").get_attribute("value") == "1000"


@pytest.mark.in_soak
def test_shows_progress_of_a_harvest_and_then_the_answer(chromium: Any, on_demand: tuple[str, Gate]) -> None:
    address, gate = on_demand
    look(chromium, TELEPHONE, "light")
    chromium.get(f"{address}/{CRAWL}/")
    assert run(chromium, "return innerWidth") == TELEPHONE
    assert run(chromium, OVERFLOW) == 0
    chromium.get(address + WAITING)
    wait = waiting(chromium)
    wait.until(lambda driver: "2 of 3 files" in driver.find_element("class name", "waiting").text)
    assert run(chromium, "const bar = document.querySelector('progress'); return [bar.value, bar.max]") == [2, 3]
    assert not chromium.find_elements("css selector", ".notice, [role=alert]")
    gate.open()
    wait.until(lambda driver: len(driver.find_elements("css selector", ".captures tbody tr")) == 2)
    assert chromium.current_url == address + WAITING
    assert all("503" in message for message in messages(chromium))  # Chromium says of itself what the status was


AXE = distribution("selenium-axe-python").locate_file("selenium_axe_python/axe-core/axe.min.js")
VIOLATIONS = """
const [only, done] = arguments;
const rules = {"label-content-name-mismatch": {enabled: true}};  // experimental, else left out
axe.run({runOnly: only, rules, resultTypes: ["violations"]}).then((found) => done([
  found.passes.length, found.violations.flatMap((each) => each.nodes.map((node) => `${each.id}: ${node.html}`)),
]), (error) => done([0, [String(error)]]))
"""
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
BY_LOOK = ["color-contrast", "link-in-text-block", "target-size"]
"""Rules that depend on theme or width."""
OWN = [
    *("/", "/status", "/nothing", "/{crawl}/", "/search?url=foo*bar&status=x", "/search?url=nobody.example"),
    "/search?url=*.example.com&crawl=all&status=2xx&limit=4&page=2",
    f"/search?url={'a' * 300}.example/{'b' * 600}/*&crawl=latest",
]


@pytest.mark.in_soak
def test_pages_fit_and_do_not_violate_wcag(chromium: Any, site: str, crawl: str, on_demand: tuple[str, Gate]) -> None:
    address, gate = on_demand
    axe = Path(str(AXE)).read_text(encoding="utf-8")

    def check(url: str, shown: str) -> None:
        look(chromium, DESK, "light")
        chromium.get(url)
        waiting(chromium).until(lambda driver: driver.find_elements("css selector", shown))
        run(chromium, axe)
        for width, theme, rules in ((DESK, "light", WCAG), (TELEPHONE, "dark", BY_LOOK)):
            look(chromium, width, theme)
            assert (run(chromium, "return innerWidth"), run(chromium, OVERFLOW)) == (width, 0)
            assert run(chromium, OVERFLOWING) == []
            passed, violations = chromium.execute_async_script(VIOLATIONS, rules)
            assert passed
            assert violations == [], url

    for path in OWN:
        check(site + path.replace("{crawl}", crawl), "h1")
    assert all("status of 40" in message for message in messages(chromium))  # of Chromium, not of scripts
    check(f"{address}/", "h1")
    check(address + WAITING, "progress")
    gate.open()
    check(address + WAITING, ".notice, .captures")  # may be incomplete
    messages(chromium)


ACTING = """<html><head><title>as archived</title>
<meta http-equiv="refresh" content="0; url=//HERE/refresh"><meta http-equiv="set-cookie" content="meta=1">
<base href="//HERE/"><link rel="stylesheet" href="//HERE/style.css"><link rel="prefetch" href="//HERE/prefetch">
<link rel="preload" as="image" href="//HERE/preload"><link rel="icon" href="//HERE/icon">
<link rel="manifest" href="//HERE/manifest"><style>body { background: url(//HERE/background); }
@font-face { font-family: x; src: url(//HERE/font); } p { font-family: x }</style>
<script src="//HERE/script.js"></script>
<script>document.title = "it ran"; document.cookie = "script=1"; fetch("//HERE/fetched")</script>
</head><body onload="document.title = 'it ran'"><p id="text">its text</p>
<img src="//HERE/picture" onerror="document.title = 'it ran'"><iframe src="//HERE/frame"></iframe>
<iframe srcdoc="<script>top.document.title = 'it ran'</script><img src='//HERE/within'>"></iframe>
<object data="//HERE/object"></object><embed src="//HERE/embed"><video src="//HERE/video" autoplay></video>
<svg><image href="//HERE/svg"/><script>document.title = "it ran"</script></svg><img src="relative">
<form action="//HERE/form"><input autofocus onfocus="this.form.submit()"></form></body></html>"""


def test_archived_page_runs_and_loads_nothing(chromium: Any, tmp_path: Path) -> None:
    with LoopbackServer(tmp_path) as elsewhere:
        page = ACTING.replace("//HERE/", elsewhere.url).encode()
        records = {
            "page": answer(OK + "Content-Type: text/html\r\nSet-Cookie: header=1\r\nRefresh: 0; url=/\r\n", page),
            "picture": answer(
                OK + "Content-Type: image/svg+xml\r\n",
                b'<svg xmlns="http://www.w3.org/2000/svg"><script>document.documentElement.id = "ran"</script></svg>',
            ),
            "script": answer(OK + "Content-Type: text/javascript\r\n", b"document.title = 'it ran'"),
        }
        write_records(tmp_path / "mirror", [(url_of(name), TIME, http) for name, http in records.items()])
        with serving(*harvested_in(tmp_path, tmp_path / "mirror")) as address:
            archived = {name: f"{address}/{CRAWL}/2022id_/{url_of(name)}" for name in records}
            chromium.get(archived["page"])
            assert chromium.find_element("id", "text").text == "its text"
            assert (chromium.title, chromium.current_url) == ("as archived", archived["page"])
            assert run(chromium, "return self.origin") == "null"
            chromium.get(archived["picture"])
            assert run(chromium, "return document.documentElement.id") == ""
            chromium.get(f"{address}/")
            assert chromium.get_cookies() == []
            as_script = """
                const done = arguments[1], element = document.createElement("script");
                element.onload = () => done("loaded"); element.onerror = () => done("refused");
                element.src = arguments[0]; document.body.append(element)"""
            as_worker = """
                const done = arguments[1];
                navigator.serviceWorker.register(arguments[0]).then(() => done("loaded"), () => done("refused"))"""
            for way in (as_script, as_worker):
                assert chromium.execute_async_script(way, archived["script"]) == "refused"
        assert elsewhere.log == []
