"""Schedules of programs of kernels."""

import json
import subprocess
import sys

import cusync
import pytest

PROGRAM = """Dag(
    name: "fork",
    dims: { "N": 1000000 },
    buffers: { "x": "4*N", "y": "4*N" },
    temporary: { "a": "4*N", "b": "4*N" },
    nodes: [
        Kernel(name: "left",  reads: "x", writes: "a", grid: 16, us: 20.0),
        Kernel(name: "right", reads: "x", writes: "b", grid: 16, us: 20.0),
        Kernel(name: "join",  reads: ["a", "b"], writes: "y", grid: 16),
    ],
)
"""


def test_a_program_can_be_a_text_a_file_or_a_name(tmp_path):
    file = tmp_path / "fork.ron"
    file.write_text(PROGRAM)
    report = cusync.schedule(PROGRAM, {"N": 2000000}, device="h100")
    assert report == cusync.schedule(str(file), {"N": 2000000}, device="h100")
    assert (report["program"], report["device"], report["kernels"]) == ("fork", "h100", 3)
    found = [(d["before"], d["after"], d["hazards"]) for d in report["dependences"]]
    assert found == [(0, 2, ["RAW"]), (1, 2, ["RAW"])]
    serial = next(form["us"] for form in report["forms"] if form["form"] == "serial")
    assert report["chosen"]["predicted_us"] < serial
    assert str(report).startswith("fork on h100: 3 kernels")
    assert cusync.schedule("vec")["program"] == "vec"


def test_the_answer_is_that_of_the_command():
    arguments = ["schedule", "m1", "--streams", "2", "--form", "lane-mixed", "--json"]
    ran = subprocess.run([sys.executable, "-m", "cusync", *arguments], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == cusync.schedule("m1", streams=2, form="lane-mixed")


@pytest.mark.parametrize(("name", "begins"), [("p.html", "<!"), ("p.dot", "digraph"), ("p.cu", "//")])
def test_the_plan_is_written(name, begins, tmp_path):
    file = tmp_path / name
    report = cusync.schedule(PROGRAM, form="branch-graph", output=file)
    text = file.read_text()
    assert text.startswith(begins) and "right" in text
    assert str(report).rstrip().endswith(f"wrote {file}")
    if name.endswith(".cu"):
        assert f"`cusync schedule - --device h200 --form branch-graph -o {file}`" in text


def test_a_wrong_program_is_refused_with_its_line():
    with pytest.raises(cusync.SpecError) as caught:
        cusync.schedule(PROGRAM.replace('reads: "x", writes: "b"', 'reads: "z", writes: "b"'))
    error = caught.value
    assert (error.code, error.line) == ("unknown-buffer", 8)
    assert "program:8:" in str(error) and "\x1b" not in str(error)


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        ({"streams": 0}, "bad-argument", "1 to 65535"),
        ({"streams": 70000}, "bad-argument", "1 to 65535"),
        ({"form": "fastest"}, "bad-argument", "branch-graph"),
        ({"output": "plan.txt"}, "bad-argument", ".html"),
        ({"output": "no/such/folder/plan.cu"}, None, "folder"),
        ({"device": "h2000"}, "unknown-device", "h200"),
        ({"streams": 1, "form": "branch-graph"}, "unsupported", "--streams"),
        ({"program": "vex"}, "not-found", "vec"),
        ({"program": "two_gemms"}, "not-found", "is a spec"),
    ],
)
def test_a_wrong_argument_is_an_error_with_a_fix(more, code, words):
    with pytest.raises(cusync.CusyncError) as caught:
        cusync.schedule(**{"program": PROGRAM, **more})
    error = caught.value
    assert not isinstance(error, cusync.SpecError)
    assert words in error.help and code in (None, error.code), (error, error.code)
