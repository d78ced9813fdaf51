"""The page as a browser sees it."""

import pytest
from report.browser import Browser, find_browser
from report.fake_runs import fake_run, write_json

from gssc.report import published_rows, write_report

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(1)>"
PROGRAM = find_browser()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine")

# Luminance contrast (WCAG) of the text with its background, for the body and for a table's heading.
CONTRAST = """
(() => {
  const rgb = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = colour => rgb(colour).map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const page = light(getComputedStyle(document.body).backgroundColor);
  return ['body', 'th', 'td.better, td.worse', 'svg'].map(which => {
    const ink = light(getComputedStyle(document.querySelector(which)).color);
    return (Math.max(ink, page) + 0.05) / (Math.min(ink, page) + 0.05);
  });
})()
"""
# The smaller of width and number of shapes of every picture, with all folds open.
SIZES = """
(() => {
  document.querySelectorAll('details').forEach(fold => fold.open = true);
  return [...document.querySelectorAll('svg')].map(
    picture => Math.min(picture.getBoundingClientRect().width, picture.querySelectorAll('path').length));
})()
"""
DECODED = "Promise.all([...document.images].map(i => i.decode().then(() => i.naturalWidth > 0, () => false)))"
OUTSIDE = "document.documentElement.outerHTML.match(/(?:src|href|url)\\s*[=(]\\s*[\"']?(?:https?:)?\\/\\/[^\"')\\s]*/g)"
# Two elements with one id would share clip paths and markers.
DOUBLE = "(ids => ids.length - new Set(ids).size)([...document.querySelectorAll('[id]')].map(e => e.id))"
DANGLING = (
    "[...document.querySelectorAll('use, a')].map(e => e.getAttribute('href')).filter(h => !document.querySelector(h))"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    fake_run(folder / "runs/zinc", "zinc-12k", epochs=12)
    fake_run(folder / "runs/none", "zinc-12k", ["model.glob=none"], worse=0.02, epochs=12)
    fake_run(folder / "runs/cifar", "cifar10", seeds=(0, 1), unfinished=(1,), epochs=12)
    fake_run(folder / "runs/hiv", "molhiv", seeds=(0,), epochs=12)
    # What a run folder says is text, also where it looks like a script.
    fake_run(folder / "runs/script", "molhiv", seeds=(1,), epochs=12)
    write_json(folder / "runs/script/seed-1/environment.json", {"command": SCRIPT, "date": SCRIPT})
    write_report([folder / "runs"], folder / "out")
    with Browser(PROGRAM, folder / "profile") as opened:
        opened.open((folder / "out/report.html").as_uri())
        yield opened


def test_no_errors_and_no_requests(browser):
    browser.evaluate("document.title")  # all events of loading have arrived before this answer
    methods = {event["method"] for event in browser.events}
    assert not methods & {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}
    asked = [e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    assert [address.partition(":")[0] for address in asked if not address.startswith("data:")] == ["file"]
    assert browser.evaluate(OUTSIDE) is None
    assert browser.evaluate("document.scripts.length + document.images.length") == 0
    assert SCRIPT in browser.evaluate("[...document.querySelectorAll('pre')].map(e => e.textContent).join('')")


def test_the_checks_would_see_an_error_and_a_request(tmp_path):
    page = tmp_path / "bad.html"
    page.write_text("<p>bad</p><img src='http://localhost:9/x.png'><script>console.error('no'); undefined.x</script>")
    with Browser(PROGRAM, tmp_path / "profile") as opened:
        opened.open(page.as_uri())
        opened.evaluate("document.title")
        methods = {event["method"] for event in opened.events}
        assert methods >= {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}
        asked = [e["params"]["request"]["url"] for e in opened.events if e["method"] == "Network.requestWillBeSent"]
        assert "http://localhost:9/x.png" in asked
        assert opened.evaluate(OUTSIDE)
        assert opened.evaluate(DECODED) == [False]


def test_all_rows_are_there(browser):
    text = browser.evaluate("document.body.innerText")
    for row in (*published_rows("zinc-12k"), *published_rows("cifar10"), *published_rows("molhiv")):
        assert row.model in text
        assert row.text in text
    count = "document.querySelectorAll('table.{} tbody tr').length"
    assert browser.evaluate(count.format("summary")) == 4
    # The Graph-Mamba-I row of ZINC is printed as NaN, so it counts.
    ours = 2 + 1 + 1
    published = sum(len(published_rows(recipe)) for recipe in ("zinc-12k", "cifar10", "molhiv"))
    assert browser.evaluate(count.format("comparison")) == ours + published
    assert "seed 1 unfinished (epoch 4 of 300)" in text


def test_pictures_are_drawn(browser):
    sizes = browser.evaluate(SIZES)
    # Bars of zinc-12k, curves of three recipes, predictions of four variants.
    assert len(sizes) == 1 + 3 + 4
    assert min(sizes) > 10
    assert all(browser.evaluate(DECODED))
    assert browser.evaluate(DOUBLE) == 0
    assert browser.evaluate(DANGLING) == []
    assert browser.evaluate("document.body.innerText.includes('mathdefault')") is False


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_legible_in_light_and_dark(browser, scheme):
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    assert min(browser.evaluate(CONTRAST)) > 4.5
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 24, 30)")


@pytest.mark.parametrize("width", [420, 1280])
def test_nothing_makes_the_page_wider_than_the_window(browser, width):
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
