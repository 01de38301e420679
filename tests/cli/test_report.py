"""`discreet report`: one HTML page about a run, confidential or public."""

import json
import stat

import made_up_run
from command import discreet


def test_report_is_written_into_the_run_and_says_what_is_claimed(tmp_path):
    head = made_up_run.write(tmp_path / "run")
    result = discreet("report", str(tmp_path / "run"), "--json")
    assert (result.returncode, result.stderr) == (0, "")
    said = json.loads(result.stdout)
    assert said["epsilon"]["upper"] == 2.7 and said["adjacency"] == "add_remove"
    assert (said["ended"], said["steps"], said["trace_head"]) == ("completed", 300, head)
    file = tmp_path / "run" / "report.html"
    assert said["report"] == str(file) and stat.S_IMODE(file.stat().st_mode) == 0o600
    page = file.read_text("utf-8")
    assert head in page and "Confidential." in page and "93.12%" in page


def test_public_report_does_not_depend_on_the_data(tmp_path):
    made_up_run.write(tmp_path / "one")
    made_up_run.write(tmp_path / "other", data=0.25)
    said = [discreet("report", str(tmp_path / name), "--public", "--json", "--out",
                     str(tmp_path / "page.html")).stdout + (tmp_path / "page.html").read_text("utf-8")
            for name in ("one", "other")]
    assert said[0] == said[1]
    assert "2.7000" in said[0] and "accuracy" not in said[0].split("\n")[0]


def test_runs_without_an_end_have_a_report_but_no_public_one(tmp_path):
    made_up_run.write(tmp_path / "run", steps=20, ended="")
    result = discreet("report", str(tmp_path / "run"))
    assert result.returncode == 0 and "unfinished: epsilon ≤ 3.0000" in result.stdout
    result = discreet("report", str(tmp_path / "run"), "--public")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: INVALID_INPUT: the run is unfinished")
    assert not (tmp_path / "run" / "report-public.html").exists()


def test_altered_trace_is_refused_and_the_old_report_stays(tmp_path):
    made_up_run.write(tmp_path / "run")
    assert discreet("report", str(tmp_path / "run")).returncode == 0
    before = (tmp_path / "run" / "report.html").read_bytes()
    trace = tmp_path / "run" / "trace.jsonl"
    trace.write_text(trace.read_text("utf-8").replace('"t":7', '"t":8', 1), "utf-8")
    result = discreet("report", str(tmp_path / "run"))
    assert result.returncode == 1 and result.stderr.startswith("error: MALFORMED: line 10 ")
    assert (tmp_path / "run" / "report.html").read_bytes() == before


def test_no_run_is_bad_input_and_no_place_to_write_is_the_machine_failing(tmp_path):
    result = discreet("report", str(tmp_path))
    assert result.returncode == 2 and "is not a run: it has no config.yaml" in result.stderr
    made_up_run.write(tmp_path / "run")
    result = discreet("report", str(tmp_path / "run"), "--out", str(tmp_path / "absent" / "a.html"))
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr.startswith("error: IO_ERROR: ")
