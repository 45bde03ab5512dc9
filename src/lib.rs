//! Tile-synchronised execution of dependent GPU kernels.
