//! Chains that no decode kernel attends in, and the reasons given.

use super::{layer, planned, source};
use cusync_gen::check::judge;
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::spec;

/// Why there is no decode plan; empty if there is one.
fn reason(source: &str, device: &Profile) -> String {
    let resolved = spec::parse(source, "test").and_then(|s| s.resolve(&[])).expect("valid");
    choose::decode(&resolved, device).err().map(|d| d.message).unwrap_or_default()
}

fn device() -> &'static Profile {
    Profile::named("h200").expect("shipped")
}

#[track_caller]
fn refused(source: &str, says: &str) {
    let reason = reason(source, device());
    assert!(reason.contains(says), "{reason}");
}

#[test]
fn rows_and_heads_that_no_decode_kernel_has() {
    for (batch, heads, says) in [
        (33, (8, 2, 128), "`qkv` has 33 rows; a decode kernel takes 32"),
        (3, (4, 2, 72), "heads of 72 columns, and decode kernels have 64, 80, 96, 128 or 256"),
        (3, (9, 1, 64), "9 query heads of 64 columns per head of the cache; a decode kernel takes 8"),
        (3, (8, 1, 256), "8 query heads of 256 columns per head of the cache; a decode kernel takes 4"),
    ] {
        refused(&source(batch, heads, ""), says);
    }
    let wide = layer(3, "RmsNorm", 16392);
    refused(&wide, "`first` normalises rows of 16392 elements; a decode kernel takes 16384");
    let long = source(32, (8, 8, 64), "").replace(r#""S": 1024"#, r#""S": 1048576"#);
    let reason = reason(&long, &Profile { sms: 1024, ..device().clone() });
    assert!(reason.contains("`attend` has 4194560 pages' worth of tokens"), "{reason}");
}

#[test]
fn attentions_that_no_decode_kernel_has_one_after_another() {
    let cache = |heads: u32, tokens: &str, lengths: &str| {
        let shape = format!("B,{heads},{tokens},64");
        format!(r#"cache: Cache(keys: "K2({shape})", values: "V2({shape})", lengths: "{lengths}(B)")"#)
    };
    let own = r#"qkv: "QKV2(B,768)", heads: 4"#;
    let unlike =
        "`again` has other lengths, or another capacity or number of heads of keys and values, than `attend`";
    for (reads, cache, columns, says) in [
        (own, cache(4, "S", "n2"), 256, unlike),
        (own, cache(4, "2*S", "n"), 256, unlike),
        (
            r#"qkv: "A(B,256)", heads: 2, kv_heads: 1"#,
            cache(1, "S", "n"),
            128,
            "`again` attends to the output of `attend`, which is not a matrix product",
        ),
        // Without a cache it is a prompt.
        (own, String::new(), 256, "`again` is Attention"),
    ] {
        let cache = if cache.is_empty() { cache } else { cache + "," };
        let source = format!(
            r#"Pipeline(name: "two", dims: {{ "B": 3, "S": 256, "E": 512 }}, stages: [
            Gemm(name: "qkv", a: "X(B,E)", b: "W1(E,768)", out: "QKV(B,768)"),
            Attention(name: "attend", qkv: "QKV(B,768)", heads: 4,
                cache: Cache(keys: "K1(B,4,S,64)", values: "V1(B,4,S,64)", lengths: "n(B)"), out: "A(B,256)"),
            Attention(name: "again", {reads}, {cache} out: "A2(B,{columns})"),
        ])"#
        );
        refused(&source, says);
    }
    let many = |count: u32| {
        let block = |i: u32| {
            let shape =
                r#"heads: 4, cache: Cache(keys: "K@(B,4,S,64)", values: "V@(B,4,S,64)", lengths: "n(B)")"#;
            format!(
                r#"Gemm(name: "qkv@", a: "A{i}(B,256)", b: "W@(256,768)", out: "QKV@(B,768)"),
                Attention(name: "attend@", qkv: "QKV@(B,768)", {shape}, out: "A@(B,256)"),"#
            )
            .replace('@', &(i + 1).to_string())
        };
        let blocks: String = (0..count).map(block).collect();
        format!(r#"Pipeline(name: "many", dims: {{ "B": 3, "S": 256 }}, stages: [{blocks}])"#)
    };
    assert_eq!(reason(&many(16), device()), "");
    refused(&many(17), "17 attentions; a decode kernel takes 16");
}

/// Rows made by other workers may be added only if they are also operand A, and therefore waited for.
#[test]
fn rows_of_other_workers_are_added_only_behind_a_wait() {
    let normalised = layer(3, "RmsNorm", 1024).replace(r#"residual: "H(B,E)""#, r#"residual: "N2(B,E)""#);
    refused(&normalised, "`down` adds rows of `second`, which other workers make");
    let own = layer(3, "RmsNorm", 1024)
        .replace(
            r#"GatedGemm(name: "gate_up", a: "N2(B,E)", gate: "Wg(E,I)", up: "Wu(E,I)", out: "Y(B,I)")"#,
            r#"Gemm(name: "up", a: "N2(B,E)", b: "Wu(E,E)", residual: "N2(B,E)", out: "Y(B,E)")"#,
        )
        .replace(r#"a: "Y(B,I)", b: "Wd(I,E)""#, r#"a: "Y(B,E)", b: "Wd(E,E)""#);
    assert_eq!(judge(&planned(&own)).refutations, []);
}
