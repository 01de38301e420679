"use strict";
(() => {
const SHOWN = 100, BATCH = 2048, VERIFIED = "VERIFIED", BROKEN = "BROKEN", UNKNOWN = "COULD NOT CHECK";
class Broken extends Error {}
class Unknown extends Error {}
const broken = (text) => { throw new Broken(text); };
const subtle = globalThis.crypto && crypto.subtle;

function say(id, verdict, why) {
  const row = document.getElementById("check-" + id);
  row.dataset.verdict = verdict;
  row.querySelector(".verdict").textContent = verdict;
  row.querySelector(".why").textContent = why;
}
// Runs one check. Only a check that returned is VERIFIED.
async function decide(id, check) {
  let verdict = UNKNOWN, why, value;
  try { [why, value] = await check(); verdict = VERIFIED; }
  catch (error) {
    if (error instanceof Broken) verdict = BROKEN;
    why = error instanceof Broken || error instanceof Unknown ? error.message : "the check failed: " + error;
  }
  say(id, verdict, why);
  return verdict === VERIFIED ? value : null;
}

// ---- bytes
const utf8 = (text) => new TextEncoder().encode(text);
const hex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
const from_hex = (text) => Uint8Array.from(text.match(/../g) || [], (pair) => parseInt(pair, 16));
const from_base64 = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const same = (a, b) => a.length === b.length && a.every((byte, i) => byte === b[i]);
const sha256 = async (...parts) => {
  const all = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const part of parts) { all.set(part, at); at += part.length; }
  return new Uint8Array(await subtle.digest("SHA-256", all));
};

// CBOR as the ledger writes it: integers, bytes, text, arrays, maps, true, false, null.
function cbor(bytes) {
  let at = 0;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const take = (n) => { if (n > bytes.length - at) broken("it ends too early"); at += n; return at - n; };
  function argument(info) {
    if (info < 24) return info;
    if (info === 24) return view.getUint8(take(1));
    if (info === 25) return view.getUint16(take(2));
    if (info === 26) return view.getUint32(take(4));
    if (info !== 27) broken("it has an invalid length");
    const big = view.getBigUint64(take(8));
    return big <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(big) : big;
  }
  function value(depth) {
    if (depth > 8) broken("it is nested too deeply");
    const head = view.getUint8(take(1)), major = head >> 5;
    if (major === 7) {
      if (head === 0xf6) return null;
      if (head === 0xf4 || head === 0xf5) return head === 0xf5;
      broken("it has a value that no entry has");
    }
    const n = argument(head & 31);
    if (major === 0) return n;
    if (major === 1) return -1n - BigInt(n);
    if (typeof n !== "number") broken("it ends too early");
    if (major === 2) { const from = take(n); return bytes.subarray(from, at); }
    if (major === 3) { const from = take(n); return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes.subarray(from, at)); }
    if (n > bytes.length) broken("it ends too early");
    if (major === 4) return Array.from({ length: n }, () => value(depth + 1));
    if (major === 5) return Array.from({ length: n }, () => [value(depth + 1), value(depth + 1)]);
    broken("it has a value that no entry has");
  }
  const found = value(0);
  if (at !== bytes.length) broken("bytes follow its end");
  return found;
}
const is_bytes = (value, n) => value instanceof Uint8Array && (n === undefined || value.length === n);
const is_count = (value) => typeof value === "number" || typeof value === "bigint";
const is_text = (value) => typeof value === "string";

