//! Items and rings that are sound, and kernels that are broken.

use super::{Broken, Cta, Kind, Model, Residual, Windows};

/// Rows that are not loaded through the ring.
const ROWS: Kind = Kind::Rows { loads: 0 };

fn product(k_blocks: u8, units: u8) -> Kind {
    Kind::Product { k_blocks, units, residual: Residual::Nobody }
}

fn with_residual(k_blocks: u8, units: u8) -> Kind {
    Kind::Product { k_blocks, units, residual: Residual::StoreWarps }
}

fn with_own_residual(k_blocks: u8, units: u8) -> Kind {
    Kind::Product { k_blocks, units, residual: Residual::Warpgroups }
}

/// A CTA with rings that are reused within a few items.
fn cta(items: Vec<Kind>) -> Cta {
    Cta {
        items,
        work: 2,
        operands: 2,
        windows: None,
        staging: 2,
        lag: 1,
        counters: 4,
        drawn: None,
        broken: None,
    }
}

/// The same for a convolution that loads windows.
fn windowed(operands: u32, windows: Windows, items: Vec<Kind>) -> Cta {
    Cta { operands, windows: Some(windows), ..cta(items) }
}

#[test]
fn no_wait_passes_in_the_wrong_phase_and_every_tile_is_posted_once() {
    let all = [
        cta(vec![product(2, 2), product(1, 1), product(2, 1)]),
        cta(vec![product(1, 1), ROWS, product(2, 2)]),
        cta(vec![ROWS, ROWS, product(1, 1), ROWS]),
        cta(vec![product(2, 1), product(2, 0), product(1, 1), product(1, 0)]),
        Cta { operands: 3, ..cta(vec![product(4, 1), product(1, 2)]) },
        // Two windows in one item; one in each item, with room for one.
        windowed(3, Windows { classes: &[2], buffers: 2, group: 1 }, vec![product(4, 1), product(3, 1)]),
        windowed(2, Windows { classes: &[2], buffers: 2, group: 1 }, vec![product(5, 1)]),
        windowed(3, Windows { classes: &[2], buffers: 1, group: 1 }, vec![product(2, 1); 3]),
        // Windows for several classes of taps, through two channel blocks of an item, and with a next item that has
        // them too.
        windowed(3, Windows { classes: &[2, 1], buffers: 2, group: 1 }, vec![product(6, 1), product(2, 1)]),
        Cta {
            drawn: Some(1),
            ..windowed(
                4,
                Windows { classes: &[2, 1, 1], buffers: 3, group: 1 },
                vec![product(4, 1), product(4, 1)],
            )
        },
        // Groups; some do not fit before the end of the ring, the window or the item.
        windowed(4, Windows { classes: &[2], buffers: 2, group: 2 }, vec![product(5, 1), product(2, 1)]),
        windowed(5, Windows { classes: &[3], buffers: 2, group: 3 }, vec![product(6, 1), product(3, 1)]),
        Cta {
            drawn: Some(1),
            ..windowed(5, Windows { classes: &[3], buffers: 2, group: 3 }, vec![product(4, 1), product(3, 1)])
        },
        Cta { drawn: Some(1), ..cta(vec![product(2, 1), product(3, 1)]) },
        Cta { drawn: Some(1), ..cta(vec![ROWS, product(2, 1), ROWS]) },
        Cta { work: 1, counters: 2, ..cta(vec![product(1, 1); 4]) },
        // Residuals before and after units without one; more residuals than places.
        cta(vec![product(1, 1), with_residual(1, 2), product(1, 1)]),
        cta(vec![with_residual(1, 3), with_residual(1, 1)]),
        cta(vec![with_residual(2, 0), with_residual(1, 1), ROWS, with_residual(1, 1)]),
        // The same, loaded by the warpgroups, as many as there are places; next to windows, and with no units.
        cta(vec![product(1, 1), with_own_residual(2, 2), product(1, 1), with_own_residual(1, 1)]),
        cta(vec![with_own_residual(1, 2), with_own_residual(2, 0), ROWS, with_own_residual(1, 2)]),
        windowed(
            3,
            Windows { classes: &[2], buffers: 2, group: 1 },
            vec![with_own_residual(3, 1), with_own_residual(2, 1)],
        ),
        // Rows loaded through the ring.
        cta(vec![Kind::Rows { loads: 3 }, product(1, 1), Kind::Rows { loads: 1 }]),
        Cta {
            drawn: Some(1),
            ..cta(vec![with_residual(1, 1), Kind::Rows { loads: 2 }, with_residual(1, 2)])
        },
    ];
    let mut states = 0;
    for cta in all {
        states += Model::new(cta).explore().unwrap_or_else(|fault| panic!("{fault}"));
    }
    println!("{states} states");
}

/// The model detects the faults of broken kernels.
#[test]
fn broken_rings_are_found() {
    let items = || vec![product(1, 1), ROWS, product(2, 1)];
    let broken = |broken| Cta { broken: Some(broken), ..cta(items()) };
    let cases = [
        // The word of the rows is not counted, so the next item's loads take it as their own.
        (broken(Broken::RowsAreNotCounted), "goes on though only"),
        (broken(Broken::WordTooFar), "goes on though only"),
        (broken(Broken::StagedUnseen), "is stored before it is there"),
        (
            Cta {
                broken: Some(Broken::NothingIsNotTold),
                ..cta(vec![product(1, 2), with_residual(1, 1), with_residual(1, 1)])
            },
            "stands still",
        ),
        (
            Cta { broken: Some(Broken::BroughtEarly), ..cta(vec![with_residual(1, 3)]) },
            "over a unit that is not sent",
        ),
        (
            Cta { broken: Some(Broken::BroughtEarly), ..cta(vec![product(1, 2), with_own_residual(1, 1)]) },
            "over a unit that is not sent",
        ),
        // More units than places: the second round waits for units that are computed after it.
        (cta(vec![with_own_residual(1, 3)]), "stands still"),
        // Fewer counters than the number of tiles by which one store warp leads the other.
        (Cta { counters: 1, ..cta(vec![product(1, 1); 4]) }, "one store warp has not stored it"),
        // A k-block is freed when the next is in progress, which waits for the window, which waits for the k-block.
        (windowed(3, Windows { classes: &[2], buffers: 1, group: 1 }, vec![product(4, 1)]), "stands still"),
        // The same with the tap classes of one channel block.
        (
            windowed(3, Windows { classes: &[2, 1], buffers: 1, group: 1 }, vec![product(3, 1)]),
            "stands still",
        ),
        // One copy for two k-blocks, while the second place is still being read.
        (
            Cta {
                broken: Some(Broken::GroupWaitsForFirst),
                ..windowed(4, Windows { classes: &[2], buffers: 2, group: 2 }, vec![product(6, 1)])
            },
            "filled before it is free",
        ),
        // The second item is not requested before the first one's last k-block, which waits for room.
        (Cta { lag: 2, ..cta(vec![product(1, 3)]) }, "stands still"),
    ];
    for (cta, says) in cases {
        let fault = Model::new(cta.clone()).explore().expect_err("broken");
        assert!(fault.contains(says), "{cta:?}: {fault}");
    }
}
