"""`discreet ledger` and `discreet withdraw`: what an auditor, a contributor and a steward do."""

import base64
import hashlib
import io
import json
import shutil
import sqlite3

import cbor2
import example_corpus
import pytest
from command import answer, discreet
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from example_corpus import hashes
from merkle import mth
from pycose.headers import KID, Algorithm
from pycose.keys import OKPKey
from pycose.keys.curves import Ed25519
from pycose.messages import Sign1Message

ORIGIN = "test.example/corpus"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ledger")
    example_corpus.make("ledger_example", folder)
    return folder


def rows(connection):
    """Each row of leaves: its first position, and the leaves, or the hashes of those summarised."""
    for position, items in connection.execute("SELECT position, items FROM leaf ORDER BY position").fetchall():
        stream, leaves = io.BytesIO(items), []
        while stream.tell() < len(items):
            leaves.append(cbor2.load(stream))
        yield position, leaves


def raw_key(folder, name="ledger"):
    key = load_pem_public_key((folder / f"{name}.pub").read_bytes())
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


def test_verify_needs_only_the_file_and_reports_what_it_holds(folder):
    found = answer("ledger", "verify", folder / "ledger.db")
    assert found["verified"] and not found["key_given"]
    assert found["origin"] == ORIGIN and found["accountant"] == "pld" and found["adjacency"] == "zero_out"
    assert found["counts"]["admissions"] == 6 and found["counts"]["summarised"] == 3
    assert found["counts"]["refusals"] == 2 and found["attestations_verified"] == 6
    assert found["summarised_classes"] == [
        {"class": "sensitive", "contributions": 1, "uses": 2,
         "most_spent": found["summarised_classes"][0]["most_spent"]}]
    text = discreet("ledger", "verify", str(folder / "ledger.db")).stdout
    assert text.startswith("VERIFIED ") and "summarised" in text and "compare it" in text


def test_summarise_drops_what_ended_before_the_horizon_and_keeps_the_proofs(folder, tmp_path):
    shutil.copy(folder / "old.db", tmp_path / "old.db")
    ledger, key = str(tmp_path / "old.db"), str(folder / "ledger.key")
    before = answer("ledger", "verify", ledger)
    note = tmp_path / "before.note"
    note.write_text(before["note"])
    assert before["classes"][0]["contributions"] == 2
    assert "2 entries summarised" in discreet("ledger", "summarise", ledger, "--key", key).stdout
    after = answer("ledger", "verify", ledger, "--checkpoint", note)
    assert after["verified"] and after["counts"]["summarised"] == 2
    assert after["classes"][0]["contributions"] == 1
    assert after["summarised_classes"] == before["classes"][:0] + [before["classes"][0] | {"contributions": 1, "uses": 1}]
    assert discreet("ledger", "summarise", ledger, "--key", key).stdout.startswith("nothing to summarise")
    stranger = discreet("ledger", "summarise", ledger, "--key", str(folder / "stranger.key"), check=False)
    assert stranger.returncode != 0 and answer("ledger", "verify", ledger)["root"] == after["root"]


def test_trace_shows_nothing_of_a_ledger_that_does_not_verify(folder):
    db, contribution = folder / "ledger.db", hashes(folder)[0]
    with sqlite3.connect(db) as connection:
        for row, leaves in rows(connection):
            for leaf in leaves:
                if isinstance(leaf, list) and leaf[0] == 4:
                    leaf[3] = 1
            connection.execute("UPDATE leaf SET items = ? WHERE position = ?",
                               (b"".join(map(cbor2.dumps, leaves)), row))
    verified = answer("ledger", "verify", db, status=1)
    found = answer("ledger", "trace", db, contribution, status=1)
    assert found == {name: verified[name] for name in ("verified", "kind", "problem", "entry")}
    text = discreet("ledger", "trace", str(db), contribution)
    assert text.returncode == 1 and text.stdout.startswith(f"BROKEN (entry) at entry {verified['entry']}: ")
    assert "epsilon ≤" not in text.stdout and "used  " not in text.stdout


