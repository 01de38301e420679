"""The ledger in the page of `discreet report`: the browser's verdicts on honest and on tampered pages."""

import base64
import hashlib
import http.server
import json
import pathlib
import re
import subprocess
import threading

import cbor2
import example_corpus
import made_up_run
import pytest
from command import discreet
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key, load_pem_public_key
from merkle import mth

ORIGIN = "test.example/corpus"
VERIFIED, BROKEN, UNKNOWN = "VERIFIED", "BROKEN", "COULD NOT CHECK"
BLOCK = re.compile(r'(<script type="application/octet-stream" id="ledger-data">)(.*?)(</script>)', re.S)

# Opens each page in a frame, waits for its verdicts, pastes what is to be pasted, and sends what it found to its server.
# `without`: the frame's browser has no Ed25519.
HARNESS = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><body><script>
const jobs = JOBS, wait = (ms) => new Promise(done => setTimeout(done, ms));
async function until(test) { for (let i = 0; i < 600 && !test(); ++i) await wait(50); }
const verdicts = (page) => Object.fromEntries([...page.querySelectorAll("[id^=check-]")].map(row =>
  [row.id.slice(6), [row.dataset.verdict, row.querySelector(".verdict").textContent, row.querySelector(".why").textContent]]));
async function open_page(job) {
  const frame = document.createElement("iframe");
  if (job.without) {
    document.body.append(frame);
    frame.contentWindow.SubtleCrypto.prototype.importKey = () => Promise.reject(new DOMException("none", "NotSupportedError"));
    frame.contentDocument.open();
    frame.contentDocument.write(await (await fetch(job.page)).text());
    frame.contentDocument.close();
  } else {
    frame.src = job.page;
    const loaded = new Promise(done => frame.onload = done);
    document.body.append(frame);
    await loaded;
  }
  const page = frame.contentDocument;
  if (!job.silent) await until(() => page.getElementById("checks")?.dataset.done);
  for (const [box, text] of Object.entries(job.paste || {})) {
    const id = box === "key" ? "key" : "past", field = page.getElementById("expected-" + box);
    field.value = text;
    field.dispatchEvent(new Event("input"));
    await until(() => !/paste it|checking/.test(verdicts(page)[id][2]));
  }
  if (job.silent) await wait(300);
  const found = verdicts(page);
  frame.remove();
  return found;
}
onload = async () => {
  const found = {};
  for (const job of jobs) found[job.name] = await open_page(job);
  await fetch("/found", { method: "POST", body: JSON.stringify({ secure: isSecureContext, found }) });
};
</script>"""


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder under every host name (it is also the proxy), writes down requests, takes the harness' findings."""

    def __init__(self, folder):
        server = self
        self.asked, self.found, self.done = [], None, threading.Event()

        class Handler(http.server.SimpleHTTPRequestHandler):
            def __init__(self, *args):
                super().__init__(*args, directory=str(folder))

            def translate_path(self, path):
                return super().translate_path(re.sub(r"^http://[^/]*", "", path))

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                is_ours = self.path.endswith("/found")
                self.send_response(204 if is_ours else 404)
                self.end_headers()
                if is_ours:
                    server.found = json.loads(body)
                    server.done.set()

            def log_message(self, *_):
                if not re.search(r"\.(google|googleapis|gvt1)\.com\b", self.path):
                    server.asked.append(self.path)

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *args):
        self.shutdown()
        super().__exit__(*args)


def browse(folder, url, port, *args, until=None):
    """Runs Chromium until it ends, or until an event; returns what it printed and its console."""
    process = subprocess.Popen(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr",
         f"--user-data-dir={folder / 'profile'}", f"--proxy-server=127.0.0.1:{port}", *args, url],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if until is not None:
        arrived = until.wait(120)
        process.terminate()
        assert arrived, "the page gave no verdict"
    out, err = process.communicate(timeout=120)
    return out, [line for line in err.splitlines() if ":CONSOLE" in line]


