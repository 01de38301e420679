"""keygen, attest, admit, explain: from a key to a verdict and its derivation."""

import hashlib
import json
import os
import pathlib
import re
import stat
import subprocess
import time

import cbor2
import pytest
from command import discreet

POLICY = """\
corpus: clinic
accountant: rdp
floors: {{clip_norm: 0.01, noise_multiplier: 0.5}}
most_validity_days: 730
epoch_seconds: 86400
retention_epochs: 12
noise: {{stddev: 2, clipping: flat}}
classes:
  clinical:
    clip_norm: 0.5
    noise_multiplier: 1
    most_occurrences: 20
    sensitive: true
  diary:
    clip_norm: 1
    noise_multiplier: 1
    most_occurrences: 1000
    profile: {{whole: true}}
    amplified: {{rate: 0.01, steps: 1000, delta: 0.00001}}
keys:
  - {{name: hospital, public_key: {key}, classes: [clinical, diary]}}
"""
WINDOW = ("--not-before", "2026-01-01", "--not-after", "2027-01-01")
AT = ("--at", "2026-06-01")


def ok(*args, **kwargs):
    result = discreet(*args, **kwargs)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    return result.stdout


@pytest.fixture
def corpus(tmp_path):
    """A folder with hospital.key, policy.yaml and a payload."""
    key = json.loads(ok("keygen", "hospital", "--json", cwd=tmp_path))
    (tmp_path / "policy.yaml").write_text(POLICY.format(key=key["public_key"]))
    (tmp_path / "record.txt").write_text("payload")
    return tmp_path, key


def attest(folder, *more, key="hospital.key", contributor="patient-1"):
    return discreet("attest", "--key", key, "--policy", "policy.yaml", "--contributor", contributor,
                    "--class", "clinical", "--payload", "record.txt", *WINDOW, *more, cwd=folder)


def verdicts(folder, *more, anchors="record.txt.anchor.jsonl"):
    result = discreet("admit", "policy.yaml", anchors, *AT, "--json", *more, cwd=folder)
    assert result.returncode in (0, 1), result.stderr
    rows = json.loads(result.stdout)["contributions"]
    return [row.get("refusal", "ADMITTED") for row in rows]


def test_a_key_is_private_never_overwritten_and_read_by_openssl(corpus):
    folder, key = corpus
    assert stat.S_IMODE(os.stat(folder / "hospital.key").st_mode) == 0o600
    again = discreet("keygen", "hospital", cwd=folder)
    assert again.returncode == 2 and "never overwritten" in again.stderr
    der = subprocess.run(["openssl", "pkey", "-in", "hospital.key", "-pubout", "-outform", "DER"],
                         cwd=folder, capture_output=True, check=True).stdout
    assert der[-32:].hex() == key["public_key"]
    assert hashlib.sha256(der[-32:]).hexdigest()[:32] == key["id"]


def test_a_passphrase_protects_a_key(tmp_path):
    (tmp_path / "pass").write_text("correct horse\n")
    (tmp_path / "wrong").write_text("battery staple\n")
    ok("keygen", "k", "--passphrase-file", "pass", cwd=tmp_path)
    assert "ENCRYPTED" in (tmp_path / "k.key").read_text()
    parsed = subprocess.run(["openssl", "asn1parse", "-in", "k.key"], cwd=tmp_path,
                            capture_output=True, text=True, check=True).stdout
    assert "scrypt" in parsed or "1.3.6.1.4.1.11591.4.11" in parsed
    (tmp_path / "p").write_text("x")
    arguments = ("attest", "--key", "k.key", "--contributor", "c", "--class", "c", "--payload", "p",
                 "--clip-norm", "1", "--noise-multiplier", "1", "--occurrences", "1", "--corpus", "clinic", *WINDOW)
    for more in ((), ("--passphrase-file", "wrong")):
        result = discreet(*arguments, *more, cwd=tmp_path)
        assert result.returncode == 2 and "passphrase" in result.stderr
    ok(*arguments, "--passphrase-file", "pass", cwd=tmp_path)