def test_the_recorded_epsilon_is_that_of_the_planned_steps(folder):
    """Two of ten planned epochs were taken: when a run stops may depend on the data, what it planned does not."""
    traced = answer("ledger", "trace", folder / "ledger.db", hashes(folder)[0])
    spent = traced["epsilon"]
    assert [use["cumulative_epsilon"] for use in traced["uses"]] == [spent, spent]
    account = answer("account", "--sampling-rate", "0.01", "--noise-multiplier", "3", "--steps", "1000",
                     "--delta", "1e-5")
    assert account["epsilon"]["upper"] <= spent <= account["epsilon"]["upper"] + 3e-6


def test_verify_with_key_and_old_checkpoint_shows_strangers_and_rollback(folder):
    db = folder / "ledger.db"
    assert answer("ledger", "verify", db, "--public-key", folder / "ledger.pub", "--checkpoint",
                  folder / "early.note")["verified"]
    assert answer("ledger", "verify", db, "--public-key", folder / "stranger.pub",
                  status=1)["kind"] == "signature"
    early = (folder / "early.note").read_text()
    size = early.splitlines()[1]
    (folder / "bent.note").write_text(early.replace(f"\n{size}\n", f"\n{int(size) + 1}\n", 1))
    assert answer("ledger", "verify", db, "--checkpoint", folder / "bent.note", status=1)["kind"] == "signature"
    with sqlite3.connect(db) as connection:
        size = int(size)
        connection.execute("DELETE FROM leaf WHERE position >= ?", (size,))
        connection.execute("DELETE FROM checkpoint WHERE size > ?", (size,))
        connection.execute("DELETE FROM opening WHERE position >= ?", (size,))
    found = answer("ledger", "verify", db, "--checkpoint", folder / "late.note", status=1)
    assert not found["verified"]


def test_verify_names_the_first_wrong_entry(folder):
    db = folder / "ledger.db"
    with sqlite3.connect(db) as connection:
        row, leaves, position = next(
            (row, leaves, row + i) for row, leaves in rows(connection) for i, leaf in enumerate(leaves)
            if isinstance(leaf, list) and leaf[0] == 4)
        leaves[position - row][3] -= 5
        connection.execute("UPDATE leaf SET items = ? WHERE position = ?",
                           (b"".join(map(cbor2.dumps, leaves)), row))
    found = answer("ledger", "verify", db, status=1)
    assert found["kind"] == "entry" and found["entry"] == position
    assert discreet("ledger", "verify", str(db)).stdout.startswith(f"BROKEN (entry) at entry {position}")


def test_explain_shows_an_entry_with_its_terms_and_no_payload_value(folder):
    result = discreet("ledger", "verify", str(folder / "ledger.db"), "--explain", "13")
    assert result.returncode == 0
    shown = json.loads(result.stdout[result.stdout.index("\n{"):])
    assert shown["entry"] == 13 and "leaf_hash" in shown
    assert answer("ledger", "verify", folder / "ledger.db", "--explain", 13)["explained"] == shown
    absent = discreet("ledger", "verify", str(folder / "ledger.db"), "--explain", "999")
    assert (absent.returncode, absent.stdout) == (2, "")


def test_show_has_no_field_beyond_the_declared_ones(folder):
    lines = discreet("ledger", "show", str(folder / "ledger.db"), "--limit", "1000", "--json").stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["entry"] for row in rows] == list(range(len(rows)))
    assert rows[0]["type"] == "header" and rows[1]["type"] == "policy"
    use = next(row for row in rows if row["type"] == "use")
    assert set(use) == {"type", "entry", "contribution", "terms", "under", "cumulative_epsilon_micro"}
    assert use["under"]["depth_profile"] == {"layers": [9, 11]}
    assert use["under"]["noise_variance"] == 9
    assert not any(word in line for line in lines for word in ("norm_max", "loss", "latency", "batch_size"))


