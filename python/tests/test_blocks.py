"""Blocks of the benchmarks, at small sizes on the host, are as right as PyTorch's own modules."""

import importlib
import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

BENCHES = Path(__file__).parents[2] / "benches"


def test_small_blocks_are_right_on_the_host(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(BENCHES))
    script = importlib.import_module("pytorch_blocks")
    out = tmp_path / "blocks.json"
    status = script.main(["--cpu", "--small", "--out", str(out)])
    records = json.loads(out.read_text())["records"]
    assert status == 0, records
    pages = {page.stem for page in (BENCHES / "blocks").glob("*.ron")}
    assert pages | {"mobilenetv2", "sd_resnet"} == {script.BLOCKS[record["block"]].page or record["block"] for record in records}
    for record in records:
        assert record["right"] and record["executor"] == "cpu", record
        assert all(row["torch_error"] > 0 and row["error"] > 0 for row in record["results"]), record


def test_one_wrong_column_is_noticed(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHES))
    import torch

    script = importlib.import_module("pytorch_blocks")
    block = script.BLOCKS["bert_layer"]
    with torch.no_grad():
        made = script.Set("bert_layer", block, block.small, "cpu")
        assert all(row["right"] for row in script.judged(made))
        made.given["c2"] = made.given["c2"].clone()
        made.given["c2"][0] += 0.05
        assert not all(row["right"] for row in script.judged(made))


def test_a_block_that_fails_costs_its_row_alone(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(BENCHES))
    script = importlib.import_module("pytorch_blocks")
    out = tmp_path / "blocks.json"
    assert script.main(["--cpu", "--small", "--only", "none_such,mobilenetv2", "--out", str(out)]) == 1
    failed, other = json.loads(out.read_text())["records"]
    assert "none_such" in failed["error"] and other["right"]