def ask(folder, jobs, host=None):
    """What the browser says of each job {name, page, paste}; the requests; the console."""
    (folder / "harness.html").write_text(HARNESS.replace("JOBS", json.dumps(jobs).replace("</", "<\\/")), "utf-8")
    with Server(folder) as server:
        where = host or f"127.0.0.1:{server.server_port}"
        _, console = browse(folder, f"http://{where}/harness.html", server.server_port, until=server.done)
    found = {name: {check: (shown, why) for check, (verdict, shown, why) in rows.items() if verdict == shown}
             for name, rows in server.found["found"].items()}
    return found, server.asked, console, server.found["secure"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An honest page of a ledger with two withdrawals, and the keys and notes of the ledger."""
    folder = tmp_path_factory.mktemp("ledger_page")
    example_corpus.make("ledger_example", folder)
    for descriptor, key in zip(example_corpus.hashes(folder), ("contributor", "steward")):
        assert discreet("withdraw", descriptor, "--origin", ORIGIN, "--key", str(folder / f"{key}.key"), "--reason",
                        "<i>moved</i>\r\n\tto \ufeffÉ", "--events", str(folder / "events.jsonl")).returncode == 0
    recorded = discreet("withdraw", "--ledger", str(folder / "ledger.db"), "--key", str(folder / "ledger.key"), "--events",
                        str(folder / "events.jsonl"), "--json")
    (folder / "last.note").write_text(json.loads(recorded.stdout)["note"], "utf-8")
    made_up_run.write(folder / "run")
    for name, more in (("honest", ()), ("public", ("--public",))):
        result = discreet("report", str(folder / "run"), "--ledger", str(folder / "ledger.db"), "--out",
                          str(folder / f"{name}.html"), *more)
        assert result.returncode == 0, result.stderr
    return folder


def text_of(folder, name):
    return (folder / name).read_text("utf-8")


def altered(folder, name, change):
    """A page like the honest one whose ledger [format, size, leaves, notes] was changed."""
    page = text_of(folder, "honest.html")
    ledger = cbor2.loads(base64.b64decode(BLOCK.search(page)[2]))
    changed = change(ledger)
    data = changed if isinstance(changed, bytes) else cbor2.dumps(ledger if changed is None else changed)
    page = BLOCK.sub(lambda m: m[1] + base64.b64encode(data).decode() + m[3], page)
    (folder / f"{name}.html").write_text(page, "utf-8")
    return {"name": name, "page": f"{name}.html"}


def leaf_hashes(leaves):
    return [hashlib.sha256(b"\0" + leaf).digest() if isinstance(leaf, bytes) else leaf[0] for leaf in leaves]


def raw_key(folder, name):
    return load_pem_public_key((folder / f"{name}.pub").read_bytes()).public_bytes(Encoding.Raw, PublicFormat.Raw)


def note_of(folder, leaves, key="ledger", origin=ORIGIN):
    text = f"{origin}\n{len(leaves)}\n{base64.b64encode(mth(leaf_hashes(leaves))).decode()}\n"
    signer = load_pem_private_key((folder / f"{key}.key").read_bytes(), None)
    key_id = hashlib.sha256(origin.encode() + b"\n\1" + raw_key(folder, key)).digest()[:4]
    return f"{text}\n— {origin} {base64.b64encode(key_id + signer.sign(text.encode())).decode()}\n"


def sign_again(folder, ledger, key="ledger"):
    """Every note written again, with the leaf after it: what the holder of `key` can make."""
    _, _, leaves, notes = ledger
    if key != "ledger":
        header = cbor2.loads(leaves[0])
        header[13] = raw_key(folder, key)
        leaves[0] = cbor2.dumps(header)
    for i, size in enumerate([int(note.split("\n")[1]) for note in notes]):
        notes[i] = note_of(folder, leaves[:size], key)
        if size < len(leaves):
            leaves[size] = cbor2.dumps([10, hashlib.sha256(notes[i].encode()).digest()])


def first(ledger, kind):
    return next(i for i, leaf in enumerate(ledger[2]) if isinstance(leaf, bytes) and cbor2.loads(leaf)[0] == kind)


def replaced(ledger, position, change):
    entry = cbor2.loads(ledger[2][position])
    change(entry)
    ledger[2][position] = cbor2.dumps(entry)


def test_an_honest_page_is_verified_as_far_as_a_browser_can_and_asks_nobody(folder):
    early, last = text_of(folder, "early.note"), text_of(folder, "last.note")
    key_text = re.search(r"Signed by <code>(\S+?)</code>", text_of(folder, "honest.html"))[1]
    found, asked, console, _ = ask(folder, [
        {"name": "alone", "page": "honest.html"},
        {"name": "public", "page": "public.html"},
        {"name": "pem", "page": "honest.html", "paste": {"key": text_of(folder, "ledger.pub"), "note": early}},
        {"name": "hex", "page": "honest.html", "paste": {"key": raw_key(folder, "ledger").hex(), "note": last}},
        {"name": "text", "page": "honest.html", "paste": {"key": key_text, "note": early.replace("\n", "\r\n")}}])
    for rows in found.values():
        assert [rows[check][0] for check in ("signed", "order", "tables")] == [VERIFIED] * 3, rows
        assert rows["spends"][0] == UNKNOWN
    assert found["alone"]["signed"] == (VERIFIED, "40 entries, 7 checkpoints")
    assert found["alone"]["key"][0] == found["alone"]["past"][0] == UNKNOWN
    for name in ("pem", "hex", "text"):
        assert found[name]["key"][0] == found[name]["past"][0] == VERIFIED, found[name]
    assert set(asked) == {"/harness.html", "/honest.html", "/public.html", "/found"} and console == []


def flip(ledger, position, bit=3):
    leaf = bytearray(ledger[2][position])
    leaf[-1] ^= 1 << bit
    ledger[2][position] = bytes(leaf)


def swap(leaves, i, j):
    leaves[i], leaves[j] = leaves[j], leaves[i]


def flip_signature(ledger):
    text, _, line = ledger[3][2].rpartition(" ")
    raw = bytearray(base64.b64decode(line))
    raw[20] ^= 1
    ledger[3][2] = f"{text} {base64.b64encode(bytes(raw)).decode()}\n"


def test_the_page_of_a_ledger_without_plans_is_verified_too(folder):
    old = pathlib.Path(__file__).parents[1] / "compat" / "0.1-first" / "ledger.db"
    result = discreet("report", str(folder / "run"), "--ledger", str(old), "--out", str(folder / "old.html"))
    assert result.returncode == 0, result.stderr
    assert "if each run ended as planned" in text_of(folder, "old.html")
    found, *_ = ask(folder, [{"name": "old", "page": "old.html"}])
    assert [found["old"][check][0] for check in ("signed", "order", "tables")] == [VERIFIED] * 3, found


def test_every_tampered_page_is_broken_and_says_where(folder):
    def note_by_a_stranger(ledger):
        ledger[3][-1] = note_of(folder, ledger[2], "stranger")

    def note_over_another_root(ledger):
        leaves = ledger[2][:-1] + [ledger[2][0]]
        ledger[3][-1] = note_of(folder, leaves)

    cases = {
        "flipped": (lambda l: flip(l, 12), "one of the entries 11 to 21 is not the one that was signed"),
        "swapped": (lambda l: swap(l[2], 12, 13), "one of the entries 11 to 21 is not the one that was signed"),
        "swapped_batches": (lambda l: swap(l[2], 4, 30), "one of the entries 2 to 10 is not the one that was signed"),
        "doubled": (lambda l: l[2].insert(5, l[2][5]), "one of the entries 2 to 10 is not the one that was signed"),
        "dropped_last": (lambda l: l[2].__delitem__(-1), "a checkpoint covers 40 entries, but there are 39"),
        "unsigned": (lambda l: l[3].__delitem__(-1), "the entries from 37 on are not signed"),
        "signature": (flip_signature, "entries is not signed by the ledger's key"),
        "stranger": (note_by_a_stranger, "the checkpoint of 40 entries is not signed by the ledger's key"),
        "other_root": (note_over_another_root, "one of the entries 37 to 39 is not the one that was signed"),
        "notes_swapped": (lambda l: swap(l[3], 1, 2), "does not follow that of"),
        "other_size": (lambda l: l.__setitem__(1, 41), "the entries from 40 on are not signed"),
        "truncated": (lambda l: cbor2.dumps(l)[:-7], "cannot be read"),
        "empty": (lambda l: b"", "cannot be read"),
        "no_leaves": (lambda l: l.__setitem__(2, []), "cannot be read"),
        "header": (lambda l: flip(l, 0), "one of the entries 0 to 1 is not the one that was signed"),
    }
    found, *_ = ask(folder, [altered(folder, name, change) for name, (change, _) in cases.items()])
    for name, (_, why) in cases.items():
        rows = found[name]
        assert rows["signed"][0] == BROKEN and why in rows["signed"][1], (name, rows)
        assert {rows[check][0] for check in rows if check != "signed"} == {UNKNOWN}, (name, rows)


def test_rules_that_the_signer_itself_broke_are_found(folder):
    def used_after_withdrawal(ledger):
        leaves, withdrawn = ledger[2], first(ledger, 7)
        swap(leaves, withdrawn, first(ledger, 6))
        sign_again(folder, ledger)

    def epoch_left_out(ledger):
        replaced(ledger, first(ledger, 5), lambda e: e.__setitem__(2, 7))
        sign_again(folder, ledger)

    def use_of_a_stranger(ledger):
        replaced(ledger, first(ledger, 4), lambda e: e.__setitem__(2, 99))
        sign_again(folder, ledger)

    def unknown_type(ledger):
        ledger[2][first(ledger, 6)] = cbor2.dumps([12, 1])
        sign_again(folder, ledger)

    def other_link(ledger):
        at = first(ledger, 10)
        ledger[2][at] = cbor2.dumps([10, bytes(32)])
        ledger[3][1:] = [note_of(folder, ledger[2][:int(note.split("\n")[1])]) for note in ledger[3][1:]]

    def beyond_the_plan(ledger):
        terms = [i for i, leaf in enumerate(ledger[2]) if isinstance(leaf, bytes) and cbor2.loads(leaf)[0] == 3]
        replaced(ledger, terms[2], lambda e: e.__setitem__(14, 901))
        sign_again(folder, ledger)

    def another_plan(ledger):
        terms = [i for i, leaf in enumerate(ledger[2]) if isinstance(leaf, bytes) and cbor2.loads(leaf)[0] == 3]
        replaced(ledger, terms[2], lambda e: e.__setitem__(15, 9000))
        sign_again(folder, ledger)

    def no_plan(ledger):
        replaced(ledger, first(ledger, 3), lambda e: e.pop())
        sign_again(folder, ledger)

    def unattested(ledger):
        replaced(ledger, first(ledger, 2), lambda e: e.__setitem__(3, None))
        sign_again(folder, ledger)

    def impossible(field, value):
        def change(ledger):
            replaced(ledger, first(ledger, 3), lambda e: e.__setitem__(field, value))
            sign_again(folder, ledger)
        return change

    cases = {"beyond": (beyond_the_plan, "the run has more steps than it planned"),
             "unattested": (unattested, "contribution 0 names no attestation"),
             "deviation": (impossible(7, 2**53 + 1), "its standard deviation is 9007199254740993, which no epoch can have"),
             "steps": (impossible(14, 0), "its number of steps is 0, which no epoch can have"),
             "endless": (impossible(15, 2**60), "its number of planned steps is 1152921504606846976, which no epoch can have"),
             "another": (another_plan, "its terms are not those that the run planned"),
             "without": (no_plan, "it cannot be read"),
             "after": (used_after_withdrawal, "is used after its withdrawal"),
             "epoch": (epoch_left_out, "an epoch ends that was never started"),
             "stranger": (use_of_a_stranger, "contribution 99 is used under terms that are not its own"),
             "type": (unknown_type, "it is of a type that no entry has"),
             "link": (other_link, "entry 2: the checkpoint before it is not the one it names")}
    found, *_ = ask(folder, [altered(folder, name, change) for name, (change, _) in cases.items()])
    for name, (_, why) in cases.items():
        assert found[name]["signed"][0] == VERIFIED, (name, found[name])
        assert found[name]["order"][0] == BROKEN and why in found[name]["order"][1], (name, found[name])
        assert re.match(r"entry \d+: ", found[name]["order"][1])
        assert found[name]["tables"][0] == UNKNOWN


def test_a_ledger_signed_anew_by_a_stranger_is_told_by_the_key_alone(folder):
    job = altered(folder, "anew", lambda ledger: sign_again(folder, ledger, "stranger"))
    early = text_of(folder, "early.note")
    found, *_ = ask(folder, [job, {**job, "name": "keyed", "paste": {"key": text_of(folder, "ledger.pub"), "note": early}}])
    assert found["anew"]["signed"][0] == VERIFIED and found["anew"]["key"][0] == UNKNOWN
    assert found["anew"]["tables"][0] == BROKEN  # the table still names the other key
    assert found["keyed"]["key"] == (BROKEN, "the ledger is signed by another key than the one you gave")
    assert found["keyed"]["past"][0] == BROKEN


def test_a_table_that_says_something_else_is_broken(folder):
    page = text_of(folder, "honest.html")
    cases = {"epsilon": (r'(data-is="class/public/spent">)[0-9.]+', r"\g<1>0.010000", "the page says 0.010000, the entries say"),
             "count": (r'(data-is="refused/EXPIRED">)2', r"\g<1>1", "the page says 1, the entries say 2"),
             "left_out": (r'<tr><td data-is="withdrawal/38/entry">.*?</tr>\n', "", "the page leaves out"),
             "invented": (r'(<tr><td data-is="withdrawal/38/entry">.*?</tr>\n)', r"\1\1", "of which the entries say nothing"),
             "column": (r'(<th scope="col">)Withdrawn since', r"\g<1>Stayed", "column heads"),
             "row_without_name": (r'(<tr><td data-is="withdrawal/38/entry">)', r"<tr><td>9</td><td>a forged row</td></tr>\1", "added or altered"),
             "hidden": (r'<tr>(<th scope="row">public</th>)', r"<tr hidden>\1", "hidden"),
             "styled": (r'<td (data-is="class/public/withdrawn")', r'<td style="opacity:0" \1', "hidden"),
             "row_head": (r'<th scope="row">Signed by</th>', '<th scope="row">Audited by</th>', "added or altered"),
             "meaning": (r"(data-is=\"refused/EXPIRED\">2</td><td>)", r"\1harmless", "added or altered"),
             "table": (r'(<div class="panel"><h3 id="ledger-epochs">)', r"<table><tr><td>VERIFIED</td></tr></table>\1", "tables of the ledger"),
             "title": (r'(<h3 id="ledger-classes">)Contributions', r"\1Certified contributions", "title"),
             "heading": (r'(<h2 id="ledger">)The ledger', r"\1Audited: the ledger", "heading")}
    for name, (pattern, text, _) in cases.items():
        changed, count = re.subn(pattern, text, page, flags=re.S)
        assert count == 1
        (folder / f"{name}.html").write_text(changed, "utf-8")
    found, *_ = ask(folder, [{"name": name, "page": f"{name}.html"} for name in cases])
    for name, (_, _, why) in cases.items():
        assert found[name]["signed"][0] == VERIFIED
        assert found[name]["tables"][0] == BROKEN and why in found[name]["tables"][1], (name, found[name])


def test_what_the_reader_pastes_is_never_verified_by_mistake(folder):
    early = text_of(folder, "early.note")
    leaves = cbor2.loads(base64.b64decode(BLOCK.search(text_of(folder, "honest.html"))[2]))[2]
    cases = {
        "words": ({"key": "trust me", "note": "trust me"}, UNKNOWN, UNKNOWN),
        "short": ({"key": "00" * 31, "note": early.replace("\n\n", "\n")}, UNKNOWN, UNKNOWN),
        "stranger": ({"key": raw_key(folder, "stranger").hex(), "note": note_of(folder, leaves[:5], "stranger")}, BROKEN, BROKEN),
        "fork": ({"note": note_of(folder, leaves[:5] + [b"another"])}, UNKNOWN, BROKEN),
        "rollback": ({"note": note_of(folder, leaves + [b"later"])}, UNKNOWN, BROKEN),
        "other_name": ({"note": note_of(folder, leaves[:5], origin="test.example/other")}, UNKNOWN, BROKEN),
        "bent": ({"note": early.replace("\n11\n", "\n9\n")}, UNKNOWN, BROKEN),
    }
    assert "\n11\n" in early
    found, *_ = ask(folder, [{"name": name, "page": "honest.html", "paste": paste} for name, (paste, _, _) in cases.items()])
    for name, (_, key, past) in cases.items():
        assert (found[name]["key"][0], found[name]["past"][0]) == (key, past), (name, found[name])
    assert "rewritten: the first 6 entries" in found["fork"]["past"][1]
    assert "rolled back: the checkpoint covers 41 entries, but there are 40" == found["rollback"]["past"][1]


def test_without_the_cryptography_or_the_script_nothing_is_verified(folder):
    page = text_of(folder, "honest.html")
    # The policy knows the script by its hash: a changed one does not run.
    (folder / "changed_script.html").write_text(page.replace('verdict = UNKNOWN, why', 'verdict = VERIFIED, why'), "utf-8")
    found, *_ = ask(folder, [{"name": "changed_script", "page": "changed_script.html", "silent": True},
                             {"name": "no_ed25519", "page": "honest.html", "without": True,
                              "paste": {"key": text_of(folder, "ledger.pub")}}])
    assert {verdict for verdict, _ in found["changed_script"].values()} == {UNKNOWN}
    assert {verdict for verdict, _ in found["no_ed25519"].values()} == {UNKNOWN}
    assert "cannot verify Ed25519" in found["no_ed25519"]["signed"][1]
    # A page over plain http has no cryptography.
    found, _, _, secure = ask(folder, [{"name": "http", "page": "honest.html"}], host="report.test")
    assert not secure and {verdict for verdict, _ in found["http"].values()} == {UNKNOWN}
    assert "only to pages from a file or over https" in found["http"]["signed"][1]


def test_a_large_ledger_is_not_carried_and_not_verified(folder):
    job = altered(folder, "large", lambda l: [l[0], l[1], l[2][:1], l[3][-1:]])
    forged = altered(folder, "large_forged", lambda l: [l[0], l[1], l[2][:1], [note_of(folder, l[2], "stranger")]])
    found, *_ = ask(folder, [job, forged])
    assert {verdict for verdict, _ in found["large"].values()} == {UNKNOWN}
    assert "the last checkpoint is signed by this key, but the 40 entries are too many" in found["large"]["signed"][1]
    assert found["large_forged"]["signed"][0] == BROKEN


def test_the_policy_lets_even_its_own_script_ask_nobody(folder):
    page = text_of(folder, "honest.html")
    script = 'fetch("http://elsewhere.test/a");new Image().src="http://elsewhere.test/b";document.title="ran"'
    old = re.search(r"script-src '(sha256-[^']+)'", page)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = page.replace(old, f"sha256-{digest}")
    page = re.sub(r"<script>.*</script>", lambda _: f"<script>{script}</script>", page, flags=re.S)
    (folder / "calls.html").write_text(page, "utf-8")
    with Server(folder) as server:
        dom, console = browse(folder, (folder / "calls.html").as_uri(), server.server_port, "--dump-dom")
    assert "<title>ran</title>" in dom and server.asked == []
    assert len([line for line in console if "Content Security Policy" in line]) >= 2


def test_the_page_verifies_when_it_is_opened_as_a_file(folder):
    with Server(folder) as server:
        dom, console = browse(folder, (folder / "honest.html").as_uri(), server.server_port, "--dump-dom",
                              "--virtual-time-budget=30000")
    assert '<tr id="check-tables" data-verdict="VERIFIED">' in dom and server.asked == [] and console == []
    assert "<i>moved</i>" not in dom and "&lt;i&gt;moved&lt;/i&gt;" in dom