def test_show_is_for_people_and_says_how_to_go_on(folder):
    text = discreet("ledger", "show", str(folder / "ledger.db"), "--limit", "15").stdout
    assert "  clip_norm=1  " in text and "not_after=2027-01-26T21:46:40Z" in text and "noise_deviation=3" in text
    assert "cumulative_epsilon=0.379442" in text and "planned_steps=1000" in text and "_nano" not in text and "adapter" not in text
    assert text.endswith("there are more; continue with --from 15\n")
    assert discreet("ledger", "show", str(folder / "ledger.db"), "--from", "99").stdout == "no entries from 99\n"


def climb(leaf, index, size, path):
    fn, sn, r = index, size - 1, leaf
    for p in path:
        assert sn > 0
        if fn & 1 or fn == sn:
            r = hashlib.sha256(b"\1" + p + r).digest()
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            r = hashlib.sha256(b"\1" + r + p).digest()
        fn, sn = fn >> 1, sn >> 1
    assert sn == 0
    return r


def test_prove_gives_paths_that_lead_to_the_signed_root(folder):
    import base64
    db = folder / "ledger.db"
    with sqlite3.connect(db) as connection:
        leaves = [leaf if isinstance(leaf, bytes) else hashlib.sha256(b"\0" + cbor2.dumps(leaf)).digest()
                  for _, leaves in rows(connection) for leaf in leaves]
    for index in (0, 3, 8, len(leaves) - 1):
        proof = answer("ledger", "prove", db, index)
        root = base64.b64decode(proof["note"].splitlines()[2])
        assert root == mth(leaves)
        assert climb(leaves[index], index, proof["tree_size"], map(bytes.fromhex, proof["path"])) == root
    assert answer("ledger", "prove", db, "--consistency", 5)["from_size"] == 5
    assert discreet("ledger", "prove", str(db), "999").returncode == 2
    assert discreet("ledger", "prove", str(db)).returncode == 2


def test_check_says_whether_a_proof_or_receipt_holds_without_the_ledger(folder):
    db, key = folder / "ledger.db", folder / "ledger.pub"
    (folder / "proof.json").write_text(discreet("ledger", "prove", str(db), "3").stdout)
    (folder / "since.json").write_text(discreet("ledger", "prove", str(db), "--consistency", "11").stdout)
    answer("ledger", "export", db, "--receipts", folder / "receipts.jsonl", "--key", folder / "ledger.key")
    (folder / "receipt.json").write_text((folder / "receipts.jsonl").read_text().splitlines()[3])
    db.unlink()
    for name in ("proof.json", "receipt.json"):
        found = answer("ledger", "check", folder / name, "--public-key", key)
        assert found["verified"] and found["entry"] == 3 and found["content"]["type"] == "admission"
        assert not answer("ledger", "check", folder / name, "--public-key", folder / "stranger.pub", status=1)["verified"]
    since = ("ledger", "check", folder / "since.json", "--public-key", key, "--checkpoint")
    assert answer(*since, folder / "early.note")["from_size"] == 11
    assert "extend the first 11" in discreet(*map(str, since), str(folder / "early.note")).stdout
    assert "problem" in answer(*since, folder / "late.note", status=1)
    (folder / "proof.json").write_text((folder / "proof.json").read_text().replace('"entry": 3', '"entry": 4'))
    assert discreet("ledger", "check", str(folder / "proof.json"), "--public-key", str(key)).stdout.startswith("BROKEN: ")
    for args in (("since.json",), ("early.note",)):
        refused = discreet("ledger", "check", str(folder / args[0]), "--public-key", str(key))
        assert (refused.returncode, refused.stdout) == (2, "") and refused.stderr.startswith("error: INVALID_INPUT: ")


