//! The report of a results folder. The folder is read once ([`sources`]). Numbers of the papers ([`paper`]) are set
//! beside ours as [`tables`], numbers are aggregated over seeds ([`aggregate`]), drawn as [`figures`], and put together
//! on one page ([`html`]).

pub mod aggregate;
pub mod card;
pub mod curves;
pub mod export;
pub mod figures;
pub mod html;
pub mod notebook;
pub mod paper;
pub mod picture;
pub mod sheet;
pub mod sources;
pub mod tables;

pub use sources::{RowView, Sources};
pub use tables::RenderedTable;
