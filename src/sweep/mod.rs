//! The search for settings by validation: which settings are tried ([`space`]), how long each of them trains
//! (successive halving, in [`search`]), the training runs side by side ([`jobs`]), and the choice among them ([`search`]).
//!
//! A trial is an ordinary run, trained by `bella train` in a process of its own, so a search has no state besides its
//! runs: the same command finds them again, continues interrupted ones, and comes to the same choice. Several processes
//! share the trials by their locks ([`trial`]). Test images are never read.

pub mod jobs;
pub mod ledger;
pub mod search;
pub mod space;
pub mod trial;
