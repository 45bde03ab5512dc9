"""Code in documents runs."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def blocks(page: str) -> list[tuple[int, str]]:
    """Python blocks of a page, each with the number of its first line."""
    found: list[tuple[int, list[str]]] = []
    inside = False
    for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
        if line.startswith("```"):
            inside = line == "```python"
            if inside:
                found.append((number + 1, []))
        elif inside:
            found[-1][1].append(line)
    return [(number, "\n".join(lines)) for number, lines in found]


@pytest.mark.parametrize(("page", "count"), [("docs/python.md", 11), ("python/README.md", 1)])
def test_the_code_of_a_page_runs(page, count, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = blocks(page)
    assert len(found) == count
    names: dict[str, object] = {}
    for number, text in found:
        needed = [name for name in ("torch", "transformers") if f"import {name}" in text or f"from {name}" in text]
        missing = [name for name in needed if importlib.util.find_spec(name) is None]
        if missing:
            print(f"skipped: the code of {page} behind line {number} needs {', '.join(missing)}")
            continue
        # Lines of errors are those of the page.
        exec(compile("\n" * (number - 1) + text, str(ROOT / page), "exec"), names)