// ---- the browser's own cryptography, on RFC 8032 test 2 and an empty SHA-256
async function require_crypto() {
  if (!subtle) throw new Unknown("this browser offers its cryptography only to pages from a file or over https");
  const key = from_hex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
  const good = from_hex("92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da" +
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00");
  const bad = good.slice();
  bad[0] ^= 1;
  let works = false;
  try {
    works = await signed_by(key, good, Uint8Array.of(0x72)) && !await signed_by(key, bad, Uint8Array.of(0x72)) &&
      hex(await sha256()) === "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
  } catch (error) { works = false; }
  if (!works) throw new Unknown("this browser cannot verify Ed25519 signatures; take a newer one, or the command");
}
async function signed_by(key, signature, text) {
  const imported = await subtle.importKey("raw", key, { name: "Ed25519" }, false, ["verify"]);
  return subtle.verify({ name: "Ed25519" }, imported, signature, text);
}

// ---- signed notes (C2SP), as this ledger writes them: three lines, a blank one, signatures
function parse_note(text) {
  const blank = text.lastIndexOf("\n\n");
  const lines = blank < 0 ? [] : text.slice(0, blank + 1).split("\n");
  if (lines.length !== 4 || !/^(0|[1-9][0-9]{0,14})$/.test(lines[1]) || !/^[A-Za-z0-9+/]{43}=$/.test(lines[2])) return null;
  const signatures = [];
  for (const line of text.slice(blank + 2).split("\n")) {
    const found = /^\u2014 (\S+) ([A-Za-z0-9+/=]+)$/.exec(line);
    if (!found && line !== "") return null;
    if (found) signatures.push({ name: found[1], bytes: found[2] });
  }
  return { text: text.slice(0, blank + 1), origin: lines[0], size: Number(lines[1]), root: from_base64(lines[2]), signatures };
}
async function is_signed(note, header) {
  const id = (await sha256(utf8(header.origin), Uint8Array.of(10, 1), header.key)).subarray(0, 4);
  let found = false;
  for (const { name, bytes } of note.signatures) {
    let raw;
    try { raw = from_base64(bytes); } catch (error) { return false; }
    if (name !== header.origin || !same(raw.subarray(0, 4), id)) continue;
    if (raw.length !== 68 || !await signed_by(header.key, raw.subarray(4), utf8(note.text))) return false;
    found = true;
  }
  return found && note.origin === header.origin;
}

// ---- the tree of RFC 9162: all complete subtrees, level by level
async function hash_all(count, input, progress) {
  const out = new Uint8Array(32 * count);
  for (let begin = 0; begin < count; begin += BATCH) {
    const wait = [];
    for (let i = begin; i < Math.min(begin + BATCH, count); ++i) wait.push(input(i));
    if (progress) say("signed", UNKNOWN, "checking\u2026 " + begin.toLocaleString("en-US") + " of " + count.toLocaleString("en-US"));
    (await Promise.all(wait)).forEach((digest, i) => out.set(digest, 32 * (begin + i)));
  }
  return out;
}
async function tree_of(leaves) {
  const levels = [await hash_all(leaves.length, (i) => is_bytes(leaves[i]) ? sha256(Uint8Array.of(0), leaves[i]) : leaves[i][0], true)];
  while (levels.at(-1).length >= 64) {
    const below = levels.at(-1);
    levels.push(await hash_all(Math.floor(below.length / 64), (i) => sha256(Uint8Array.of(1), below.subarray(64 * i, 64 * i + 64))));
  }
  return levels;
}
async function root_of(levels, size) {
  let root = null, at = size;
  for (let level = 0; at > 0; ++level, at = Math.floor(at / 2)) {
    if (at % 2 === 0) continue;
    const peak = levels[level].subarray(32 * (at - 1), 32 * at);
    root = root ? await sha256(Uint8Array.of(1), peak, root) : peak;
  }
  return root;
}

// ---- check: the entries are those that were signed
function unpack() {
  let found;
  try { found = cbor(from_base64(document.getElementById("ledger-data").textContent.trim())); }
  catch (error) { broken("the copy of the ledger in this page cannot be read"); }
  const [format, size, leaves, notes] = Array.isArray(found) ? found : [];
  if (format !== "discreet-ledger-page-v1" || !Array.isArray(leaves) || !Array.isArray(notes) || notes.length === 0 ||
      leaves.length === 0 || typeof size !== "number" || !notes.every(is_text) ||
      !leaves.every((leaf) => is_bytes(leaf) || (Array.isArray(leaf) && leaf.length === 1 && is_bytes(leaf[0], 32))))
    broken("the copy of the ledger in this page cannot be read");
  return { size, leaves, notes };
}
function read_header(leaf) {
  let e;
  try { e = cbor(leaf); } catch (error) { broken("entry 0 is not a ledger header"); }
  if (!Array.isArray(e) || e.length !== 15 || e[0] !== 0 || e[1] !== "discreet-ledger" || (e[2] !== 1 && e[2] !== 2) || !is_text(e[3]) ||
      !is_bytes(e[13], 32) || !Array.isArray(e[14])) broken("entry 0 is not a ledger header");
  return { plans: e[2] > 1, origin: e[3], accountant: e[4], delta: e[5], adjacency: e[6], policy: e[12], key: e[13], stewards: e[14] };
}
async function check_signed() {
  await require_crypto();
  const { size, leaves, notes } = unpack();
  const header = read_header(is_bytes(leaves[0]) ? leaves[0] : broken("entry 0 is not a ledger header"));
  if (leaves.length === 1 && size > 1) {
    const note = parse_note(notes[0]);
    if (!note || note.size !== size || !await is_signed(note, header)) broken("the last checkpoint is not signed by the ledger's key");
    throw new Unknown("the last checkpoint is signed by this key, but the " + size.toLocaleString("en-US") +
      " entries are too many for a page: use the command");
  }
  const levels = await tree_of(leaves);
  let first = 0, parsed = [];
  for (const text of notes) {
    const note = parse_note(text);
    if (!note || text.split("\n").length !== 6) broken("after entry " + (first ? first - 1 : 0) + ": a checkpoint cannot be read");
    if (!await is_signed(note, header)) broken("the checkpoint of " + note.size + " entries is not signed by the ledger's key");
    if (note.size <= first) broken("the checkpoint of " + note.size + " entries does not follow that of " + first);
    if (note.size > leaves.length) broken("a checkpoint covers " + note.size + " entries, but there are " + leaves.length);
    if (!same(await root_of(levels, note.size), note.root))
      broken("one of the entries " + first + " to " + (note.size - 1) + " is not the one that was signed");
    parsed.push({ size: note.size, hash: await sha256(utf8(text)) });
    first = note.size;
  }
  if (first !== leaves.length || size !== first) broken("the entries from " + first + " on are not signed");
  return [leaves.length.toLocaleString("en-US") + " entries, " + notes.length.toLocaleString("en-US") + " checkpoints",
    { header, leaves, levels, notes: parsed }];
}

// ---- check: order. Reads every entry into what the tables show.
const SAMPLERS = ["none", "Poisson", "truncated Poisson", "fixed size", "balls and bins", "shuffled epoch"];
// The numbers of terms: name, field, least, most.
const TERMS = [["noise family", 6, 0, 4], ["standard deviation", 7, 1, 2 ** 53], ["grid", 8, 0, 2 ** 53], ["sampler", 10, 0, 5],
  ["rate", 11, 0, 1e12], ["batch", 12, 0, 2 ** 53], ["population", 13, 0, 2 ** 53], ["number of steps", 14, 1, 2 ** 53],
  ["number of planned steps", 15, 1, 2 ** 53]];
const NEIGHBOURS = ["one record added or removed", "one record blanked out", "one record exchanged"];
function read_entries({ header, leaves, notes }) {
  const state = { contributions: new Map(), refusals: new Map(), withdrawals: [], epochs: [], releases: [], summary: [] };
  const by_descriptor = new Map(), withdrawn = new Set(), models = new Map(), plans = new Map(), next_epoch = new Map(), after = new Map(notes.map((n) => [n.size, n.hash]));
  let open = [], last = -1, uses = 0, number = 0;
  leaves.forEach((leaf, at) => {
    const wrong = (text) => broken("entry " + at + ": " + text);
    if (!is_bytes(leaf)) {
      if (at < 2 || after.has(at)) wrong("it is summarised, but must be kept");
      if (open.length) ++uses; else ++number;
      return;
    }
    let e;
    try { e = cbor(leaf); } catch (error) { wrong("it cannot be read"); }
    if (!Array.isArray(e)) wrong("it cannot be read");
    const has = (length, ok) => { if (e.length !== length || !ok) wrong("it cannot be read"); };
    const type = e[0];
    if ((at < 2) !== (type < 2) || (at < 2 && type !== at)) wrong("entry 0 is the header, entry 1 the policy, no other is");
    if (after.has(at) !== (type === 10)) wrong("the entry after a checkpoint, and no other, names it");
    if (open.length && type !== 3 && type !== 4 && type !== 5) wrong("it stands inside an epoch");
    if (type === 2) {
      has(13, is_count(e[1]) && is_bytes(e[2], 32) && is_text(e[4]) && is_bytes(e[5], 32));
      if (!is_bytes(e[3], 32)) wrong("contribution " + e[1] + " names no attestation");
      if (e[1] !== number) wrong("contribution " + e[1] + " should have the number " + number);
      if (by_descriptor.has(hex(e[2]))) wrong("its descriptor was admitted before");
      if (withdrawn.has(hex(e[2]))) wrong("its descriptor was withdrawn before it was admitted");
      const c = { class: e[4], uses: 0, spent: 0, withdrawn: false };
      state.contributions.set(number++, c);
      by_descriptor.set(hex(e[2]), c);
    } else if (type === 3) {
      has(header.plans ? 16 : 15, is_text(e[1]) && is_count(e[2]) && is_count(e[3]) && is_text(e[4]) && is_count(e[14]) && (!header.plans || is_count(e[15])));
      for (const [name, i, least, most] of TERMS)
        if (i < e.length && !(is_count(e[i]) && e[i] >= least && e[i] <= most)) wrong("its " + name + " is " + e[i] + ", which no epoch can have");
      if (uses > 0) wrong("terms stand after the first use of their epoch");
      if (!open.length && e[2] !== (next_epoch.get(e[1]) || 0)) wrong("epoch " + e[2] + " of run " + e[1] + " should be epoch " + (next_epoch.get(e[1]) || 0));
      if (open.length && (open[0].run !== e[1] || open[0].epoch !== e[2])) wrong("the terms of an epoch name another run or epoch");
      if (header.plans) {
        const key = JSON.stringify([e[1], e[4]]), terms = JSON.stringify(e.map((x, i) => i === 2 || i === 3 || i === 14 ? null : is_bytes(x) ? hex(x) : String(x)));
        const plan = plans.get(key) || { terms, steps: 0n };
        if (plan.terms !== terms) wrong("its terms are not those that the run planned");
        plan.steps += BigInt(e[14]);
        if (plan.steps > BigInt(e[15])) wrong("the run has more steps than it planned");
        plans.set(key, plan);
      }
      open.push({ at, run: e[1], epoch: e[2], date: e[3], class: e[4], deviation: e[7], sampler: e[10], steps: e[14], planned: header.plans ? e[15] : null, uses: 0, spent: 0 });
    } else if (type === 4) {
      has(4, is_count(e[1]) && is_count(e[2]) && is_count(e[3]));
      const c = state.contributions.get(e[2]), terms = open.find((t) => t.at === e[1]);
      if (!c || !terms || terms.class !== c.class) wrong("contribution " + e[2] + " is used under terms that are not its own");
      if (c.withdrawn) wrong("contribution " + e[2] + " is used after its withdrawal");
      if (e[2] <= last) wrong("contribution " + e[2] + " occurs twice or out of order in its epoch");
      last = e[2]; c.spent = e[3]; ++c.uses; ++uses; ++terms.uses;
      if (e[3] > terms.spent) terms.spent = e[3];
    } else if (type === 5) {
      has(4, is_text(e[1]) && is_count(e[2]) && is_count(e[3]));
      if (!open.length || open[0].run !== e[1] || open[0].epoch !== e[2]) wrong("an epoch ends that was never started");
      if (e[3] !== uses) wrong("its epoch has " + uses + " uses and says " + e[3]);
      next_epoch.set(e[1], e[2] + 1);
      state.epochs.push(...open);
      open = []; last = -1; uses = 0;
    } else if (type === 6) {
      has(2, Array.isArray(e[1]));
      for (const [reason, count] of e[1]) state.refusals.set(reason, (state.refusals.get(reason) || 0) + count);
    } else if (type === 7) {
      has(6, is_bytes(e[1], 32) && is_text(e[2]) && is_count(e[3]) && is_bytes(e[4], 32));
      if (withdrawn.has(hex(e[1]))) wrong("its descriptor was withdrawn before");
      withdrawn.add(hex(e[1]));
      const c = by_descriptor.get(hex(e[1]));
      if (c) c.withdrawn = true;
      state.withdrawals.push({ at, descriptor: hex(e[1]), reason: e[2], date: e[3],
        by: header.stewards.some((key) => same(key, e[4])) ? "a steward" : "its contributor" });
    } else if (type === 8) {
      has(5, Array.isArray(e[4]));
      state.summary = e[4];
    } else if (type === 9) {
      has(3, is_text(e[1]) && is_bytes(e[2], 32));
      if (!next_epoch.has(e[1])) wrong("run " + e[1] + " is released before its first epoch");
      state.releases.push({ at, run: e[1], manifest: hex(e[2]) });
    } else if (type === 10) {
      has(2, is_bytes(e[1], 32));
      if (!same(e[1], after.get(at))) wrong("the checkpoint before it is not the one it names");
    } else if (type === 11) {
      has(12, is_text(e[1]) && is_count(e[2]) && is_bytes(e[4], 32) && is_count(e[10]) && (e[11] === null || is_count(e[11])));
      const model = models.get(e[1]) || { deletions: 0, generation: 0 };
      if (e[2] !== model.deletions) wrong("deletion " + e[2] + " of " + e[1] + " should have the number " + model.deletions);
      if (e[10] < model.generation) wrong("it is of an earlier generation of " + e[1]);
      if (e[11] !== null && !state.withdrawals.some((w) => w.at === e[11])) wrong("entry " + e[11] + ", which it names, is not a withdrawal");
      models.set(e[1], { deletions: e[2] + 1, generation: e[10] });
    } else if (type > 11 || !is_count(type)) {
      wrong("it is of a type that no entry has");
    }
  });
  if (open.length) broken("the last epoch has no end");
  return [state.epochs.length.toLocaleString("en-US") + " terms of epochs, " + state.withdrawals.length.toLocaleString("en-US") + " withdrawals", state];
}

// ---- check: the tables of the page, cell by cell (ledger_section.cpp writes the same texts)
const grouped = (n) => n.toLocaleString("en-US");
const epsilon = (micro) => { const n = BigInt(micro); return n / 1000000n + "." + String(n % 1000000n).padStart(6, "0"); };
const day = (s) => s >= 253402300800 ? "after 9999" : new Date(Number(s) * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC";
function scientific(x) {
  if (x === 0 || (x >= 1e-3 && x < 1e6)) return String(x);
  const [digits, power] = x.toExponential().split("e").map(Number);
  return (digits === 1 ? "" : digits + " \u00d7 ") + "10" + (power < 0 ? "\u2212" : "") + Math.abs(power);
}
const TITLE = "The ledger: who contributed, under which promise, and what it cost";
const MEANINGS = { NO_ATTESTATION: "there was no signature", MALFORMED: "descriptor or signature could not be read",
  UNTRUSTED_KEY: "the policy does not know the key, or not for this class", REVOKED_KEY: "the key was revoked",
  BAD_SIGNATURE: "the signature does not fit", UNKNOWN_CLASS: "the policy has no such class",
  OUTSIDE_VALIDITY: "not valid at the time, or for too long", OTHER_CORPUS: "signed for another corpus, or for none",
  BELOW_FLOOR: "asked for less protection than the policy demands", WITHDRAWN: "it had been withdrawn",
  DUPLICATE: "the same contributor had given it before" };
const span = (first, last) => first === last ? first : first + " to " + last;
// The epochs of one run and class under the same noise, sampler and plan, as one row.
function folded(epochs) {
  const rows = new Map();
  for (const e of epochs) {
    const key = JSON.stringify([e.run, e.class, e.sampler, e.deviation, e.planned].map(String)), row = rows.get(key);
    if (!row) { rows.set(key, { ...e, last: e.epoch, last_date: e.date, steps: BigInt(e.steps) }); continue; }
    row.last = e.epoch; row.last_date = e.date; row.steps += BigInt(e.steps);
    if (e.uses > row.uses) row.uses = e.uses;
    if (e.spent > row.spent) row.spent = e.spent;
  }
  return [...rows.values()];
}
// The tables that the entries give: title, columns, and rows of cells [name, text]. A cell without a name is a word of the page.
function tables_of({ header, leaves, notes }, state) {
  // As escape() in plot.cpp: control characters are shown as U+FFFD.
  const printable = (text) => String(text).replace(/[\x00-\x08\x0b-\x1f\x7f]/g, "\ufffd");
  const by_name = (map) => [...map].sort(([a], [b]) => a < b ? -1 : a > b ? 1 : 0);
  const row = (head, key, values) => [...(head === null ? [] : [[null, printable(head)]]),
    ...Object.keys(values).map((name) => [printable(key + name), printable(values[name])])];
  const classes = new Map();
  for (const c of state.contributions.values()) {
    const total = classes.get(c.class) || { contributions: 0, withdrawn: 0, uses: 0, spent: 0 };
    ++total.contributions; total.withdrawn += c.withdrawn; total.uses += c.uses;
    if ((header.plans || !c.withdrawn) && c.spent > total.spent) total.spent = c.spent;
    classes.set(c.class, total);
  }
  const all = [{ columns: [], rows: [row("Name", "", { origin: header.origin }), row("Entries", "", { entries: grouped(leaves.length) }),
    row("Signed checkpoints", "", { checkpoints: grouped(notes.length) }), row("Signed by", "", { key: hex(header.key) }),
    ...(header.stewards.length ? [row("Stewards, who may withdraw", "", { stewards: header.stewards.map(hex).join(" ") })] : []),
    row("\u03b5 is derived by", "", { accountant: header.accountant }), row("at \u03b4", "", { delta: scientific(Number(header.delta) / 1e18) }),
    row("between data sets with", "", { adjacency: NEIGHBOURS[header.adjacency] }), row("Policy", "", { policy: hex(header.policy) })] },
  { id: "classes", title: "Contributions", columns: ["Class", "\u03b5 at most", "Admitted", "Withdrawn since", "Uses in epochs"],
    rows: by_name(classes).map(([name, c]) => row(name, "class/" + name + "/", { spent: epsilon(c.spent), contributions: grouped(c.contributions),
      withdrawn: grouped(c.withdrawn), uses: grouped(c.uses) })) },
  { id: "refusals", title: "Refusals", columns: ["Reason", "Contributions", "Meaning"],
    rows: by_name(state.refusals).map(([reason, count]) => [...row(reason, "refused/", { [reason]: grouped(count) }), [null, MEANINGS[reason] || ""]]) },
  { id: "epochs", title: "Epochs", columns: ["Class", "\u03b5 at most", "Epochs", "Steps", "Planned by the run", "Contributions", "Noise, standard deviation", "Sampling", "Dates (end of the hour)", "Run"],
    rows: folded(state.epochs).slice(0, SHOWN).map((e) => row(null, "epochs/" + e.at + "/", { class: e.class, spent: epsilon(e.spent),
      epochs: span(grouped(e.epoch), grouped(e.last)), steps: grouped(e.steps), planned: e.planned === null ? "unknown" : grouped(e.planned),
      contributions: grouped(e.uses), deviation: scientific(Number(e.deviation) / 1e9), sampler: SAMPLERS[e.sampler] || "unknown",
      dates: span(day(e.date), day(e.last_date)), run: e.run })) },
  { id: "withdrawals", title: "Withdrawals", columns: ["Entry", "Signed on", "By", "Reason given", "Descriptor"],
    rows: state.withdrawals.slice(0, SHOWN).map((w) => row(null, "withdrawal/" + w.at + "/", { entry: grouped(w.at), date: day(w.date), by: w.by,
      reason: w.reason, descriptor: w.descriptor })) },
  { id: "releases", title: "Releases", columns: ["Entry", "Run", "Manifest"],
    rows: state.releases.slice(0, SHOWN).map((r) => row(null, "release/" + r.at + "/", { entry: grouped(r.at), run: r.run, manifest: r.manifest })) },
  { id: "summarised", title: "Summarised", columns: ["Class", "Contributions", "Uses in epochs", "\u03b5 at most"],
    rows: state.summary.map(([name, contributions, uses, spent]) => row(name, "summarised/" + name + "/", { contributions: grouped(contributions),
      uses: grouped(uses), spent: epsilon(spent) })) }];
  return all.filter((table) => table.rows.length);
}
function check_cells(tables) {
  const all = new Map(tables.flatMap((t) => t.rows).flat().filter(([name]) => name !== null)), count = all.size;
  for (const cell of document.querySelectorAll("[data-is]")) {
    const name = cell.dataset.is;
    if (!all.has(name)) broken("the page shows \u201c" + name + "\u201d, of which the entries say nothing");
    if (all.get(name) !== cell.textContent)
      broken("of \u201c" + name + "\u201d the page says " + cell.textContent + ", the entries say " + all.get(name));
    all.delete(name);
  }
  for (const name of all.keys()) broken("the page leaves out \u201c" + name + "\u201d");
  return count;
}
// Titles, heads, rows and everything that could hide or add to them.
function check_shape(found, tables) {
  const texts = (row) => [...row.cells].map((cell) => cell.textContent);
  const equal = (a, b) => JSON.stringify(a) === JSON.stringify(b);
  if (document.getElementById("ledger").textContent !== TITLE) broken("the heading of this part was altered");
  if (found.length !== tables.length) broken("the page has " + found.length + " tables of the ledger, the entries give " + tables.length);
  found.forEach((table, i) => {
    const t = tables[i], name = t.title || "The contract";
    if (t.id && (document.getElementById("ledger-" + t.id)?.textContent !== t.title || table.caption?.textContent !== t.title))
      broken("the title of the table \u201c" + name + "\u201d was altered");
    if (!equal(table.tHead ? [...table.tHead.rows].map(texts) : [], t.columns.length ? [t.columns] : []))
      broken("the column heads of the table \u201c" + name + "\u201d were altered");
    if (table.tBodies.length !== 1 || table.tFoot || !equal([...table.tBodies[0].rows].map(texts), t.rows.map((row) => row.map(([, text]) => text))))
      broken("rows of the table \u201c" + name + "\u201d were added or altered");
    for (const part of [table, ...table.querySelectorAll("*")]) {
      const ours = /^(TABLE|CAPTION|THEAD|TBODY|TR|TH|TD|CODE|SUP)$/.test(part.tagName) &&
        [...part.attributes].every((a) => a.name === "scope" || a.name === "data-is" || (a.name === "class" && /^(facts|numbers|unseen)$/.test(a.value)));
      const style = getComputedStyle(part);
      if (!ours || style.display === "none" || style.visibility !== "visible" || Number(style.opacity) < 1)
        broken("a part of the table \u201c" + name + "\u201d is hidden or not of this page");
    }
  });
}
// Heads and rows anew, as text: whatever stood there before.
function rebuild(table, t) {
  const cell = (kind, scope, name, text) => {
    const made = document.createElement(kind);
    if (scope) made.scope = scope;
    if (name !== null) made.dataset.is = name;
    made.textContent = text;
    return made;
  };
  const rows = (kind, lines) => { const part = document.createElement(kind); for (const cells of lines) part.insertRow().append(...cells); return part; };
  const parts = table.caption ? [table.caption] : [];
  if (t.columns.length) parts.push(rows("thead", [t.columns.map((text) => cell("th", "col", null, text))]));
  parts.push(rows("tbody", t.rows.map((line) => line.map(([name, text], i) => i === 0 && name === null ? cell("th", "row", null, text) : cell("td", "", name, text)))));
  table.replaceChildren(...parts);
}
function check_tables(ledger, state) {
  const tables = tables_of(ledger, state);
  const found = [...document.querySelectorAll('section[aria-labelledby="ledger"] table:not(#checks)')];
  try {
    const count = check_cells(tables);
    check_shape(found, tables);
    return [grouped(count) + " cells"];
  } finally {
    if (found.length === tables.length) found.forEach((table, i) => rebuild(table, tables[i]));
  }
}

// ---- what the reader brings
function key_in(text) {
  text = text.trim();
  if (/^[0-9a-fA-F]{64}$/.test(text)) return from_hex(text);
  const pem = /^-----BEGIN PUBLIC KEY-----([A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----$/.exec(text);
  const noted = /^[^\s+]+\+[0-9a-f]{8}\+([A-Za-z0-9+/=]+)$/.exec(text);
  try {
    const bytes = from_base64((pem || noted)[1].replace(/\s/g, ""));
    if (pem && bytes.length === 44 && hex(bytes.subarray(0, 12)) === "302a300506032b6570032100") return bytes.subarray(12);
    if (!pem && bytes.length === 33 && bytes[0] === 1) return bytes.subarray(1);
  } catch (error) { /* none of the forms */ }
  return null;
}
function check_key(ledger, text) {
  if (text.trim() === "") throw new Unknown("paste it below");
  if (!ledger) throw new Unknown("the entries are not verified");
  const key = key_in(text);
  if (!key) throw new Unknown("this is not an Ed25519 public key; paste 64 hexadecimal digits, PEM, or name+id+base64");
  if (!same(key, ledger.header.key)) broken("the ledger is signed by another key than the one you gave");
  const named = /^([^\s+]+)\+[0-9a-f]{8}\+/.exec(text.trim());
  if (named && named[1] !== ledger.header.origin) broken("the key you gave is that of ledger " + named[1]);
  return ["it signed every checkpoint"];
}
async function check_past(ledger, text) {
  if (text.trim() === "") throw new Unknown("paste it below");
  if (!ledger) throw new Unknown("the entries are not verified");
  const note = parse_note(text.replace(/\r/g, "").trim() + "\n");
  if (!note) throw new Unknown("this is not a signed note of a checkpoint; paste all its lines, including the blank one");
  if (!await is_signed(note, ledger.header)) broken("this checkpoint is not signed by the ledger's key under its name");
  if (note.size > ledger.leaves.length)
    broken("rolled back: the checkpoint covers " + note.size + " entries, but there are " + ledger.leaves.length);
  if (note.size === 0) throw new Unknown("a checkpoint of no entries says nothing");
  if (!same(await root_of(ledger.levels, note.size), note.root))
    broken("rewritten: the first " + note.size + " entries are not those of the checkpoint");
  return ["the first " + grouped(note.size) + " entries are those of the checkpoint"];
}

async function main() {
  say("signed", UNKNOWN, "checking\u2026");
  const ledger = await decide("signed", check_signed);
  const unverified = () => { throw new Unknown("the entries are not verified"); };
  const state = await decide("order", () => ledger ? read_entries(ledger) : unverified());
  await decide("tables", () => state ? check_tables(ledger, state) : unverified());
  const listen = (id, box, check) => {
    const field = document.getElementById(box);
    const run = () => { const text = field.value; return decide(id, async () => {
      const found = await check(ledger, text);
      if (field.value !== text) throw new Unknown("checking\u2026");
      return found;
    }); };
    field.addEventListener("input", run);
    return run();
  };
  await listen("key", "expected-key", check_key);
  await listen("past", "expected-note", check_past);
  document.getElementById("checks").dataset.done = "yes";
}
main();
})();
