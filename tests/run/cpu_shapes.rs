//! The cpu executor against the independent reference at sizes that no GPU kernel takes.

use cusync::Session;
use cusync::reference::first_wrong;
use cusync::runtime::cpu::Workers;
use cusync_gen::graph::Element;
use cusync_gen::sync::Policy;

use super::cpu_plans::{options, plan, verify};

/// Verifies a pipeline of these stages in both element types and under several policies.
fn right(stages: &str) {
    let source = format!(r#"Pipeline(name: "shapes", dims: {{}}, stages: [ {stages} ])"#);
    for element in [Element::F16, Element::Bf16] {
        for policy in
            [None, Some(Policy::Tile), Some(Policy::Row), Some(Policy::Batched { rows: 1, cols: 2 })]
        {
            verify(&plan(&source, 0, element, policy), options(Workers::TeamPerStage), 2);
        }
    }
}

#[test]
fn products_with_rows_of_any_length_are_right() {
    for (m, k, n) in [(1, 27, 1), (37, 131, 1021), (129, 1, 257)] {
        right(&format!(
            r#"Gemm(name: "up", a: "X({m},{k})", b: "W({k},{n})", bias: "b({n})", epilogue: Gelu, out: "Y({m},{n})"),
            Gemm(name: "mix", a: "Y({m},{n})", b: "V({n},{k})", residual: "X({m},{k})", out: "Z({m},{k})"),
            GatedGemm(name: "gate", a: "Z({m},{k})", gate: "G({k},{n})", up: "U({k},{n})", out: "Q({m},{n})"),"#
        ));
    }
}

#[test]
fn normalisations_of_rows_of_any_length_are_right() {
    right(
        r#"RmsNorm(name: "root", x: "X(37,131)", gain: "g(131)", out: "N(37,131)"),
        Gemm(name: "up", a: "N(37,131)", b: "W(131,267)", input_norm: InputNorm(gain: "i(131)"), out: "Y(37,267)"),
        LayerNorm(name: "layer", x: "Y(37,267)", gain: "h(267)", bias: "b(267)", out: "P(37,267)"),
        GatedGemm(name: "gate", a: "P(37,267)", gate: "G(267,33)", up: "U(267,33)", input_norm: InputNorm(gain: "j(267)"),
            out: "Q(37,33)"),"#,
    );
}

#[test]
fn experts_of_any_number_and_size_are_right() {
    for (experts, top_k, features, width) in
        [(521, 3, 8, 16), (24, 17, 8, 16), (5, 2, 33, 27), (3, 3, 1, 131)]
    {
        right(&format!(
            r#"Gemm(name: "router", a: "X(37,{width})", b: "R({experts},{width})", layout: NK, out: "S(37,{experts})"),
            Experts(name: "mix", x: "X(37,{width})", router: "S(37,{experts})", gate: "G({hidden},{width})",
                up: "U({hidden},{width})", down: "D({},{features})", top_k: {top_k}, residual: "X(37,{width})",
                out: "Y(37,{width})"),
            Gemm(name: "after", a: "Y(37,{width})", b: "W({width},9)", out: "Z(37,9)"),"#,
            experts * width,
            hidden = experts * features
        ));
    }
}

#[test]
fn images_of_any_number_of_channels_are_right() {
    right(
        r#"Conv2d(name: "stem", input: "X(3,17,13,3)", filter: "F1(3,3,3,27)", stride: (2,2), padding: (1,1), bias: "b(27)",
            epilogue: Relu, out: "Y(3,9,7,27)"),
        GroupNorm(name: "norm", input: "Y(3,9,7,27)", groups: 9, gain: "g(27)", bias: "c(27)", epilogue: Silu,
            out: "N(3,9,7,27)"),
        Conv2d(name: "body", input: "N(3,9,7,27)", filter: "F2(3,3,27,27)", padding: (1,1), residual: "Y(3,9,7,27)",
            residual_at: BeforeActivation, epilogue: Relu, out: "Z(3,9,7,27)"),
        Pool(name: "most", input: "Z(3,9,7,27)", kind: Max, window: (3,3), stride: (2,2), padding: (1,1), out: "P(3,5,4,27)"),
        Pool(name: "mean", input: "P(3,5,4,27)", kind: Average, out: "A(3,1,1,27)"),"#,
    );
}

