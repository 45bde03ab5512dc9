//! Every file of `bad_specs/` must be refused, with the message that stands beside it.
//! After a change of wording: `INSTA_UPDATE=always cargo test -p cusync-gen --test spec bad_specs`, then read the diff.

use std::fs;
use std::path::Path;

use cusync_gen::device::Profile;
use cusync_gen::diagnostic::Diagnostic;
use cusync_gen::graph::StageId;
use cusync_gen::spec;

/// Everything that a spec goes through before it is checked, with the first kernel that fits each stage.
fn front_end(text: &str, origin: &str) -> Result<(), Diagnostic> {
    let resolved = spec::parse(text, origin)?.resolve(&[])?;
    let device = Profile::named("h200").expect("shipped");
    let tiles = (0..resolved.stages.len())
        .map(|i| resolved.kernel_candidates(StageId(i), device).map(|tiles| tiles[0]))
        .collect::<Result<Vec<_>, _>>()?;
    resolved.graph(&tiles).map(|_| ())
}

#[test]
fn every_bad_spec_is_refused_with_place_and_way_out() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/spec/bad_specs");
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("the folder is there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == "ron"))
        .collect();
    files.sort();
    assert!(files.len() >= 40, "only {} bad specs", files.len());
    for file in files {
        let text = fs::read_to_string(&file).expect("readable");
        let name = file.file_stem().and_then(|stem| stem.to_str()).expect("ASCII").to_string();
        let origin = format!("{name}.ron");
        let Err(diagnostic) = front_end(&text, &origin) else { panic!("{origin} was accepted") };
        assert!(diagnostic.line_column(&text).is_some(), "{origin}: no place: {diagnostic}");
        assert!(!diagnostic.help.is_empty(), "{origin}: no way out: {diagnostic}");
        insta::with_settings!({ snapshot_path => "bad_specs", prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(name, diagnostic.render(&text, &origin, false));
        });
    }
}