def test_an_attestation_is_a_detached_signature_that_other_tools_verify(corpus):
    folder, key = corpus
    assert attest(folder).returncode == 0
    line = json.loads((folder / "record.txt.anchor.jsonl").read_text())
    descriptor = bytes.fromhex(line["descriptor"])
    fields = cbor2.loads(descriptor)
    assert fields[1] == "patient-1" and fields[3] == 500_000_000 and fields[5] == 20
    assert fields[9] == hashlib.sha256(b"payload").digest() and len(fields[10]) == 32
    assert cbor2.dumps(fields, canonical=True) == descriptor
    assert line["descriptor_hash"] == hashlib.sha256(descriptor).hexdigest()
    message = cbor2.loads(bytes.fromhex(line["attestation"]))
    protected, unprotected, payload, signature = message.value
    assert message.tag == 18 and unprotected == {} and payload is None
    assert cbor2.loads(protected) == {1: -8, 4: bytes.fromhex(key["id"])}
    (folder / "tbs").write_bytes(cbor2.dumps(["Signature1", protected, b"", descriptor]))
    (folder / "sig").write_bytes(signature)
    subprocess.run(["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", "hospital.pub", "-rawin",
                    "-in", "tbs", "-sigfile", "sig"], cwd=folder, check=True, capture_output=True)


def test_admit_says_yes_and_says_no_with_codes(corpus):
    folder, _ = corpus
    attest(folder)
    assert verdicts(folder) == ["ADMITTED"]
    text = discreet("admit", "policy.yaml", "record.txt.anchor.jsonl", *AT, cwd=folder)
    assert text.returncode == 0 and "1 admitted, 0 rejected" in text.stdout
    late = discreet("admit", "policy.yaml", "record.txt.anchor.jsonl", "--at", "2027-01-01",
                    cwd=folder)
    assert late.returncode == 1 and "OUTSIDE_VALIDITY" in late.stdout
    attest(folder, "--append")
    assert verdicts(folder) == ["ADMITTED", "DUPLICATE"]
    attest(folder, "--append", contributor="patient-2")
    assert verdicts(folder) == ["ADMITTED", "DUPLICATE", "ADMITTED"]
    line = json.loads((folder / "record.txt.anchor.jsonl").read_text().splitlines()[0])
    (folder / "withdrawn").write_text(line["descriptor_hash"] + "\n")
    assert verdicts(folder, "--withdrawn", "withdrawn") == ["WITHDRAWN", "ADMITTED", "ADMITTED"]
    del line["attestation"]
    (folder / "bare").write_text(json.dumps(line))
    assert verdicts(folder, anchors="bare") == ["NO_ATTESTATION"]


def test_rotation_and_revocation(corpus):
    folder, key = corpus
    ok("keygen", "new", "--rotate", "hospital.key", "--statements", "s.jsonl", cwd=folder)
    attest(folder, key="new.key")
    assert verdicts(folder) == ["UNTRUSTED_KEY"]
    now = ("--at", "2026-12-01")
    rows = discreet("admit", "policy.yaml", "record.txt.anchor.jsonl", *now, "--statements",
                    "s.jsonl", cwd=folder)
    assert "1 admitted" in rows.stdout
    attest(folder, "--append", contributor="patient-2")
    ok("keygen", "--revoke", key["id"], "--key", "hospital.key", "--statements", "s.jsonl",
       cwd=folder)
    assert verdicts(folder, "--statements", "s.jsonl") == ["UNTRUSTED_KEY", "REVOKED_KEY"]


