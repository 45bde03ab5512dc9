//! Rendered code: the C++ header and the typed Rust handle of a plan.
//!
//! Only a [`Plan`] can be rendered, so all rendered code is proved, and rendering cannot fail. Both files contain
//! types and numbers; the logic they instantiate is the hand-written library under `csrc/include/cusync`.
//!
//! ```
//! use cusync_gen::check::Executor;
//! use cusync_gen::{choose, device::Profile, emit, graph::gemm_chain};
//!
//! let h200 = Profile::named("h200").expect("it ships");
//! let plan = choose::plan(&gemm_chain("chain", 512, &[512, 512, 512]), h200, Executor::Streams)?;
//! let header = emit::header(&plan, "cusync gen chain.ron");
//! assert!(header.contains("cusync gen chain.ron") && header.contains("namespace"));
//! assert!(emit::handle(&plan, "cusync gen chain.ron").contains("pub const"));
//! # Ok::<(), cusync_gen::diagnostic::Diagnostic>(())
//! ```

mod names;
mod rendered;
mod template;
mod view;

#[cfg(test)]
mod tests;

pub use names::edge_names;
pub use rendered::rendered_plan;
pub use template::fill;
pub use view::StageView;

use crate::check::Plan;

/// The C++ header of a plan, for host and device; includes `cusync/cusync.hpp`. It names `command`, which regenerates
/// it.
pub fn header(plan: &Plan, command: &str) -> String {
    render("header", plan, command)
}

/// The typed Rust handle of a plan: a module without dependencies. It names `command`, which regenerates it.
pub fn handle(plan: &Plan, command: &str) -> String {
    render("handle", plan, command)
}

fn render(template: &'static str, plan: &Plan, command: &str) -> String {
    let view = view::View::new(plan);
    let numbers = match serde_json::to_value(&view) {
        Ok(value) => value,
        Err(error) => unreachable!("a view is strings and numbers: {error}"),
    };
    // The command goes into a one-line comment.
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    template::render(
        template,
        &tera::context! {
            stamp => &format!("{:016x}", fnv1a(numbers.to_string().as_bytes())),
            version => env!("CARGO_PKG_VERSION"),
            command => &command.chars().map(printable).collect::<String>(),
            plan => &numbers,
        },
    )
}

/// FNV-1a, 64 bits: identifies the inputs of a rendered file; not collision-resistant against attackers.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
