//! Results that are wrong, and overflows: found and named.

use super::*;

/// A chain of `depth` stages: norms, gated GEMMs and GEMMs with residuals in turn, after an attention.
fn deep(depth: usize, element: Element) -> Plan {
    let mut stages = String::from(
        r#"Attention(name: "s0", qkv: "QKV(48,384)", heads: "4", kv_heads: "1", causal: true, out: "T0(48,256)"), "#,
    );
    for n in 1..depth {
        let (from, back) = (n - 1, n.saturating_sub(3));
        let stage = match n % 3 {
            1 => format!(r#"RmsNorm(name: "s{n}", x: "T{from}(48,256)", gain: "g{n}(256)", epsilon: 1e-5,"#),
            2 => format!(
                r#"GatedGemm(name: "s{n}", a: "T{from}(48,256)", gate: "G{n}(256,256)", up: "U{n}(256,256)", "#
            ),
            _ => format!(
                r#"Gemm(name: "s{n}", a: "T{from}(48,256)", b: "W{n}(256,256)", residual: "T{back}(48,256)", "#
            ),
        };
        write!(stages, r#"{stage} out: "T{n}(48,256)"), "#).expect("grows");
    }
    plan(&format!(r#"Pipeline(name: "deep", dims: {{}}, stages: [{stages}])"#), Some(element))
}

/// The value of the element type nearest to x that is at least 1 % larger in magnitude.
fn off_by_a_percent(element: Element, x: f32) -> f32 {
    let (mut bits, mut back) = ([0], [0.0]);
    element.round(&[x * 1.01], &mut bits);
    element.widen(&bits, &mut back);
    if back[0].abs() < (x * 1.01).abs() {
        bits[0] += 1;
        element.widen(&bits, &mut back);
    }
    back[0]
}

#[test]
fn spoiled_results_are_found_at_any_depth() {
    const COLS: usize = 256;
    let mut spoiled = 0;
    for (depth, element) in [1, 4, 14, 40].into_iter().flat_map(|d| [(d, Element::F16), (d, Element::Bf16)]) {
        let plan = deep(depth, element);
        let graph = plan.graph();
        let inputs = Inputs::random(graph, 5);
        // Left by the previous run.
        let stale = run(&plan, &Inputs::random(graph, 6));
        let written = run(&plan, &inputs);
        let judge = Judge::new(graph, &inputs, HashMap::new()).expect("all inputs are there");
        let right = judged(&judge, &written);
        assert!(right.iter().all(|tensor| tensor.verified), "{depth} {element:?}: {right:?}");
        let mut rng = SmallRng::seed_from_u64(depth as u64);
        for round in 0..60 {
            let tensor = format!("T{}", rng.random_range(0..depth));
            let mut values = written[&tensor].clone();
            let rows = values.len() / COLS;
            let (row, col) = (rng.random_range(0..rows), rng.random_range(0..COLS));
            match round % 3 {
                0 => {
                    // An element near zero is off by more than 1 % anyway.
                    let squares: f32 = values.iter().map(|x| x * x).sum();
                    let typical = (squares / values.len() as f32).sqrt();
                    let at = (row * COLS + col..)
                        .map(|at| at % values.len())
                        .find(|at| values[*at].abs() > typical / 4.0);
                    let at = at.expect("some element is not small");
                    values[at] = off_by_a_percent(element, values[at]);
                }
                1 => {
                    let other = (row + 16) % rows;
                    values.copy_within(other * COLS..(other + 1) * COLS, row * COLS);
                }
                _ => {
                    let (row, col) = (row / 16 * 16, col / 16 * 16);
                    for row in row..row + 16 {
                        let at = row * COLS + col..row * COLS + col + 16;
                        values[at.clone()].copy_from_slice(&stale[&tensor][at]);
                    }
                }
            }
            let mut written = written.clone();
            written.insert(tensor.clone(), values);
            let judged = judged(&judge, &written);
            let verdict = judged.iter().find(|judged| judged.tensor == tensor).expect("it is judged");
            assert!(!verdict.verified, "{depth} {element:?} round {round}: {verdict}");
            assert!(matches!(verdict.wrong, Some(Wrong::Element(_))), "{verdict}");
            spoiled += 1;
        }
    }
    assert_eq!(spoiled, 480);
}

#[test]
fn rows_of_another_expert_and_with_other_weights_are_found() {
    const ROWS: usize = 40;
    const COLS: usize = 64;
    const EXPERTS: usize = 24;
    let source = r#"Pipeline(name: "experts", dims: { "M": 40, "H": 64, "E": 24, "I": 40 }, stages: [
        Experts(name: "mix", x: "X(M,H)", router: "S(M,E)", gate: "G(E*I,H)", up: "U(E*I,H)", down: "D(E*H,I)",
            top_k: 2, out: "Y(M,H)"),
    ])"#;
    // Each row has the scores 0, 0.25, 0.5 and so on in an order of its own.
    let scores: Vec<f32> =
        (0..ROWS * EXPERTS).map(|at| ((at / EXPERTS * 7 + at * 5) % EXPERTS) as f32 / 4.0).collect();
    for element in [Element::F16, Element::Bf16] {
        let plan = plan(source, Some(element));
        let id = plan.graph().tensors.iter().position(|tensor| tensor.name == "S").expect("scores");
        let mut inputs = Inputs::random(plan.graph(), 5);
        let score = |inputs: &mut Inputs, scores: &[f32]| {
            let mut bits = vec![0; scores.len()];
            element.round(scores, &mut bits);
            assert!(inputs.set(TensorId(id), bits));
        };
        score(&mut inputs, &scores);
        let judge = Judge::new(plan.graph(), &inputs, HashMap::new()).expect("all inputs are there");
        let right = run(&plan, &inputs);
        assert!(judged(&judge, &right).iter().all(|tensor| tensor.verified), "{element:?}");
        let mut rng = SmallRng::seed_from_u64(1);
        for round in 0..60 {
            let row = rng.random_range(0..ROWS);
            let mut other = scores.clone();
            let own = &mut other[row * EXPERTS..(row + 1) * EXPERTS];
            let mut ranks: Vec<usize> = (0..EXPERTS).collect();
            ranks.sort_by(|a, b| own[*b].total_cmp(&own[*a]));
            match round % 3 {
                // Another expert in the place of the first or the second.
                0 => own.swap(ranks[rng.random_range(0..2)], ranks[rng.random_range(2..EXPERTS)]),
                // The right experts, each with the weight of the other one, or with equal weights.
                1 => own.swap(ranks[0], ranks[1]),
                _ => own[ranks[1]] = own[ranks[0]],
            }
            let mut wrong = inputs.clone();
            score(&mut wrong, &other);
            let mut values = right["Y"].clone();
            let at = row * COLS..(row + 1) * COLS;
            values[at.clone()].copy_from_slice(&run(&plan, &wrong)["Y"][at]);
            let judged = judged(&judge, &HashMap::from([("Y".to_owned(), values)]));
            let wrong = judged[0].wrong;
            assert!(
                matches!(wrong, Some(Wrong::Element(found)) if found.row == row),
                "{element:?} round {round}: {}",
                judged[0]
            );
        }
        for row in 0..ROWS {
            let mut values = right["Y"].clone();
            let of_row = row * COLS..(row + 1) * COLS;
            let largest = of_row.max_by(|a, b| values[*a].abs().total_cmp(&values[*b].abs()));
            let at = largest.expect("a row has elements");
            // In bf16 the roundings of hidden rows and of each expert's row may add up to more than a percent.
            let percents = if element == Element::F16 { 1 } else { 2 };
            (0..percents).for_each(|_| values[at] = off_by_a_percent(element, values[at]));
            let judged = judged(&judge, &HashMap::from([("Y".to_owned(), values)]));
            assert!(!judged[0].verified, "{element:?} row {row}: {}", judged[0]);
        }
    }
}

#[test]
fn an_overflow_is_named_and_is_no_wrong_result() {
    let source = r#"Pipeline(name: "large", dims: {}, stages: [
        Gemm(name: "up", a: "X(16,64)", b: "W(64,64)", out: "Y(16,64)"),
        Gemm(name: "down", a: "Y(16,64)", b: "V(64,64)", out: "Z(16,64)"),
    ])"#;
    let overflow = |element| {
        let plan = plan(source, Some(element));
        let mut inputs = Inputs::random(plan.graph(), 1);
        let mut rows = vec![1.0f32; 16 * 64];
        rows[3 * 64..4 * 64].fill(60000.0);
        let mut bits = vec![0; rows.len()];
        element.round(&rows, &mut bits);
        assert!(inputs.set(TensorId(0), bits));
        let judge = Judge::new(plan.graph(), &inputs, HashMap::new()).expect("all inputs are there");
        judged(&judge, &run(&plan, &inputs))
    };
    let judged = overflow(Element::F16);
    let Some(Wrong::Overflow(first)) = judged[0].wrong else { panic!("{judged:?}") };
    assert!(first.row == 3 && first.expected.abs() > 65504.0, "{first:?}");
    assert!(judged[0].to_string().contains("overflows"), "{}", judged[0]);
    assert!(judged[1].verified, "what is made of an infinity is no error of its own: {}", judged[1]);
    assert!(overflow(Element::Bf16).iter().all(|tensor| tensor.verified));
}
