//! Bayesian fine-tuning of pretrained vision transformers.
//!
//! A posterior is a matrix `theta: [n, P]`: n particles (rows) of P trainable parameters (columns). Five axes meet there:
//! [`backbone`] turns layer weights and images into features, [`subspace`] says what the columns mean, [`methods`] how the
//! rows move, [`data`] where images come from, [`metrics`] what is reported. Each is a registry; an entry is one file.
//!
//! A run: [`cli`] → [`schema`] (files and `--set` merged) → [`experiment`] (checked) → [`checkpoint`] → [`backbone`] (self-checked) →
//! [`subspace`] lays out theta → [`train`] (batch → `method.step(theta, objective)` → checkpoint) → [`predict`] →
//! [`predictions`] saved → [`metrics`] → [`results`].

pub mod attacks;
pub mod backbone;
pub mod base;
pub mod bench;
pub mod checkpoint;
pub mod cli;
pub mod contact_sheet;
pub mod data;
pub mod device;
pub mod evaluate;
pub mod experiment;
pub mod files;
pub mod head;
pub mod images;
pub mod inputs;
pub mod landscape;
pub mod laplace;
pub mod logging;
pub mod machine;
pub mod memory;
pub mod merge;
pub mod methods;
pub mod metrics;
pub mod model;
pub mod optimizers;
pub mod parallel;
pub mod plot;
pub mod posterior;
pub mod predict;
pub mod predictions;
pub mod report;
pub mod results;
pub mod run;
pub mod schema;
pub mod sensitivity;
pub mod session;
pub mod similarity;
pub mod state;
pub mod subspace;
pub mod tensor;
pub mod train;
