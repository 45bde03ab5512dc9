//! Custom stages of a session: arithmetic on the host, kernels on a GPU.

use std::sync::Arc;

use super::{Place, Session, SessionError, SessionResult};
use crate::device::KernelCode;
use crate::runtime::cpu::{CpuError, CustomKernel};

impl Session {
    /// Sets the arithmetic of a Custom stage on the host.
    ///
    /// # Errors
    /// There is no Custom stage of that name, or the session is on a GPU.
    pub fn custom(&mut self, stage: &str, kernel: impl CustomKernel + 'static) -> SessionResult<()> {
        let graph = self.plan.graph();
        match &mut self.place {
            Place::Host(host) if graph.stages.iter().any(|s| s.name == stage && s.op.is_custom()) => {
                host.custom(stage, Arc::new(kernel))
            }
            Place::Host(_) => Err(CpuError::NoCustomStage(stage.into()).into()),
            Place::Gpu { .. } => Err(SessionError::Elsewhere(
                "the session is on a GPU, where a kernel runs a Custom stage\n  help: `Session::set_kernel`",
            )),
        }
    }

    /// Sets the kernel of a Custom stage on a GPU: see [`Pipeline::set_kernel`].
    ///
    /// # Errors
    /// Errors of [`Pipeline::set_kernel`]; also if the session is on the host.
    pub fn set_kernel(&mut self, stage: &str, code: &KernelCode) -> SessionResult<()> {
        Ok(self.pipeline()?.set_kernel(stage, code)?)
    }
}

#[cfg(test)]
mod tests {
    use cusync_gen::sync::Tile;

    use super::*;
    use crate::runtime::cpu::Region;

    const SPEC: &str = r#"Pipeline(name: "own", dims: { "M": 16 }, stages: [
        Custom(name: "twice", tile: (8, 8), writes: "Y(M,8)", reads: [Read(tensor: "X(M,8)", rows: "8*m..8*m + 8", cols: "0..8")]),
        Gemm(name: "after", a: "Y(M,8)", b: "W(8,8)", out: "Z(M,8)"),
    ])"#;

    fn times(factor: f32) -> impl CustomKernel {
        move |_: Tile, _: u32, reads: &[Region], out: &mut Region| {
            out.data.iter_mut().zip(&reads[0].data).for_each(|(out, x)| *out = factor * x);
        }
    }

    #[test]
    fn a_function_of_ones_own_runs_on_the_host() {
        let mut session = Session::on_host(SPEC, &[]).expect("valid");
        let unit: Vec<f32> = (0..64).map(|i| f32::from(u8::from(i % 9 == 0))).collect();
        session.set_f32("X", &[1.5; 128]).expect("an input");
        session.set_f32("W", &unit).expect("an input");
        let without = session.run().expect_err("its arithmetic is unknown").to_string();
        assert!(without.contains("stage `twice` is Custom"), "{without}");
        for factor in [2.0, 4.0] {
            session.custom("twice", times(factor)).expect("a Custom stage");
            session.run().expect("it runs");
            assert_eq!(session.read_f32("Z").expect("it ran"), vec![1.5 * factor; 128]);
        }
        let other = session.custom("after", times(1.0)).expect_err("a GEMM").to_string();
        assert!(other.contains("no custom stage `after`"), "{other}");
        let on_host = session.set_kernel("twice", &KernelCode::source("twice.cu", ""));
        assert!(matches!(on_host, Err(SessionError::Elsewhere(_))));
    }
}