def test_a_batch_is_whole_or_not_at_all(corpus):
    folder, _ = corpus
    header = "contributor,class,payload,not_before,not_after\n"
    row = "p{},clinical,record.txt,2026-01-01,2027-01-01\n"
    (folder / "rows.csv").write_text(header + "".join(row.format(i) for i in range(50)))
    arguments = ("attest", "--key", "hospital.key", "--policy", "policy.yaml", "--out", "a.jsonl")
    assert "attested 50" in ok(*arguments, "--batch", "rows.csv", cwd=folder)
    assert verdicts(folder, anchors="a.jsonl") == ["ADMITTED"] * 50
    (folder / "rows.jsonl").write_text(json.dumps(
        {"contributor": "q", "class": "diary", "anchor": "00" * 32, "not_before": "2026-01-01",
         "not_after": "2027-01-01"}))
    ok(*arguments, "--batch", "rows.jsonl", "--append", cwd=folder)
    assert verdicts(folder, anchors="a.jsonl")[-1] == "ADMITTED"
    before = (folder / "a.jsonl").read_bytes()
    (folder / "bad.csv").write_text(header + row.format(1) + "p2,clinical,absent,2026-01-01,2027\n")
    bad = discreet(*arguments, "--batch", "bad.csv", "--append", cwd=folder)
    assert bad.returncode == 2 and "bad.csv:3" in bad.stderr
    assert (folder / "a.jsonl").read_bytes() == before


def test_explain_shows_where_each_number_comes_from(corpus):
    folder, _ = corpus
    attest(folder)
    (folder / "model.json").write_text(json.dumps(
        [{"name": f"h.{i}.weight", "shape": [4, 4]} for i in range(12)]))
    arguments = ("explain", "record.txt.anchor.jsonl", "--policy", "policy.yaml", "--layout",
                 "model.json")
    out = json.loads(ok(*arguments, "--json", cwd=folder))
    assert out["layers"] == ["h.9", "h.10", "h.11"] and out["most_uses"] == 20
    assert out["required_multiplier"] == pytest.approx(20**0.5, rel=1e-12)
    assert out["required_multiplier"] >= 20**0.5
    assert out["blocks"][0]["clip"] == pytest.approx(2 / 20**0.5, rel=1e-11)
    assert out["adjacency"] == "zero_out" and 4.37 < out["epsilon_upper"] < 4.38
    text = ok(*arguments, cwd=folder)
    for part in ("√k · z", "min(C, s / m)", "policy, block default", "upper 30%", "zero_out"):
        assert part in text
    assert "give --layout" in ok(*arguments[:4], cwd=folder)


TOWERS = [{"name": f"{tower}.{i}.weight", "shape": [8, 4]} for i in range(4) for tower in ("vision", "language")]
# Four query heads share two key heads.
BLOCKS = [*TOWERS, {"name": "attention.query", "shape": [8, 4], "heads": [4, 0]},
          {"name": "attention.key", "shape": [4, 4], "heads": [2, 0]}, {"name": "experts.up", "shape": [6, 4], "experts": [6, 0]},
          {"name": "lora.down", "shape": [2, 4], "adapter": "lora"}]


