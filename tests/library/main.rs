//! bella's library and its commands from outside, in one binary: each binary of tests is linked with all of bella, which takes seconds.
//! The runner of tests gives each test a process of its own. Tests that add to a registry of bella have a binary of their own.

#[path = "../common/mod.rs"]
mod common;

mod archives;
mod changed_keys;
mod checkpoints;
mod copies;
mod encoders;
mod exchange;
mod folder_checks;
mod folders;
mod ivon;
mod language;
mod laplace;
mod memory;
mod merge;
mod methods;
mod modules;
mod parallel;
mod particles;
mod pieces;
mod prefix;
mod projection_exports;
mod quantised;
mod sentences;
mod sighted;
mod text_exports;
mod weight_space;
mod weights;
mod zero_shot;
