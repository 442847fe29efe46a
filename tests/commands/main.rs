//! Commands of bella, run as a user runs them, on tiny checkpoints and the embedded digits. They are one program, since each program
//! of tests takes seconds to build.

#[path = "../common/mod.rs"]
mod common;

mod acquire;
mod after_training;
mod answers;
mod attacks;
mod bad_input;
mod bayesvlm;
mod bench;
#[cfg(target_os = "linux")]
mod children;
mod cli;
mod configs;
mod damage;
mod data_sets;
mod docs;
mod encoder_runs;
mod hub;
#[path = "../common/hub.rs"]
mod hub_server;
mod identity;
mod init;
mod language_runs;
mod laplace_runs;
mod moved;
mod numbers;
mod packed;
mod page;
mod registry;
mod rehearse;
mod report;
mod resume;
mod runs;
mod sampling;
mod saved_configs;
mod search;
mod sensitivity;
mod shifted_sets;
mod sweeps;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod terminal;
mod uncertainty;
mod vqa;
mod watching;