@pytest.mark.parametrize("profile, tensors", [
    ("layers: [2, 4]", ["vision.1.weight", "language.1.weight", "vision.2.weight"]),
    ("depth: [0.55, 0.85]", ["vision.3.weight", "language.3.weight"]),  # of ten layers, those that lie whole in it
    ("modules: [vision]", [f"vision.{i}.weight" for i in range(4)]),
    ("modules: [vision.1, language.2]", ["vision.1.weight", "language.2.weight"]),
    ("whole: true, heads: [0]", ["attention.query"]),  # its key head serves a forbidden one, too
    ("whole: true, heads: [0, 1]", ["attention.query", "attention.key"]),
    ("whole: true, experts: [1, 4]", ["experts.up"]),
])
def test_explain_names_the_tensors_of_a_profile(corpus, profile, tensors):
    folder, _ = corpus
    text = (folder / "policy.yaml").read_text()
    (folder / "policy.yaml").write_text(text.replace("    sensitive: true\n", f"    profile: {{{profile}}}\n"))
    attest(folder)
    # The optimiser, or who contributes what under which bounds, has no say.
    attest(folder, "--append", "--clip-norm", "0.3", "--noise-multiplier", "2", "--occurrences", "3", contributor="patient-2")
    (folder / "model.json").write_text(json.dumps(BLOCKS))
    lines = [json.loads(line) for line in (folder / "record.txt.anchor.jsonl").read_text().splitlines()]
    found = [json.loads(ok("explain", "record.txt.anchor.jsonl", "--policy", "policy.yaml", "--layout", "model.json", "--hash",
                           line["descriptor_hash"], "--json", cwd=folder)) for line in lines]
    assert [each["contributor"] for each in found] == ["patient-1", "patient-2"]
    assert [each["blocks"][0]["tensors"] for each in found] == [tensors, tensors]
    assert [each["clip_norm"] for each in found] == [0.5, 0.3]  # these are the contributor's own


@pytest.mark.parametrize("bound, named", [
    (("--clip-norm", "0.009"), "clip norm 0.009 is below the corpus floor 0.01"),
    (("--noise-multiplier", "0.4"), "noise multiplier 0.4 is below the corpus floor 0.5"),
])
def test_a_bound_below_the_floor_of_the_corpus_is_not_admitted(corpus, bound, named):
    folder, _ = corpus
    # The cap of the class would refuse less noise, too; here it allows it.
    text = (folder / "policy.yaml").read_text()
    (folder / "policy.yaml").write_text(text.replace("noise_multiplier: 1\n", "noise_multiplier: 0.5\n"))
    attest(folder, *bound)
    assert verdicts(folder) == ["BELOW_FLOOR"]
    assert named in discreet("admit", "policy.yaml", "record.txt.anchor.jsonl", *AT, cwd=folder).stdout


@pytest.mark.parametrize("change, named", [
    (("corpus: clinic", "corps: clinic"), "corpus is missing"),
    (("classes: [clinical, diary]", "classes: [clinicl]"), "did you mean clinical?"),
    (("clip_norm: 0.5", "clip_norm: 1e-1"), "policy.yaml:10"),
    # What makes a run a governed one has no default: keys, signed bounds, the layers of a class.
    (("keys:", "kays:"), "keys is missing"),
    (("    clip_norm: 0.5\n", ""), "classes.clinical.clip_norm is missing"),
    (("    noise_multiplier: 1\n    most_occurrences: 20", "    most_occurrences: 20"),
     "classes.clinical.noise_multiplier is missing"),
    (("    profile: {whole: true}\n", ""), "classes.diary.profile is missing"),
])
def test_bad_policies_are_one_sentence(corpus, change, named):
    folder, _ = corpus
    attest(folder)
    text = (folder / "policy.yaml").read_text()
    assert change[0] in text
    (folder / "policy.yaml").write_text(text.replace(*change))
    result = discreet("admit", "policy.yaml", "record.txt.anchor.jsonl", cwd=folder)
    assert (result.returncode, result.stdout) == (2, "") and named in result.stderr
    assert result.stderr.count("\n") == 1


def test_bad_input_is_refused(corpus):
    folder, _ = corpus
    for name, text in (("empty", ""), ("text", "hello"), ("hex", '{"descriptor": "0g"}'),
                       ("number", '{"descriptor": 3}'), ("none", "{}")):
        (folder / name).write_text(text)
        result = discreet("admit", "policy.yaml", name, *AT, cwd=folder)
        assert result.returncode == (0 if name == "empty" else 2), result.stdout
    assert discreet("admit", "policy.yaml", "absent", cwd=folder).returncode == 2
    assert discreet("attest", "--key", "policy.yaml", "--contributor", "x", "--payload", "record.txt",
                    cwd=folder).returncode == 2
    for field, value in (("--clip-norm", "nan"), ("--clip-norm", "0.0000000001"),
                         ("--occurrences", "-1"), ("--noise-multiplier", "1e3")):
        result = attest(folder, field, value)
        assert result.returncode == 2 and not (folder / "record.txt.anchor.jsonl").exists()


