//! The report: a results folder read once ([`sources`]), numbers of the papers ([`paper`]) beside ours as [`tables`],
//! numbers over seeds ([`aggregate`]), [`figures`], and the page that holds all of it ([`html`]).

pub mod aggregate;
pub mod export;
pub mod figures;
pub mod html;
pub mod paper;
pub mod picture;
pub mod sources;
pub mod tables;

pub use sources::{RowView, Sources};
pub use tables::RenderedTable;
