//! The chosen plan runs, and its results are right.

mod cpu_devices;
mod cpu_fused;
mod cpu_generate;
mod cpu_plans;
mod cpu_prompts;
mod cpu_shapes;
mod dag_code;
mod dag_replay;
mod examples;
mod verdicts;