def test_receipts_are_verified_by_pycose(folder):
    out = folder / "receipts.jsonl"
    exported = answer("ledger", "export", folder / "ledger.db", "--receipts", out, "--key", folder / "ledger.key")
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert exported["receipts"] == len(rows) > 20
    key = OKPKey(crv=Ed25519, x=raw_key(folder))
    for row in rows:
        message = Sign1Message.decode(bytes.fromhex(row["receipt"]))
        assert message.phdr[KID] == hashlib.sha256(raw_key(folder)).digest()[:16]
        assert message.phdr[Algorithm].fullname == "EDDSA"
        assert message.phdr[395] == 1 and message.payload is None
        size, index, path = cbor2.loads(message.uhdr[396][-1][0])
        assert index == row["entry"]
        message.payload = climb(bytes.fromhex(row["leaf_hash"]), index, size, path)
        message.key = key
        assert message.verify_signature()
        message.payload = hashlib.sha256(b"another root").digest()
        assert not message.verify_signature()
    assert discreet("ledger", "export", str(folder / "ledger.db"), "--receipts", str(out), "--key",
                    str(folder / "stranger.key")).returncode == 2


def withdraw(folder, descriptor, key="contributor"):
    return answer("withdraw", descriptor, "--origin", ORIGIN, "--key", folder / f"{key}.key", "--reason", "moved",
                  "--events", folder / "events.jsonl")


def record(folder, status=0, *extra):
    return discreet("withdraw", "--ledger", str(folder / "ledger.db"), "--key", str(folder / "ledger.key"),
                    "--events", str(folder / "events.jsonl"), "--json", *map(str, extra))


def test_a_deletion_event_is_consumed_exactly_once_and_its_bundle_verifies_offline(folder):
    first, second = hashes(folder)[:2]
    withdraw(folder, first)
    withdraw(folder, second, "steward")
    withdraw(folder, first, "steward")
    done = json.loads(record(folder, 0, "--bundles", folder).stdout)
    assert (done["recorded"], done["already_recorded"]) == (2, 1)
    assert json.loads(record(folder).stdout)["recorded"] == 0
    found = answer("ledger", "verify", folder / "ledger.db", "--checkpoint", folder / "late.note")
    assert found["verified"] and found["counts"]["withdrawals"] == 2
    traced = answer("ledger", "trace", folder / "ledger.db", first)
    assert [(use["run"], use["epoch"]) for use in traced["uses"]] == [("run-1", 0), ("run-1", 1)]
    assert traced["withdrawal"]["reason"] == "moved" and len(traced["releases"]) == 1

    bundle = folder / f"{first}.json"
    (folder / "ledger.db").unlink()
    verdict = answer("withdraw", "--verify", bundle, "--public-key", folder / "ledger.pub")
    assert verdict["verified"] and verdict["uses"] == 2 and verdict["releases"] == 1
    assert verdict["epsilon"] == traced["epsilon"]
    answer("withdraw", "--verify", bundle, "--public-key", folder / "stranger.pub", status=1)
    bundle.write_text(bundle.read_text().replace('"origin":"test', '"origin":"best'))
    answer("withdraw", "--verify", bundle, status=1)


def test_a_stranger_cannot_withdraw_and_the_ledger_stays_as_it_was(folder):
    before = (folder / "ledger.db").read_bytes()
    withdraw(folder, hashes(folder)[0], "stranger")
    refused = record(folder)
    assert refused.returncode == 1 and "neither its contributor nor a steward" in refused.stdout
    after = answer("ledger", "verify", folder / "ledger.db", "--checkpoint", folder / "late.note")
    assert after["verified"] and after["counts"]["withdrawals"] == 0 and len(before) > 0


