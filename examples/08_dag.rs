//! Serial code becomes concurrent kernels: write launches one after another, then schedule them.
//!
//!     cargo run --release --example 08_dag

use cusync_dag::{Form, LaunchConfig, Recording, ScheduleOptions, read, schedule, update, write};

const N: usize = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Any addressable memory works, on the host or on a device.
    let (x, y) = (vec![1.0f32; N], vec![2.0f32; N]);
    let (x1, y1, norms, sum) = (vec![0.0f32; N], vec![0.0f32; N], vec![0.0f32; 2], vec![0.0f32]);

    // Written as serial code: no streams, no events, no edges.
    let mut code = Recording::new("norms");
    let config = LaunchConfig::linear(64, 256);
    // Each norm is part of one buffer, which is declared as a whole: bytes decide, not names.
    code.memory(&norms)?;
    for step in 0..4 {
        code.launch("square", config, 3.5, &[read(&x), write(&x1), step.into()])?;
        code.launch("square", config, 3.5, &[read(&y), write(&y1), step.into()])?;
        code.launch("norm", config, 4.0, &[read(&x1), write(&norms[..1])])?;
        code.launch("norm", config, 4.0, &[read(&y1), write(&norms[1..])])?;
        code.launch("add", config, 3.0, &[read(&norms), update(&sum)])?;
    }

    let program = code.program();
    let schedule = schedule(program, &ScheduleOptions::default())?;
    show(&format!(
        "{} kernels, {} dependences, {} after reduction, {} streams, {} waits",
        program.nodes().len(),
        schedule.dependences.edges.len(),
        schedule.dependences.reduced_edges().count(),
        schedule.full.streams(),
        schedule.full.wait_count()
    ));
    for prediction in &schedule.predictions {
        let mark = if prediction.form == schedule.form { "*" } else { " " };
        show(&format!("{mark} {:28} {:7.1} us", prediction.form.name(), prediction.us));
    }
    for &id in &schedule.full.order {
        show(&format!("{:7} on stream {}", program.node(id).name, schedule.full.stream[id.index()]));
    }
    // Only a proved plan is launched: every kernel waits for all its dependences.
    schedule.plan(program, schedule.form).prove(program)?;
    let serial = schedule.predictions.iter().find(|p| p.form == Form::SERIAL).ok_or("predicted")?;
    if schedule.predicted_us() < serial.us { Ok(()) } else { Err("concurrency gains nothing".into()) }
}

#[allow(clippy::print_stdout)]
fn show(line: &str) {
    println!("{line}");
}