#[test]
fn convolutions_in_groups_are_right() {
    for (fields, out) in [
        (
            r#"filter: "F(3,3,1,24)", groups: 24, padding: (1,1), bias: "b(24)", residual: "Y(2,11,7,24)", epilogue: Relu"#,
            "2,11,7,24",
        ),
        (
            r#"filter: "F(5,3,1,24)", groups: 24, stride: (2,1), padding: (4,2), dilation: (2,2), residual: "R(2,6,7,24)",
                residual_at: BeforeActivation, epilogue: Gelu"#,
            "2,6,7,24",
        ),
        (r#"filter: "F(3,3,3,16)", groups: 8, padding: (1,1)"#, "2,11,7,16"),
        (r#"filter: "F(1,2,8,9)", groups: 3, stride: (3,3), bias: "b(9)""#, "2,4,2,9"),
        (r#"filter: "F(2,2,1,72)", groups: 24, epilogue: Relu"#, "2,10,6,72"),
    ] {
        let features = out.rsplit_once(',').expect("axes").1;
        right(&format!(
            r#"Conv2d(name: "before", input: "X(2,11,7,5)", filter: "F1(3,3,5,24)", padding: (1,1), out: "Y(2,11,7,24)"),
            Conv2d(name: "grouped", input: "Y(2,11,7,24)", {fields}, out: "D({out})"),
            Conv2d(name: "after", input: "D({out})", filter: "F2(1,1,{features},8)", out: "Z({})"),"#,
            out.replace(&format!(",{features}"), ",8")
        ));
    }
}

#[test]
fn filters_with_gaps_are_right() {
    for fields in [
        r#"filter: "F2(3,3,24,40)", padding: (2,3), dilation: (2,3), epilogue: Relu, out: "Z(2,13,9,40)""#,
        r#"filter: "F2(2,3,24,40)", stride: (2,2), padding: (0,1), dilation: (3,1), out: "Z(2,5,5,40)""#,
    ] {
        let source = format!(
            r#"Pipeline(name: "gaps", dims: {{}}, stages: [
                Conv2d(name: "before", input: "X(2,13,9,5)", filter: "F1(3,3,5,24)", padding: (1,1), out: "Y(2,13,9,24)"),
                Conv2d(name: "wide", input: "Y(2,13,9,24)", {fields}),
            ])"#
        );
        for policy in [Policy::ConvHalo, Policy::Row, Policy::Tile] {
            verify(&plan(&source, 0, Element::F16, Some(policy)), options(Workers::TeamPerStage), 2);
        }
    }
}

/// A layer's products with weights as PyTorch keeps them, or transposed.
fn products(layout: &str) -> String {
    let shape = |k: &str, n: &str| if layout == "NK" { format!("{n},{k}") } else { format!("{k},{n}") };
    format!(
        r#"Pipeline(name: "kept", dims: {{ "T": 7, "H": 24, "I": 40, "D": 8 }}, stages: [
            RotatedGemm(name: "qkv", a: "X(T,H)", b: "W({})", layout: {layout}, heads: 3, rotary: "cs(T,D)", out: "QKV(T,9*D)"),
            Attention(name: "attend", qkv: "QKV(T,9*D)", heads: 3, out: "A(T,3*D)"),
            Gemm(name: "project", a: "A(T,3*D)", b: "P({})", layout: {layout}, residual: "X(T,H)", out: "O(T,H)"),
            GatedGemm(name: "gate", a: "O(T,H)", gate: "G({})", up: "U({})", layout: {layout},
                input_norm: InputNorm(gain: "g(H)"), out: "Y(T,I)"),
            Gemm(name: "down", a: "Y(T,I)", b: "V({})", layout: {layout}, out: "Z(T,H)"),
        ])"#,
        shape("H", "9*D"),
        shape("3*D", "H"),
        shape("H", "I"),
        shape("H", "I"),
        shape("I", "H"),
    )
}

#[test]
fn weights_may_be_kept_as_rows_of_outputs() {
    let open = |layout| Session::on_host(&products(layout), &[]).expect("valid");
    let (mut plain, mut kept) = (open("KN"), open("NK"));
    for name in plain.inputs() {
        let (rows, cols) = plain.shape(&name).expect("an input");
        let values: Vec<f32> = (0..rows * cols).map(|i| ((i * 37) % 64) as f32 / 128.0 - 0.25).collect();
        let is_weight = ["W", "P", "G", "U", "V"].contains(&name.as_str());
        assert_eq!(kept.shape(&name).expect("an input"), if is_weight { (cols, rows) } else { (rows, cols) });
        let turned: Vec<f32> = match is_weight {
            true => (0..cols)
                .flat_map(|col| (0..rows).map(move |row| (row, col)))
                .map(|(row, col)| values[row * cols + col])
                .collect(),
            false => values.clone(),
        };
        plain.set_f32(&name, &values).expect("set");
        kept.set_f32(&name, &turned).expect("set");
    }
    plain.run().expect("it runs");
    kept.run().expect("it runs");
    assert_eq!(plain.read_f32("Z").expect("it ran"), kept.read_f32("Z").expect("it ran"));
    assert_eq!(first_wrong(&kept.verify().expect("it ran")), None);
    // Weights are read back as they are kept.
    let (from_plain, from_kept) = (plain.read_f32("G").expect("it ran"), kept.read_f32("G").expect("it ran"));
    let (rows, cols) = plain.shape("G").expect("an input");
    assert_eq!((from_plain[1], from_plain[cols]), (from_kept[rows], from_kept[1]));
}
