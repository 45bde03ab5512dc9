//! Names of edges in generated code.

use std::collections::HashSet;

use crate::check::Plan;

/// One identifier per edge: `up_to_down`, or `up_to_down_residual` if several edges join the two stages. The edge
/// number is appended if that name is taken too (stages may be called `a`, `a_to_b`, ...).
pub fn edge_names(plan: &Plan) -> Vec<String> {
    let graph = plan.graph();
    let ends = |i: usize| {
        let d = plan.edges()[i].dependence();
        (d.producer, d.consumer)
    };
    let mut taken = HashSet::new();
    (0..plan.edges().len())
        .map(|i| {
            let (producer, consumer) = ends(i);
            let operand = &graph.stages[consumer.0].operands[plan.edges()[i].dependence().operand];
            let mut name = format!("{}_to_{}", graph.stages[producer.0].name, graph.stages[consumer.0].name);
            if (0..plan.edges().len()).any(|j| j != i && ends(j) == ends(i)) {
                name = format!("{name}_{}", operand.kind.word());
            }
            while !taken.insert(name.clone()) {
                name = format!("{name}_{i}");
            }
            name
        })
        .collect()
}