def test_a_forged_event_keeps_no_genuine_one_out(folder):
    first, second = hashes(folder)[:2]
    for descriptor, key in ((first, "stranger"), (first, "contributor"), ("ab" * 32, "stranger"), (second, "contributor")):
        withdraw(folder, descriptor, key)
    done = record(folder)
    assert done.returncode == 1, done.stderr
    said = json.loads(done.stdout)
    assert said["recorded"] == 2 and len(said["rejected"]) == 2
    assert "neither its contributor nor a steward" in said["rejected"][0] and "ab" * 32 in said["rejected"][1]
    found = answer("ledger", "verify", folder / "ledger.db", "--checkpoint", folder / "late.note")
    assert found["verified"] and found["counts"]["withdrawals"] == 2


def test_a_key_that_names_another_ledger_is_not_this_ones(folder):
    raw = raw_key(folder)
    for name, status in ((ORIGIN, 0), ("other.example/corpus", 1)):
        digest = hashlib.sha256(name.encode() + b"\n\x01" + raw).hexdigest()[:8]
        (folder / "named").write_text(f"{name}+{digest}+{base64.b64encode(bytes([1]) + raw).decode()}\n")
        assert answer("ledger", "verify", folder / "ledger.db", "--public-key", folder / "named",
                      status=status)["verified"] == (status == 0)
        (folder / "proof.json").write_text(discreet("ledger", "prove", str(folder / "ledger.db"), "3", "--json").stdout)
        answer("ledger", "check", folder / "proof.json", "--public-key", folder / "named", status=status)


def test_bad_input_gets_one_sentence_and_its_status(folder, tmp_path):
    (tmp_path / "text").write_text("this is no ledger\n" * 400)
    (tmp_path / "empty").write_text("")
    assert discreet("ledger", "verify", str(tmp_path / "text")).returncode == 1
    assert discreet("ledger", "verify", str(tmp_path / "empty")).returncode == 1
    assert discreet("ledger", "verify", str(tmp_path / "missing")).returncode == 2
    assert discreet("ledger", "trace", str(folder / "ledger.db"), "00").returncode == 2
    assert discreet("ledger", "verify", str(folder / "ledger.db"), "--checkpoint",
                    str(tmp_path / "text")).returncode == 2
    assert discreet("withdraw").returncode == 2
    for args, words in ((("trace", "8d91"), "64 hexadecimal digits"), (("prove", "x"), "must be a whole number"),
                        (("show", "--from", "-1"), "must be a whole number"),
                        (("verify", "--checkpoint", str(folder / "ledger.pub")), "is not a signed note"),
                        (("prove", "40"), "the ledger has 37 entries, numbered from 0")):
        refused = discreet("ledger", args[0], str(folder / "ledger.db"), *args[1:])
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr.startswith("error: INVALID_INPUT: ") and words in refused.stderr
    folder_given = discreet("ledger", "verify", str(tmp_path))
    assert folder_given.returncode == 2 and "Is a directory; give a file" in folder_given.stderr
    for args, words in ((("--reason", "x" * 257, "--origin", ORIGIN), "at most 256 are allowed"), (("--origin", "two words"), "not the name of a ledger")):
        refused = discreet("withdraw", "00" * 32, "--key", str(folder / "steward.key"), "--events", str(folder / "bad"), *args)
        assert refused.returncode == 2 and words in refused.stderr and not (folder / "bad").exists()
    withdraw(folder, "00" * 32, "steward")
    refused = record(folder, 0, "--bundles", folder / "absent")
    assert refused.returncode == 2 and "not a folder" in refused.stderr
    done = json.loads(record(folder, 0, "--bundles", folder).stdout)
    assert done["recorded"] == 1 and done["bundles"] == [] and "never admitted" in done["without_bundle"][0]["reason"]
    (folder / "events.jsonl").write_text("{}\n")
    refused = record(folder)
    assert refused.returncode == 2 and "line 1" in refused.stderr


