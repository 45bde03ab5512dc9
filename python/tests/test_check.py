"""Proofs and refusals."""

import cusync
import pytest


def test_a_shipped_pipeline_is_proved_at_other_dims():
    report = cusync.check("gpt3_mlp", {"M": 256})
    assert report["verdict"] == "proved"
    assert report["dims"]["M"] == 256
    assert {obligation["verdict"] for obligation in report["obligations"]} == {"proved"}
    assert str(report).startswith("gpt3_mlp (H = 12288, I = 6144, M = 256)")


def test_a_spec_can_be_a_text_or_a_file(mlp, tmp_path):
    file = tmp_path / "mlp.ron"
    file.write_text(mlp)
    assert cusync.check(mlp) == cusync.check(str(file))


def test_explain_names_stages_and_reasons(mlp):
    report = cusync.explain(mlp, executor="programmatic")
    assert report["executor"] == "programmatic"
    assert [stage["name"] for stage in report["stages"]] == ["up", "down"]
    assert report["edges"][0]["name"].startswith("up")
    assert all(choice["reason"] for choice in report["choices"])
    assert "start guarantee" in str(report)


WRONG_POLICY = """Pipeline(
    name: "mlp",
    dims: { "M": 512, "H": 4096 },
    stages: [
        Gemm(name: "up",   a: "X(M,H)", b: "W1(H,H)", out: "Y(M,H)"),
        Gemm(name: "down", a: "Y(M,H)", b: "W2(H,H)", out: "Z(M,H)"),
    ],
    sync: [
        Edge(from: "up", to: "down", policy: Table([0, 0, 0, 1])),
    ],
)
"""


def test_a_wrong_policy_is_refused_with_its_line():
    with pytest.raises(cusync.SpecError) as caught:
        cusync.check(WRONG_POLICY)
    error = caught.value
    line = WRONG_POLICY.splitlines()[error.line - 1]
    assert "policy: Table([0, 0, 0, 1])" in line, error
    assert line[error.column - 1 :].startswith(("Table", "[0, 0")), error
    assert error.code and error.message in str(error)
    assert str(error).startswith(f"error[{error.code}]: ")
    assert f"spec:{error.line}:{error.column}" in str(error)


def test_an_unknown_stage_is_refused_with_help():
    with pytest.raises(cusync.SpecError) as caught:
        cusync.Pipeline('Pipeline(\n    name: "p", dims: {},\n    stages: [Gem(name: "x")],\n)', device="cpu")
    error = caught.value
    assert (error.code, error.line, error.column) == ("unknown-variant", 3, 14)
    assert error.help == "did you mean `Gemm`?"
    assert "\x1b" not in str(error)


def test_an_unknown_dim_is_a_spec_error(mlp):
    with pytest.raises(cusync.SpecError, match="`Q`"):
        cusync.check(mlp, {"Q": 4})


@pytest.mark.parametrize(
    ("arguments", "message", "help"),
    [
        ({"spec": "gpt4_mlp"}, "no spec `gpt4_mlp`", "gpt3_mlp"),
        ({"spec": "gpt3_mlp", "device": "h2000"}, "no device profile `h2000`", "h200"),
        ({"spec": "gpt3_mlp", "executor": "turbo"}, "no executor `turbo`", "programmatic"),
    ],
)
def test_a_wrong_name_is_an_error_with_the_right_ones(arguments, message, help):
    with pytest.raises(cusync.CusyncError) as caught:
        cusync.check(**arguments)
    assert not isinstance(caught.value, cusync.SpecError)
    assert message in caught.value.message
    assert help in caught.value.help


def test_every_shipped_spec_has_a_text():
    shipped = cusync.shipped()
    assert "gpt3_mlp" in shipped and all(text.lstrip().startswith(("Pipeline", "//")) for text in shipped.values())
