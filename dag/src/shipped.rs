//! The programs that ship: the kernel-level suite.

/// Name and text of every shipped program (`dag/programs`).
pub const SHIPPED: &[(&str, &str)] = &[
    ("vec", include_str!("../programs/vec.ron")),
    ("bs", include_str!("../programs/bs.ron")),
    ("ml", include_str!("../programs/ml.ron")),
    ("hits", include_str!("../programs/hits.ron")),
    ("img", include_str!("../programs/img.ron")),
    ("dl", include_str!("../programs/dl.ron")),
    ("m1", include_str!("../programs/m1.ron")),
    ("m2", include_str!("../programs/m2.ron")),
];

/// The text of a shipped program.
pub fn shipped(name: &str) -> Option<&'static str> {
    SHIPPED.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}