@pytest.mark.parametrize("command", ["verify", "show", "prove", "check", "trace", "export"])
def test_every_subcommand_has_help_with_an_example(command):
    result = discreet("ledger", command, "--help")
    assert result.returncode == 0 and "Examples:\n  discreet ledger " in result.stdout
    assert f"  discreet ledger {command} " in result.stdout


def hot_journal(victim):
    """A journal that SQLite plays back, deleting the file it names as its super-journal."""
    magic = bytes.fromhex("d9d505f920a163d7")
    head = magic + b"".join(n.to_bytes(4, "big") for n in (0, 7, 1, 512, 4096))
    name = str(victim).encode()
    tail = [0x40000000 // 4096 + 1, len(name), sum(name)]
    return (head.ljust(512, b"\0") + tail[0].to_bytes(4, "big") + name
            + b"".join(n.to_bytes(4, "big") for n in tail[1:]) + magic)


@pytest.mark.parametrize("command", [["verify"], ["show"], ["prove", "3"], ["trace", "HASH"], ["export"]])
def test_reading_a_ledger_neither_plays_a_journal_back_nor_deletes_what_it_names(command, folder, tmp_path):
    db, victim = folder / "ledger.db", tmp_path / "victim"
    name, *rest = [hashes(folder)[0] if word == "HASH" else word for word in command]
    if name == "export":
        rest = ["--receipts", str(tmp_path / "receipts"), "--key", str(folder / "ledger.key")]
    alone = discreet("ledger", name, str(db), *rest, "--json")
    victim.write_text("precious")
    before, journal = db.read_bytes(), hot_journal(victim)
    (folder / "ledger.db-journal").write_bytes(journal)
    beside = discreet("ledger", name, str(db), *rest, "--json")
    assert alone.returncode == 0 and beside.returncode == 0 and beside.stdout == alone.stdout
    assert victim.read_text() == "precious" and db.read_bytes() == before
    assert (folder / "ledger.db-journal").read_bytes() == journal


def test_a_broken_ledger_beside_a_journal_says_how_it_is_repaired(folder):
    db = folder / "ledger.db"
    db.write_bytes(db.read_bytes()[:-4096])
    (folder / "ledger.db-journal").write_bytes(b"left by a killed writer")
    result = discreet("ledger", "verify", str(db))
    assert result.returncode == 1 and "BROKEN" in result.stdout and "opening it for writing" in result.stdout


FORGED = "\x1b[2K\rgone\nVERIFIED 99 entries \x9b1A \u202e\x7f"


def lines_of(text):
    """What a terminal would show, line by line; no character may command it."""
    assert not set(text) & ({chr(c) for c in range(32)} - {"\n"} | {chr(c) for c in range(0x7f, 0xa0)} | {"\u202e"})
    return text.splitlines()


def test_a_reason_from_outside_commands_no_terminal(folder, tmp_path):
    events = folder / "events.jsonl"
    result = discreet("withdraw", hashes(folder)[0], "--origin", ORIGIN, "--reason", FORGED,
                      "--key", str(folder / "contributor.key"), "--events", str(events))
    assert result.returncode == 0, result.stderr
    record(folder)
    for command in (["trace", str(folder / "ledger.db"), hashes(folder)[0]], ["show", str(folder / "ledger.db")],
                    ["verify", str(folder / "ledger.db")]):
        shown = lines_of(discreet("ledger", *command).stdout)
        assert not any(line.startswith("VERIFIED 99") for line in shown)
        again = discreet("ledger", *command, "--json").stdout
        assert all(json.loads(line) for line in lines_of(again))
    assert FORGED == answer("ledger", "trace", folder / "ledger.db", hashes(folder)[0])["withdrawal"]["reason"]


def test_an_error_is_one_line_whatever_the_file_is_called(tmp_path):
    result = discreet("ledger", "verify", str(tmp_path / "a\nVERIFIED\x1b[2K"))
    assert result.returncode != 0 and len(lines_of(result.stderr)) == 1