def started(*args, cwd):
    return subprocess.Popen([os.environ["DISCREET"], *args], cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_statements_signed_at_the_same_time_are_all_kept(corpus):
    folder, key = corpus
    running = [started("keygen", "--revoke", f"{i:032x}", "--key", "hospital.key", "--statements", "statements.jsonl",
                       cwd=folder) for i in range(24)]
    assert all(process.wait() == 0 for process in running)
    assert len(set((folder / "statements.jsonl").read_text().splitlines())) == 24


def test_attestations_appended_at_the_same_time_are_all_kept(corpus):
    folder, _ = corpus
    running = [started("attest", "--key", "hospital.key", "--policy", "policy.yaml", "--contributor", f"patient-{i}",
                       "--class", "clinical", "--payload", "record.txt", *WINDOW, "--append", cwd=folder)
               for i in range(12)]
    assert all(process.wait() == 0 for process in running)
    lines = (folder / "record.txt.anchor.jsonl").read_text().splitlines()
    assert {json.loads(line)["contributor"] for line in lines} == {f"patient-{i}" for i in range(12)}


def test_a_key_does_not_go_through_a_file_that_another_user_can_foresee(tmp_path):
    theirs = tmp_path / "theirs"
    theirs.write_text("")
    for number in range(os.getpid(), os.getpid() + 3000):  # the numbers that the next processes get
        (tmp_path / f".hospital.key.{number}.part").symlink_to(theirs)
    ok("keygen", "hospital", cwd=tmp_path)
    assert theirs.read_text() == "" and not (tmp_path / "hospital.key").is_symlink()
    assert stat.S_IMODE((tmp_path / "hospital.key").stat().st_mode) == 0o600


def test_what_was_signed_for_another_corpus_or_for_none_is_not_admitted(corpus):
    folder, _ = corpus
    assert attest(folder).returncode == 0
    (folder / "other.yaml").write_text((folder / "policy.yaml").read_text().replace("corpus: clinic", "corpus: other"))
    anchors = "record.txt.anchor.jsonl"
    assert discreet("admit", "policy.yaml", anchors, *AT, cwd=folder).returncode == 0
    replayed = discreet("admit", "other.yaml", anchors, *AT, cwd=folder)
    assert replayed.returncode == 1 and "OTHER_CORPUS" in replayed.stdout and "clinic" in replayed.stdout
    nobody = discreet("attest", "--key", "hospital.key", "--contributor", "x", "--class", "clinical", "--payload",
                      "record.txt", "--clip-norm", "0.5", "--noise-multiplier", "1", "--occurrences", "1", *WINDOW,
                      "--out", "b.jsonl", cwd=folder)
    assert nobody.returncode == 2 and "corpus is missing" in nobody.stderr


def test_a_private_key_that_others_may_read_is_refused(corpus):
    folder, _ = corpus
    (folder / "hospital.key").chmod(0o644)
    result = attest(folder)
    assert result.returncode == 2 and "chmod 600" in result.stderr
    assert not (folder / "record.txt.anchor.jsonl").exists()


def test_a_passphrase_that_could_not_open_the_key_again_is_refused(tmp_path):
    (tmp_path / "pass").write_text("p" * 1025 + "\n")
    result = discreet("keygen", "k", "--passphrase-file", "pass", cwd=tmp_path)
    assert result.returncode == 2 and "1025 bytes" in result.stderr and "shorter" in result.stderr
    assert not list(tmp_path.glob("k.*"))
    (tmp_path / "pass").write_text("p" * 1024 + "\n")
    ok("keygen", "k", "--passphrase-file", "pass", cwd=tmp_path)
    opened = discreet("keygen", "--revoke", "00" * 16, "--key", "k.key", "--passphrase-file", "pass", "--statements",
                      "s.jsonl", cwd=tmp_path)
    assert opened.returncode == 0


def test_a_revocation_that_cannot_count_is_said_when_signed_and_when_read(corpus):
    folder, key = corpus
    attest(folder)
    stranger = json.loads(ok("keygen", "stranger", "--json", cwd=folder))
    signed = discreet("keygen", "--revoke", key["id"], "--key", "stranger.key", "--statements", "s.jsonl", cwd=folder)
    assert signed.returncode == 0 and signed.stderr.startswith("warning: ") and stranger["id"] in signed.stderr
    ok("keygen", "new", "--rotate", "stranger.key", "--statements", "s.jsonl", cwd=folder)
    arguments = ("admit", "policy.yaml", "record.txt.anchor.jsonl", "--at", "2026-12-01", "--statements", "s.jsonl")
    notes = [line for line in ok(*arguments, cwd=folder).splitlines() if line.startswith("note: ")]
    assert len(notes) == 2 and key["id"] in notes[0] and "authority" in notes[0] and "does not trust" in notes[1]
    said = json.loads(ok(*arguments, "--json", cwd=folder))["statements_without_effect"]
    assert [each["reason"] in note for each, note in zip(said, notes)] == [True, True]
    # By the authority, the same revocation counts.
    policy = (folder / "policy.yaml").read_text()
    (folder / "policy.yaml").write_text(policy + f"authority: {stranger['public_key']}\n")
    result = discreet(*arguments, "--json", cwd=folder)
    assert result.returncode == 1 and len(json.loads(result.stdout)["statements_without_effect"]) == 1


def test_statements_that_count_are_not_listed(corpus):
    folder, key = corpus
    ok("keygen", "new", "--rotate", "hospital.key", "--statements", "s.jsonl", cwd=folder)
    newest = json.loads(ok("keygen", "newest", "--rotate", "new.key", "--statements", "s.jsonl", "--json", cwd=folder))
    ok("keygen", "--revoke", newest["id"], "--key", "newest.key", "--statements", "s.jsonl", cwd=folder)
    (folder / "s.jsonl").write_text("".join(reversed((folder / "s.jsonl").read_text().splitlines(keepends=True))))
    attest(folder)
    said = json.loads(ok("admit", "policy.yaml", "record.txt.anchor.jsonl", "--at", "2026-12-01", "--statements", "s.jsonl",
                         "--json", cwd=folder))
    assert said["statements_without_effect"] == []


def test_a_batch_with_a_name_twice_is_refused(corpus):
    folder, _ = corpus
    (folder / "rows.jsonl").write_text('{"contributor": "p", "occurrences": "1", "occurrences": "20", "class": "clinical",'
                                       ' "payload": "record.txt", "not_before": "2026-01-01", "not_after": "2027-01-01"}\n')
    result = discreet("attest", "--key", "hospital.key", "--policy", "policy.yaml", "--out", "a.jsonl", "--batch",
                      "rows.jsonl", cwd=folder)
    assert result.returncode == 2 and "rows.jsonl:1" in result.stderr and "occurrences" in result.stderr
    assert not (folder / "a.jsonl").exists()


def test_attesting_under_a_policy_that_does_not_trust_the_key_warns(corpus):
    folder, _ = corpus
    assert attest(folder).stderr == ""
    other = json.loads(ok("keygen", "other", "--json", cwd=folder))
    result = attest(folder, "--append", key="other.key")
    assert result.returncode == 0 and result.stderr.startswith("warning: policy.yaml does not trust key " + other["id"])
    assert "--rotate" in result.stderr
    assert verdicts(folder) == ["ADMITTED", "UNTRUSTED_KEY"]


# ---------------------------------------------------------------- a training file


LINES = ['ann,clinical,1.5,"a, b"', "bob,clinical,2,c", "ann,diary,3,d"]


def test_every_record_of_a_training_file_is_attested_by_its_line(corpus):
    folder, _ = corpus
    (folder / "train.csv").write_bytes(("who,kind,x,note\r\n" + LINES[0] + "\r\n\n" + LINES[1] + "\n" + LINES[2]).encode())
    done = json.loads(ok("attest", "--key", "hospital.key", "--policy", "policy.yaml", "--data", "train.csv", "--contributor-column",
                         "who", "--class-column", "kind", *WINDOW, "--out", "anchors.jsonl", "--json", cwd=folder))
    assert done["attested"] == 3
    fields = [cbor2.loads(bytes.fromhex(json.loads(line)["descriptor"])) for line in (folder / "anchors.jsonl").read_text().splitlines()]
    assert [field[9] for field in fields] == [hashlib.sha256(line.encode()).digest() for line in LINES]
    assert [(field[1], field[2]) for field in fields] == [("ann", "clinical"), ("bob", "clinical"), ("ann", "diary")]
    assert len({field[10] for field in fields}) == 3  # nonces
    assert verdicts(folder, anchors="anchors.jsonl") == ["ADMITTED"] * 3


def test_validity_in_days_begins_today_or_when_it_is_said(corpus):
    folder, _ = corpus
    (folder / "train.csv").write_text("x\n1\n")
    common = ("attest", "--key", "hospital.key", "--policy", "policy.yaml", "--data", "train.csv", "--contributor", "ann", "--class",
              "clinical", "--append", "--out", "a.jsonl")
    before = int(time.time()) // 86400 * 86400
    ok(*common, "--days", "30", cwd=folder)
    ok(*common, "--days", "1", "--not-before", "2026-01-01", cwd=folder)
    today, said = [cbor2.loads(bytes.fromhex(json.loads(line)["descriptor"])) for line in (folder / "a.jsonl").read_text().splitlines()]
    assert today[7] in (before, before + 86400) and today[8] - today[7] == 30 * 86400
    assert instant(said[7]) == "2026-01-01" and said[8] - said[7] == 86400


def instant(seconds):
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


@pytest.mark.parametrize("arguments, says", [
    (["--data", "train.csv", "--class", "clinical", "--days", "1"], "contributor is missing"),
    (["--data", "train.csv", "--contributor-column", "wo", "--class", "clinical", "--days", "1"], "did you mean who"),
    (["--data", "train.csv", "--contributor-column", "who", "--class", "clinical", "--days", "0"], "days is '0'"),
    (["--data", "train.csv", "--contributor-column", "who", "--class", "clinical", "--days", "1", "--not-after", "2027-01-01"],
     "not both"),
    (["--data", "train.csv", "--contributor-column", "who", "--class", "clinic", "--days", "1"], "record 1: the policy has no class"),
    (["--contributor-column", "who", "--class", "clinical", "--days", "1"], "--data"),
    (["--data", "empty.csv", "--contributor-column", "who", "--class", "clinical", "--days", "1"], "no records"),
    (["--data", "train.csv", "--contributor", "a", "--contributor-column", "who"], "exclude each other"),
])
def test_a_file_that_cannot_be_attested_is_refused_with_the_reason(corpus, arguments, says):
    folder, _ = corpus
    (folder / "train.csv").write_text("who,x\nann,1\n")
    (folder / "empty.csv").write_text("who,x\n")
    done = discreet("attest", "--key", "hospital.key", "--policy", "policy.yaml", "--out", "a.jsonl", *arguments, cwd=folder)
    assert done.returncode == 2 and says in done.stderr and not (folder / "a.jsonl").exists()


def test_a_batch_takes_the_documented_columns(corpus):
    folder, _ = corpus
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "concepts" / "attestation.md").read_text()
    table = page.partition("## Batches")[2].partition("\n\n#")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    columns = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    (folder / "bad.csv").write_text("colour\nred\n")
    error = discreet("attest", "--key", "hospital.key", "--batch", "bad.csv", "--out", "a.jsonl", cwd=folder).stderr
    assert columns == set(error.rpartition("the fields are ")[2].strip().split(", "))
    (folder / "rows.csv").write_text(
        "contributor,class,anchor,clip_norm,noise_multiplier,occurrences,not_before,days,adapter,promise,corpus\n"
        f"ann,clinical,{'ab' * 32},0.25,2,7,2026-01-01,365,lora,every_pattern,clinic\n")
    ok("attest", "--key", "hospital.key", "--batch", "rows.csv", "--out", "a.jsonl", cwd=folder)
    field = cbor2.loads(bytes.fromhex(json.loads((folder / "a.jsonl").read_text())["descriptor"]))
    assert (field[1], field[3], field[5], field[11], field[12]) == ("ann", 250_000_000, 7, "lora", "clinic")


