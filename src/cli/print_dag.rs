//! The kernel-level benchmark in words.

use cusync::bench::dag::{DagReport, tables};

use super::print::Page;

pub(super) fn dag(page: &mut Page, r: &DagReport) {
    page.line(&r.device);
    for table in tables(r) {
        page.line("");
        page.line(table.title);
        page.wide_table(&table.header, table.rows);
        table.notes.iter().for_each(|note| page.line(note));
    }
    if let Some(e) = &r.exact {
        page.line("");
        page.line(format!(
            "{} random programs ({} kernels) with injected delays, {} runs: {} not bit-exact with the host",
            e.programs,
            e.kernels,
            e.runs,
            e.wrong.len()
        ));
    }
    r.skipped.iter().for_each(|s| page.line(format!("not measured: {s}")));
    r.wrong.iter().for_each(|s| page.line(format!("WRONG: {s}")));
}
