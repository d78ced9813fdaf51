"""The site as `make docs` builds it: complete, without a broken link, without anything from elsewhere."""

import importlib
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
from report.browser import Browser, find_browser

import gssc
from gssc.config import describe_keys

pytest.importorskip("griffe")
from tools.site import to_markdown

ROOT = Path(__file__).parents[2]
MODULES = ("nn", "ops", "spectra", "datasets", "train", "pretrained", "explain")
WAIT_FOR_RESULTS = """
(async () => {
  const input = document.querySelector('input.md-search__input');
  input.focus();
  input.value = 'LaplacianSpectrum';
  input.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}));
  for (let turn = 0; turn < 100; turn++) {
    const found = [...document.querySelectorAll('.md-search-result__link')].map(link => link.href);
    if (found.length) return found;
    await new Promise(resolve => setTimeout(resolve, 100));
  }
  return [];
})()
"""


class Page(HTMLParser):
    """Anchors, links, and what else is loaded."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.text = path.read_text(encoding="utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors |= {values[key] for key in ("id", "name") if values.get(key)}
        if tag == "a" and values.get("href"):
            self.links.add(values["href"])
        elif tag in ("script", "link", "img", "iframe", "source", "object"):
            self.loaded |= {values[key] for key in ("href", "src", "data") if values.get(key)}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}


def test_every_link_leads_somewhere_and_nothing_comes_from_elsewhere(site, pages):
    assert len(pages) > 30
    for path, page in pages.items():
        for address in page.links | page.loaded:
            if urlsplit(address).scheme in ("https", "mailto", "data"):
                assert address in page.links or address.startswith("data:"), f"{path.name} loads {address}"
                continue
            target, anchor = urldefrag(address)
            file = (path.parent / unquote(target)).resolve() if target else path
            assert file.is_file(), f"{path.relative_to(site)}: {address}"
            assert file.is_relative_to(site)
            if anchor and file.suffix == ".html":
                assert unquote(anchor) in pages[file].anchors, f"{path.relative_to(site)}: {address}"
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", style.read_text(encoding="utf-8")), style


def test_the_reference_has_every_public_name(site, pages):
    for name in MODULES:
        module = importlib.import_module(f"gssc.{name}")
        anchors = pages[site / f"reference/gssc.{name}.html"].anchors
        assert {f"gssc.{name}.{exported}" for exported in module.__all__} <= anchors
    names = pages[site / "reference/index.html"].text
    assert all(f">gssc.{exported}</code>" in names for exported in gssc.__all__)
    assert "gssc.replay.replayed" in pages[site / "reference/gssc.replay.html"].anchors
    assert "gssc.testing.assert_basis_invariant" in pages[site / "reference/gssc.testing.html"].anchors
    assert {"gssc.GSSC", "gssc.model_inputs"} <= pages[site / "reference/gssc.html"].anchors
    keys = pages[site / "reference/keys.html"].text
    assert all(f"<code>{key.name}</code>" in keys for key in describe_keys())


def test_formulas_are_drawn_by_the_browser(pages):
    text = "".join(page.text for page in pages.values())
    assert text.count("<math") > 20
    for left in (".. math::", ":math:", "arithmatex", "$$", r"\odot"):
        assert left not in text
    docstring = "One.\n\n    .. math::\n        a\n        b\n\n    with :math:`c`, `d <https://e>`_.\n"
    assert " ".join(to_markdown(docstring).split()) == r"One. $$ a b $$ with \(c\), [d](https://e)."


def test_search_knows_pages_and_names(site):
    index = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"] for entry in index["docs"]}
    for place in ("index.html", "start.html", "tutorial.html", "provenance.html", "guides/own-data.html"):
        assert place in found
    for name in ("GSSConv", "GSSCLayer", "DeepSetPhi"):
        assert f"reference/gssc.nn.html#gssc.nn.{name}" in found
    assert (site / "search/search_index.js").exists()  # what is read where there is no server


@pytest.mark.skipif(find_browser() is None, reason="no Chromium on this machine")
def test_in_a_browser(site, pages, tmp_path):
    with Browser(find_browser(), tmp_path / "profile") as browser:
        for path in pages:
            browser.events.clear()
            browser.open(path.as_uri())
            assert browser.evaluate("document.title")
            methods = {event["method"] for event in browser.events}
            assert not methods & {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}, (
                path,
                browser.events,
            )
            asked = [
                e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"
            ]
            assert {address.partition(":")[0] for address in asked} <= {"file", "data", "about"}, path
            assert browser.evaluate("[...document.images].every(image => image.complete && image.naturalWidth)"), path
        browser.call("Emulation.setDeviceMetricsOverride", width=420, height=900, deviceScaleFactor=1, mobile=False)
        for page in ("index", "results", "reference/gssc.nn"):
            browser.events.clear()
            browser.open((site / f"{page}.html").as_uri())
            assert browser.evaluate("document.documentElement.scrollWidth") <= 420, page
        assert any(link.endswith("#gssc.spectra.LaplacianSpectrum") for link in browser.evaluate(WAIT_FOR_RESULTS))
