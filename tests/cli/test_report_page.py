"""The page of `discreet report`, in a browser: it loads nothing, fits a phone, can be read in both colour schemes, prints."""

import html
import http.server
import json
import pathlib
import re
import subprocess
import threading

import example_corpus
import made_up_run
import pytest
from command import discreet

WIDTHS = (320, 390, 768, 1100)
PAGES = ("confidential", "public", "alarm", "ledger")

# Loads each page at each width and writes what it measures into its own document. The pages forbid
# scripts, so the measuring is done from outside. The picture from elsewhere shows that requests are seen.
HARNESS = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><body>FRAMES<img src="http://elsewhere.test/control.png"><script>
function light(text) {
  const c = text.match(/[\\d.]+/g).map(Number), f = x => x <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4;
  return { a: c[3] ?? 1, y: .2126 * f(c[0] / 255) + .7152 * f(c[1] / 255) + .0722 * f(c[2] / 255) };
}
function behind(element, view) {
  for (let e = element; e; e = e.parentElement) {
    const colour = light(view.getComputedStyle(e).backgroundColor);
    if (colour.a > 0) return colour.y;
  }
  return 1;
}
// Words of a table that stand on two lines; a hyphen may end a line.
function broken(page) {
  const out = [], all = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT), range = page.createRange();
  for (let node; (node = all.nextNode());) {
    if (!node.parentElement.closest(".numbers") || node.parentElement.closest(".unseen")) continue;
    for (const word of node.data.matchAll(/[^\\s-]+/g)) {
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map(r => r.top)).size > 1) out.push(word[0]);
    }
  }
  return out;
}
onload = () => {
  const found = [];
  for (const frame of document.querySelectorAll("iframe")) {
    const view = frame.contentWindow, page = frame.contentDocument;
    for (const details of page.querySelectorAll("details")) details.open = true;
    let contrast = 21, faint = "";
    for (const e of page.querySelectorAll("body *")) {
      if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
      const style = view.getComputedStyle(e), ink = e.closest("svg") ? style.fill : style.color;
      const a = light(ink).y, b = behind(e, view), ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
      if (ratio < contrast) [contrast, faint] = [ratio, e.outerHTML.slice(0, 80)];
    }
    const wide = [...page.querySelectorAll("body *")].filter(e => !e.closest(".scroll") &&
      e.getBoundingClientRect().right > view.innerWidth + 1).map(e => e.outerHTML.slice(0, 80));
    found.push({ page: frame.getAttribute("src"), width: view.innerWidth, contrast, faint, wide, broken: broken(page),
      scroll: page.documentElement.scrollWidth, dark: light(view.getComputedStyle(page.documentElement).backgroundColor).y < .2,
      styled: view.getComputedStyle(page.querySelector(".cards")).display === "grid",
      plots: page.querySelectorAll("svg[role=img][aria-label]").length,
      unnamed: page.querySelectorAll("svg:not([aria-label]):not([aria-hidden])").length,
      headings: [...page.querySelectorAll("h1,h2,h3")].map(e => e.tagName).join(" "),
      captions: page.querySelectorAll("table:not(:has(caption))").length });
  }
  document.body.replaceChildren(document.createTextNode("FOUND" + JSON.stringify(found) + "END"));
};
</script>"""


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder and writes down every request, also those meant for other hosts (it is the proxy)."""

    def __init__(self, folder):
        asked = self.asked = []

        class Handler(http.server.SimpleHTTPRequestHandler):
            def __init__(self, *args):
                super().__init__(*args, directory=str(folder))

            def log_message(self, *_):
                # The browser's own calls home; that a page holds no such address is a test of its own.
                if not re.search(r"\.(google|googleapis|gvt1)\.com\b", self.path):
                    asked.append(self.path)

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server_port}/"

    def __exit__(self, *args):
        self.shutdown()
        super().__exit__(*args)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    made_up_run.write(folder / "run", steps=2350, planned=2350)
    example_corpus.make("ledger_example", folder)
    made_up_run.write(folder / "not_private", secure=False, ended="interrupted", steps=50)
    for run, name, more in (("run", "confidential", ()), ("run", "public", ("--public",)),
                            ("not_private", "alarm", ()),
                            ("run", "ledger", ("--ledger", str(folder / "ledger.db")))):
        result = discreet("report", str(folder / run), "--out", str(folder / f"{name}.html"), *more)
        assert result.returncode == 0, result.stderr
    frames = "".join(f'<iframe src="{name}.html" style="width:{width}px;height:900px;border:0"></iframe>'
                     for name in PAGES for width in WIDTHS)
    (folder / "harness.html").write_text(HARNESS.replace("FRAMES", frames), "utf-8")
    return folder


def chromium(folder, server, *args):
    result = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr",
         f"--user-data-dir={folder / 'profile'}", f"--proxy-server=127.0.0.1:{server.server_port}", *args],
        capture_output=True, text=True, timeout=120)
    console = [line for line in result.stderr.splitlines() if ":CONSOLE" in line]
    return result.stdout, console


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_loads_nothing_fits_a_phone_and_can_be_read(pages, scheme):
    with Server(pages) as server:
        # Blink's PreferredColorScheme: 0 is dark, 1 is light.
        dom, console = chromium(pages, server, f"--blink-settings=preferredColorScheme={int(scheme == 'light')}",
                                "--dump-dom", server.url + "harness.html")
    assert [line for line in console if "control.png" not in line] == []
    assert set(server.asked) == {"http://elsewhere.test/control.png", "/harness.html", *(f"/{name}.html" for name in PAGES)}
    found = json.loads(html.unescape(re.search("FOUND(.*)END", dom, re.DOTALL)[1]))
    assert len(found) == len(PAGES) * len(WIDTHS)
    for frame in found:
        assert frame["styled"] and frame["dark"] == (scheme == "dark")
        assert frame["scroll"] <= frame["width"] and frame["wide"] == [] and frame["broken"] == [], frame
        assert frame["contrast"] >= 4.5, frame
        assert frame["plots"] == (2 if frame["page"] == "public.html" else 6)
        assert (frame["unnamed"], frame["captions"]) == (0, 0)
        assert frame["headings"].replace("H2 H1", "H1").startswith("H1 H2")


def test_page_prints_and_its_policy_forbids_everything_else(pages):
    text = (pages / "confidential.html").read_text("utf-8")
    # An attack that got into the page: the policy must stop all of it.
    attack = ('<script>document.title="run"</script><img src="http://elsewhere.test/a.png">'
              '<style>@import "http://elsewhere.test/b.css";</style>'
              '<link rel="stylesheet" href="http://elsewhere.test/c.css">')
    (pages / "attacked.html").write_text(text.replace("<main>", attack + "<main>"), "utf-8")
    pdf = pages / "page.pdf"
    with Server(pages) as server:
        _, console = chromium(pages, server, f"--print-to-pdf={pdf}", (pages / "attacked.html").as_uri())
    assert server.asked == []
    assert len([line for line in console if "Content Security Policy" in line]) >= 4
    assert pdf.read_bytes().startswith(b"%PDF-") and pdf.stat().st_size > 30_000


def test_page_holds_no_address(pages):
    for page in pathlib.Path(pages).glob("*.html"):
        if page.name not in ("harness.html", "attacked.html"):
            text = page.read_text("utf-8")
            assert not re.search(r"https?://|url\(|@import|\son\w+=|style=", text)
            # With a ledger: its data, and the script that checks it.
            assert len(re.findall("<script", text)) == (2 if page.name == "ledger.html" else 0)
