//! Every file in `bad_specs/` must be refused with the message in the file next to it; files in `bad_specs/fused/` are
//! refused only by `fused`. After a wording change: `INSTA_UPDATE=always cargo test -p cusync-gen --test spec
//! bad_specs`, then read the diff.

use std::fs;
use std::path::Path;

use cusync_gen::check::Executor;
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::diagnostic::Diagnostic;
use cusync_gen::graph::StageId;
use cusync_gen::spec;

/// All steps before a spec is checked, with the first kernel that fits each stage.
fn front_end(text: &str, origin: &str) -> Result<(), Diagnostic> {
    let resolved = spec::parse(text, origin)?.resolve(&[])?;
    let device = Profile::named("h200").expect("shipped");
    let tiles = (0..resolved.stages.len())
        .map(|i| resolved.kernel_candidates(StageId(i), device).map(|tiles| tiles[0]))
        .collect::<Result<Vec<_>, _>>()?;
    resolved.graph(&tiles).map(|_| ())
}

/// Plans a sound spec for `fused`; it can still be planned for the host.
fn fused(text: &str, origin: &str) -> Result<(), Diagnostic> {
    let resolved = spec::parse(text, origin)?.resolve(&[])?;
    let device = Profile::named("h200").expect("shipped");
    choose::plan(&resolved, device, Executor::Cpu).unwrap_or_else(|e| panic!("{origin} on the host: {e}"));
    choose::plan(&resolved, device, Executor::Fused).map(|_| ())
}

/// Every spec in a folder is refused with the message next to it.
fn refused(folder: &str, least: usize, by: fn(&str, &str) -> Result<(), Diagnostic>) {
    let mut files: Vec<_> =
        fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/spec").join(folder))
            .expect("the folder is there")
            .map(|entry| entry.expect("readable").path())
            .filter(|path| path.extension().is_some_and(|e| e == "ron"))
            .collect();
    files.sort();
    assert!(files.len() >= least, "only {} bad specs", files.len());
    for file in files {
        let text = fs::read_to_string(&file).expect("readable");
        let name = file.file_stem().and_then(|stem| stem.to_str()).expect("ASCII").to_string();
        let origin = format!("{name}.ron");
        let Err(diagnostic) = by(&text, &origin) else { panic!("{origin} was accepted") };
        assert!(diagnostic.line_column(&text).is_some(), "{origin}: no place: {diagnostic}");
        assert!(!diagnostic.help.is_empty(), "{origin}: no way out: {diagnostic}");
        insta::with_settings!({ snapshot_path => folder, prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(name, diagnostic.render(&text, &origin, false));
        });
    }
}

#[test]
fn every_bad_spec_is_refused_with_place_and_way_out() {
    refused("bad_specs", 40, front_end);
}

#[test]
fn what_only_a_gpu_cannot_do_is_refused_with_place_and_way_out_and_planned_for_the_host() {
    refused("bad_specs/fused", 10, fused);
}
