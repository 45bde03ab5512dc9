//! The RON front end.