# ---------------------------------------------------------------- policy and withdrawal


def test_a_policy_is_written_that_admits_what_its_key_attests(corpus):
    folder, key = corpus
    ok("policy", "new.yaml", "--corpus", 'a "clinic"', "--class", "clinical", "--class", "diary", "--trust", "hospital.pub", cwd=folder)
    assert key["public_key"] in (folder / "new.yaml").read_text()
    ok("attest", "--key", "hospital.key", "--policy", "new.yaml", "--contributor", "ann", "--class", "diary", "--payload", "record.txt",
       *WINDOW, cwd=folder)
    assert "1 admitted" in ok("admit", "new.yaml", "record.txt.anchor.jsonl", *AT, cwd=folder)
    for arguments, says in ((["new.yaml"], "never overwritten"), (["x.yaml", "--class", "Bad Name"], "classes"),
                            (["x.yaml", "--trust", "record.txt"], "key")):
        more = [] if "--class" in arguments else ["--class", "clinical"]
        more += [] if "--trust" in arguments else ["--trust", "hospital.pub"]
        done = discreet("policy", *arguments, "--corpus", "c", *more, cwd=folder)
        assert done.returncode == 2 and says in done.stderr, done.stderr
    assert not (folder / "x.yaml").exists()


def test_withdrawals_are_signed_for_several_hashes_and_for_all_contributions_of_a_person(corpus):
    folder, _ = corpus
    (folder / "train.csv").write_text("who,x\nann,1\nbob,2\nann,3\neve,4\n")
    ok("attest", "--key", "hospital.key", "--policy", "policy.yaml", "--data", "train.csv", "--contributor-column", "who", "--class",
       "clinical", *WINDOW, "--out", "anchors.jsonl", cwd=folder)
    hashes = [json.loads(line)["descriptor_hash"] for line in (folder / "anchors.jsonl").read_text().splitlines()]
    common = ("--origin", "clinic", "--key", "hospital.key", "--events")

    def signed(name, *arguments):
        ok("withdraw", *arguments, *common, name, cwd=folder)
        return [json.loads(line)["descriptor"] for line in (folder / name).read_text().splitlines()]

    assert signed("a", "--contributor", "ann", "--descriptors", "anchors.jsonl") == [hashes[0], hashes[2]]
    assert signed("b", hashes[3], hashes[1]) == [hashes[3], hashes[1]]
    assert signed("c", hashes[3], "--contributor", "bob", "--contributor", "ann", "--descriptors", "anchors.jsonl") == [
        hashes[3], hashes[0], hashes[1], hashes[2]]
    for arguments, says in ((("--contributor", "nobody", "--descriptors", "anchors.jsonl"), "nobody"),
                            (("--contributor", "ann"), "--descriptors"), ((), "HASH")):
        done = discreet("withdraw", *arguments, *common, "d", cwd=folder)
        assert done.returncode == 2 and says in done.stderr and not (folder / "d").exists()
