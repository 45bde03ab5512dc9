"""The package as a whole: import, names, the command."""

import importlib.metadata
import json
import subprocess
import sys

import cusync


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)


def test_import_takes_less_than_300_ms_and_does_not_import_numpy():
    program = (
        "import time; begin = time.perf_counter(); import cusync; "
        "print(time.perf_counter() - begin); import sys; print('numpy' in sys.modules)"
    )
    # The fastest of three: the first one may read the library from the disk.
    runs = [python("-c", program).stdout.split() for _ in range(3)]
    assert min(float(seconds) for seconds, _ in runs) < 0.3
    assert {loaded for _, loaded in runs} == {"False"}


def test_all_public_names_are_there_and_documented():
    assert cusync.__version__.count(".") == 2
    for name in cusync.__all__:
        assert getattr(cusync, name).__doc__, name


def test_an_installed_package_has_a_version_and_its_licenses():
    try:
        found = importlib.metadata.metadata("cusync")
    except importlib.metadata.PackageNotFoundError:
        print("skipped: only `cargo xtask wheel` tests the metadata of the wheel")
        return
    assert found["Version"] == cusync.__version__
    assert found["Requires-Python"] == ">=3.10"
    files = {file.name for file in importlib.metadata.files("cusync") or []}
    assert {"LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY.md", "py.typed", "_cusync.pyi"} <= files


def test_the_command_answers_as_the_functions_do():
    ran = python("-m", "cusync", "check", "two_gemms", "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == cusync.check("two_gemms")


def test_the_command_fails_with_its_exit_status():
    ran = python("-m", "cusync", "check", "no_such_spec")
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: no spec `no_such_spec`")


def test_doctor_finds_the_host():
    report = cusync.doctor()
    findings = {finding["what"]: finding for finding in report["findings"]}
    assert {"driver", "GPUs", "kernels", "cpu executor"} == set(findings)
    assert findings["cpu executor"]["ok"]
    assert all(finding["ok"] or finding["fix"] for finding in findings.values())
    assert "threads" in str(report)
