//! Serial code becomes concurrent kernels: launches are written down one after the other, and scheduled.
//!
//!     cargo run --release --example 08_dag

use cusync::args;
use cusync::dag::{Dag, Form, KernelInfo, LaunchConfig, Options, read, schedule, update, write};

const N: usize = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Any memory with addresses will do, on a host or on a device.
    let (x, y) = (vec![1.0f32; N], vec![2.0f32; N]);
    let (x1, y1, norms, sum) = (vec![0.0f32; N], vec![0.0f32; N], vec![0.0f32; 2], vec![0.0f32]);

    let kernel = |name, us| KernelInfo { us, programmatic: true, ..KernelInfo::new(name) };
    let (square, norm, add) = (kernel("square", 3.5), kernel("norm", 4.0), kernel("add", 3.0));
    let config = LaunchConfig::linear(64, 256);

    // Written as serial code. No streams, no events, no edges.
    let mut dag = Dag::new("norms");
    for step in 0..4 {
        dag.launch(&square, config, args![read(&x), write(&x1), step])?;
        dag.launch(&square, config, args![read(&y), write(&y1), step])?;
        // Each norm is a part of one buffer: bytes decide, not names.
        dag.launch(&norm, config, args![read(&x1), write(&norms[..1])])?;
        dag.launch(&norm, config, args![read(&y1), write(&norms[1..])])?;
        dag.launch(&add, config, args![read(&norms), update(&sum)])?;
    }

    let program = dag.program()?;
    let schedule = schedule(&program, &Options::default());
    show(&format!(
        "{} kernels, {} dependences, {} after reduction, {} streams, {} waits",
        program.nodes().len(),
        schedule.dependences.edges.len(),
        schedule.dependences.reduced.len(),
        schedule.full.streams(),
        schedule.full.waits.len()
    ));
    for prediction in &schedule.predictions {
        let mark = if prediction.form == schedule.form { "*" } else { " " };
        show(&format!("{mark} {:28} {:7.1} us", prediction.form.name(), prediction.us));
    }
    for &id in &schedule.full.order {
        show(&format!("{:7} on stream {}", program.node(id).name, schedule.full.stream[id.index()]));
    }
    let serial = schedule.predictions.iter().find(|p| p.form == Form::Serial).ok_or("predicted")?;
    if schedule.predicted_us() < serial.us { Ok(()) } else { Err("concurrency gains nothing".into()) }
}

#[allow(clippy::print_stdout)]
fn show(line: &str) {
    println!("{line}");
}
