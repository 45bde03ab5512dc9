//! Renders the C++ header and the Rust handle of a proved plan. Only a `Plan` can be rendered.
//!
//!     cargo run --release --example 02_render

use cusync::runtime::{Overrides, plan_text, shipped};
use cusync_gen::check::Executor;
use cusync_gen::device::Profile;
use cusync_gen::emit;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Profile::named("h200").ok_or("the profile ships")?;
    let source = shipped("two_gemms").ok_or("the spec ships")?;
    let plan = plan_text(source, "two_gemms", &Overrides::default(), device, Executor::Programmatic)?;

    let header = emit::header(&plan, "cargo run --example 02_render");
    let handle = emit::handle(&plan, "cargo run --example 02_render");
    show(&header);
    show(&format!("and a Rust handle of {} lines", handle.lines().count()));
    Ok(())
}

#[allow(clippy::print_stdout)]
fn show(text: &str) {
    println!("{text}");
}
