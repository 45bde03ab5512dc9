//! Programs that ship: the kernel-level suite.

/// Name and text of every program that ships (`dags/`).
pub const SHIPPED: &[(&str, &str)] = &[
    ("vec", include_str!("../../dags/vec.ron")),
    ("bs", include_str!("../../dags/bs.ron")),
    ("ml", include_str!("../../dags/ml.ron")),
    ("hits", include_str!("../../dags/hits.ron")),
    ("img", include_str!("../../dags/img.ron")),
    ("dl", include_str!("../../dags/dl.ron")),
    ("m1", include_str!("../../dags/m1.ron")),
    ("m2", include_str!("../../dags/m2.ron")),
];

/// The text of a program that ships.
pub fn shipped(name: &str) -> Option<&'static str> {
    SHIPPED.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}
