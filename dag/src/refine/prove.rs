//! The proof of a refinement, required before it is run.

use std::collections::HashSet;

use super::direct::{Direct, count, direct, tiles_of};
use super::{MAX_WAITS, NodeSync, Refinement};
use crate::dependence::{Dependences, analyse};
use crate::error::Unproved;
use crate::history::Cta;
use crate::program::{NodeId, Program};

/// A refinement that is proved for a program; without one, CTAs never wait for CTAs.
#[derive(Clone, Debug)]
pub struct ProvedRefinement {
    program: Program,
    refinement: Refinement,
}

impl ProvedRefinement {
    /// Whether the proof applies to a program.
    pub fn is_of(&self, program: &Program) -> bool {
        self.program.is_like(program)
    }

    /// The proved refinement.
    pub fn refinement(&self) -> &Refinement {
        &self.refinement
    }
}

/// The order implied by the waits of nodes.
pub(super) struct WaitOrder<'a> {
    pub(super) dependences: &'a Dependences,
    pub(super) nodes: &'a [NodeSync],
}

impl WaitOrder<'_> {
    /// Whether `tile` comes after `earlier`: through its waits, those of the tiles it waits for, and so on.
    pub(super) fn follows(&self, tile: Cta, earlier: Cta) -> bool {
        let mut seen = HashSet::new();
        let mut open = vec![tile];
        while let Some(tile) = open.pop() {
            match &self.nodes[tile.node.index()].waits {
                // It has waited for the ends of all its ancestors.
                None if self.dependences.reaches(earlier.node, tile.node) => return true,
                None => {}
                Some(waits) => {
                    for &before in waits.get(tile.cta as usize).into_iter().flatten() {
                        if before == earlier {
                            return true;
                        }
                        if before.node > earlier.node && seen.insert(before) {
                            open.push(before);
                        }
                    }
                }
            }
        }
        false
    }
}

impl Refinement {
    /// Proves that every dependence of `program` is preserved, and that every wait ends.
    ///
    /// # Errors
    /// The first violation.
    pub fn prove(self, program: &Program) -> Result<ProvedRefinement, Unproved> {
        if !self.nodes.is_empty() {
            self.judge(program, &analyse(program))?;
        }
        Ok(ProvedRefinement { program: program.clone(), refinement: self })
    }

    fn judge(&self, program: &Program, dependences: &Dependences) -> Result<(), Unproved> {
        let fault = |node, text| Err(Unproved::Node { node, what: text });
        if self.nodes.len() != program.nodes().len() {
            return fault(NodeId(self.nodes.len() as u32), "is of another program");
        }
        let synchronises =
            |id: NodeId| program.node(id).kernel().is_some_and(|k| k.programmatic && k.tiles.is_some());
        for (id, sync) in program.ids().zip(&self.nodes) {
            if *sync != NodeSync::default() && !synchronises(id) {
                return fault(id, "was not built to wait for tiles or to post them");
            }
            if sync.early && !tiles_of(program.node(id)).is_some_and(|tiles| tiles.early_trigger) {
                return fault(id, "cannot trigger before it waits");
            }
            let Some(waits) = &sync.waits else { continue };
            if waits.len() != count(program.node(id)) as usize {
                return fault(id, "has not one list of waits for each CTA");
            }
            if waits.iter().any(|waits| waits.len() > MAX_WAITS) {
                return fault(id, "has a CTA that waits for more tiles than a warp has lanes");
            }
            for tile in waits.iter().flatten() {
                let there = self.nodes.get(tile.node.index()).is_some_and(|before| before.posts)
                    && tile.cta < count(program.node(tile.node));
                if !there {
                    return fault(id, "waits for a tile that is never posted");
                }
                // Only for ancestors have all CTAs started when its own start.
                if !dependences.reaches(tile.node, id) {
                    return fault(id, "waits for a tile of a node that may start later");
                }
            }
            if dependences.reduced_into(id).any(|e| !synchronises(e.before)) {
                return fault(id, "waits for tiles and depends on a node that has none");
            }
            if program.node(id).accesses.iter().any(|a| !program.buffers()[a.buffer.index()].external) {
                return fault(id, "waits for tiles and touches memory that may be shared");
            }
        }
        self.prove_order(program, dependences)
    }

    fn prove_order(&self, program: &Program, dependences: &Dependences) -> Result<(), Unproved> {
        let order = WaitOrder { dependences, nodes: &self.nodes };
        for (node, direct) in program.ids().zip(direct(program, usize::MAX)) {
            // A node that waits for all earlier nodes preserves the dependences of kernels, which include those of
            // tiles.
            if self.nodes[node.index()].waits.is_none() {
                continue;
            }
            let Direct::Ctas(direct) = direct else { continue };
            for (cta, before) in direct.iter().enumerate() {
                let after = Cta { node, cta: cta as u32 };
                if let Some(&before) = before.iter().find(|&&before| !order.follows(after, before)) {
                    return Err(Unproved::Order { before, after });
                }
            }
        }
        Ok(())
    }
}
