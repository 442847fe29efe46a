//! Bayesian fine-tuning of pretrained networks.
//!
//! A posterior is a matrix `theta: [n, P]`: n particles (rows) of P trainable parameters (columns). Five modules work on
//! it, each with a registry whose entries have one file each: [`model`] turns layer weights and images into logits,
//! [`subspace`] defines the columns, [`methods`] move the rows, [`data`] reads the images, and [`metrics`] measures the
//! predictions.
//!
//! The steps of a run: [`cli`] → [`schema`] (files and `--set` merged) → [`experiment`] (checked) → [`model`] (the
//! checkpoint, self-checked) → [`subspace`] (the layout of theta) → [`train`] (batch → `method.step(theta, objective)` →
//! resume file) → [`predict`] → [`predictions`] saved → [`metrics`] → [`results`].
//!
//! The modules below are sorted into layers, from the bottom up, with a blank line between layers. A module imports only
//! from the layers before its own, never from a later one or from a module in its own layer; `tests/architecture` checks
//! this.

// Files, tensors, randomness, hashes, messages.
#[macro_use]
pub mod base;

// The library that reads configs. It knows no key.
pub mod schema;

// Device, memory, processes.
pub mod machine;

// Checkpoints by name: the caches that other programs share, and what is downloaded into them.
pub mod hub;

// Images with labels; predictions and their file.
pub mod data;
pub mod predictions;

// The pretrained network with its head; numbers from predictions.
pub mod metrics;
pub mod model;

// The meaning of the columns of theta; the steps of a matrix along a gradient.
pub mod optimizers;
pub mod subspace;

// The result of training: a distribution over the rows of theta.
pub mod posterior;

// The logits of many members on many images.
pub mod predict;

// What a model learns, and what is kept of its predictions.
pub mod tasks;

// Gaussians around trained particles, from the curvature of the loss.
pub mod laplace;

// The methods that move the rows of theta, and those that are fitted around them afterwards.
pub mod methods;

// The meaning of every key of a config.
pub mod experiment;

// The folder of a run.
pub mod run;

// A model with its images, on its device.
pub mod session;

// A first config for the user's own checkpoint and images.
pub mod draft;

// Rows and tables of results.
pub mod results;

// Studies of trained particles.
pub mod analysis;

// Models that leave for other programs, and adapters that come in from them.
pub mod exchange;

// The training loop.
pub mod train;

// Evaluation on test sets: clean, attacked, shifted, or of other classes.
pub mod evaluate;

// The rehearsal of an experiment before it is run.
pub mod rehearse;

// Pictures.
pub mod plot;

// Predictions of a run for new images and texts.
pub mod inference;

// Tables and figures of results beside those of the papers.
pub mod report;

// The cost of a step.
pub mod bench;

// The search for settings.
pub mod sweep;

// The command line.
pub mod cli;
