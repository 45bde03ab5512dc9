//! A host that decides the next job after each one, and a kernel that keeps running for it: one session for all row
//! counts and two sets of weights. Each job's result determines the next job's weights and row count. Without a GPU
//! that has decode kernels, a thread takes the jobs through the same memory words.
//!
//!     cargo run --release --example 13_copilot
#![allow(clippy::print_stdout)]

use cusync::codegen::check::Executor;
use cusync::codegen::device::Profile;
use cusync::device::Device;
use cusync::inputs::Inputs;
use cusync::runtime::copilot::{JobSession, Settings};
use cusync::runtime::cpu::CpuOptions;
use cusync::runtime::{InputSets, Overrides, Pipeline, plan_text};

const SPEC: &str = r#"Pipeline(name: "p", dims: { "M": 32, "H": 256 }, stages: [
    Gemm(name: "up", a: "X(M,H)", b: "W(H,H)", out: "Y(M,H)", epilogue: Gelu),
    Gemm(name: "down", a: "Y(M,H)", b: "V(H,H)", out: "Z(M,H)"),
])"#;
const ROWS: usize = 32;

fn decide(session: &mut JobSession<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let (mut set, mut m) = (0, ROWS);
    let mut jobs = [0, 0];
    for _ in 0..100 {
        let job = session.submit(set, m as u32)?;
        session.wait(job)?;
        jobs[set] += 1;
        let z = session.read_f32(set, "Z")?;
        // Any host decision works; here, the sign of an element.
        let last = z[(m - 1) * z.len() / ROWS];
        assert!(last.is_finite(), "the last row of the job was not written");
        (set, m) = (usize::from(last > 0.0), 1 + (m * 7 + set * 3) % ROWS);
    }
    println!("{} jobs of set 0, {} of set 1, {} launches", jobs[0], jobs[1], session.launches());
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let planned = |profile: &Profile| plan_text(SPEC, "p", &Overrides::default(), profile, Executor::Copilot);
    let gpu = Device::open(0).ok().filter(|_| !cusync::device::kernels().is_empty());
    if let Some((device, profile)) = gpu.and_then(|gpu| Some((gpu.clone(), gpu.profile()?)))
        && profile.arch == 90
    {
        // Two SMs stay free for other work.
        let plan = planned(&Profile { sms: profile.sms - 2, ..profile })?;
        let mut pipeline = Pipeline::new(&plan, &device)?;
        InputSets::random(plan.graph(), &device, 2, 1)?.bind(&mut pipeline)?;
        let mut session = JobSession::open(&mut pipeline, Settings::default())?;
        decide(&mut session)?;
        return Ok(session.close()?);
    }
    let h200 = Profile::named("h200").ok_or("it ships")?;
    let plan = planned(&Profile { sms: 4, ..h200.clone() })?;
    let sets = [1, 2].map(|seed| Inputs::random(plan.graph(), seed));
    let mut session = JobSession::on_host(&plan, &sets, CpuOptions::default(), Settings::default())?;
    decide(&mut session)?;
    Ok(session.close()?)
}
