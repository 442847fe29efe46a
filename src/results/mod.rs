//! Result rows: one CSV per experiment that several processes may add to, and the tables rendered from it.

pub mod images;
pub mod ood;
pub mod series;
pub mod store;
pub mod table;
