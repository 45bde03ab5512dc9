"""Fixtures that several files use."""

import signal
from pathlib import Path

import cusync
import pytest

MLP = """Pipeline(
    name: "mlp",
    dims: { "M": 24, "H": 64, "I": 96 },
    stages: [
        Gemm(name: "up",   a: "X(M,H)", b: "W1(H,I)", out: "Y(M,I)", epilogue: Relu),
        Gemm(name: "down", a: "Y(M,I)", b: "W2(I,H)", out: "Z(M,H)"),
    ],
)
"""


def pytest_configure() -> None:
    """Handles interrupts: shells start background jobs with interrupts ignored, and Python leaves it at that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def mlp() -> str:
    """A spec of two products with a rectifier between them."""
    return MLP


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small checkpoint."""
    folder = tmp_path_factory.mktemp("tiny")
    cusync.tiny_model(folder)
    return folder
