//! Running plans: pipelines, executors, verification.
