//! Bayesian fine-tuning of pretrained vision transformers.
//!
//! A posterior is a matrix `theta: [n, P]`: n particles (rows) of P trainable parameters (columns). Five axes meet there:
//! [`model`] turns layer weights and images into logits, [`subspace`] says what the columns mean, [`methods`] how the
//! rows move, [`data`] where images come from, [`metrics`] what is reported. Each is a registry; an entry is one file.
//!
//! A run: [`cli`] → [`schema`] (files and `--set` merged) → [`experiment`] (checked) → [`model`] (the checkpoint, self-checked)
//! → [`subspace`] lays out theta → [`train`] (batch → `method.step(theta, objective)` → resume file) → [`predict`] →
//! [`predictions`] saved → [`metrics`] → [`results`].
//!
//! The modules stand in layers, the ground first; a blank line begins the next one. A module imports from the layers before
//! its own, never from a later one or from a neighbour; `tests/architecture` holds it.

// Files, tensors, randomness, hashes, messages.
pub mod base;

// The library that reads configs. It knows no key.
pub mod schema;

// Device, memory, processes.
pub mod machine;

// Images with labels; predictions and their file.
pub mod data;
pub mod predictions;

// The pretrained network with its head; numbers from predictions.
pub mod metrics;
pub mod model;

// What the columns of theta mean; how a matrix follows a gradient.
pub mod optimizers;
pub mod subspace;

// What training leaves: a distribution over the rows of theta.
pub mod posterior;

// How the rows of theta move.
pub mod methods;

// Logits of many members on many images.
pub mod predict;

// Gaussians around trained particles, from the curvature of the loss.
pub mod laplace;

// What every key of a config means.
pub mod experiment;

// The folder of a run.
pub mod run;

// A model with its images, on its device.
pub mod session;

// Rows and tables; what trained particles say of each other.
pub mod analysis;
pub mod results;

// The training loop.
pub mod train;

// Test sets: as they are, attacked, shifted, foreign.
pub mod evaluate;

// An experiment played through before it is run.
pub mod rehearse;

// Pictures.
pub mod plot;

// The papers' tables and figures, with ours beside them.
pub mod report;

// What a step costs.
pub mod bench;

// The command line.
pub mod cli;
