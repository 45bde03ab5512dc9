//! The text of `cusync calibrate`.

use cusync::tune::calibrate::{ChainTimes, KernelTimes};

use super::calibrate::CalibrateReport;
use super::print::Page;

pub(super) fn calibrate(page: &mut Page, r: &CalibrateReport) {
    let m = &r.measured;
    let (rested, sustained) = (m.ceilings.rested, m.ceilings.sustained);
    page.line(format!(
        "{}, CUDA {}: {:.0} TFLOP/s rested, {:.0} sustained; reads {:.2} TB/s",
        m.gpu, m.driver, rested.matrix_tflops, sustained.matrix_tflops, rested.read_tbs
    ));
    let or =
        |value: Option<f64>, digits: usize| value.map_or_else(|| "-".into(), |v| format!("{v:.digits$}"));
    page.line(format!(
        "kernel boundary {:.2} us; wait {:.0} ns, post {:.0} ns, hand-off {:.0} ns; one SM alone {} TFLOP/s",
        m.boundary_us,
        m.semaphores.wait_ns,
        m.semaphores.post_ns,
        m.semaphores.hand_off_ns,
        or(m.alone_tflops, 2)
    ));
    let kernel = |k: &KernelTimes| {
        [
            format!("{} x {} x {}", k.tile.0, k.tile.1, k.tile.2),
            or(k.tflops, 0),
            or(k.times.map(|t| t.k_block_us), 3),
            or(k.times.map(|t| t.tile_us), 2),
            or(k.times.map(|t| t.start_us), 2),
        ]
    };
    page.table(["kernel", "TFLOP/s", "k-block us", "tile us", "start us"], m.kernels.iter().map(kernel));
    let chain = |c: &ChainTimes| {
        [
            format!("{} x {} x {}", c.tile.0, c.tile.1, c.tile.2),
            format!("{} x {}", c.cluster.0, c.cluster.1),
            or(c.sm_tflops, 2),
            or(c.times.k_block_us, 3),
            or(c.times.fill_us, 2),
            or(c.times.epilogue_us, 2),
        ]
    };
    page.table(
        ["chain kernel", "cluster", "TFLOP/s an SM", "k-block us", "fill us", "epilogue us"],
        m.chains.iter().map(chain),
    );
    let c = &m.chain;
    page.line(format!(
        "chain: launch {} us, passing a tile on {} us; GELU {} us, gate {} us; slab written {} us, read {} us",
        or(c.launch_us, 2),
        or(c.passed_on_us, 2),
        or(c.gelu_us, 2),
        or(c.gate_us, 2),
        or(c.slab_write_us, 2),
        or(c.slab_read_us, 2)
    ));
    m.skipped.iter().for_each(|s| page.line(format!("not measured: {s}")));
    page.line(format!("kept from the profile {}: {}", r.base, r.kept.join(", ")));
    match &r.file {
        Some(file) => page.line(format!("wrote {file}")),
        None => page.line(&r.profile),
    }
}
