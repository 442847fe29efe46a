//! Result rows: one CSV file per experiment, which several processes may extend, and the tables rendered from it.

pub mod conformal;
pub mod images;
pub mod ood;
pub mod runs;
pub mod series;
pub mod store;
pub mod table;
pub mod verify;
