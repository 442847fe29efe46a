//! The chart engine behind every picture: a canvas that is written as SVG or drawn as PNG, text widths, axes, layers, and
//! charts of panels under one legend. It knows nothing of results; the modules above it decide what is
//! drawn.

mod axis;
pub mod canvas;
mod chart;
pub mod contact_sheet;
mod frame;
mod layers;
mod panel;
pub mod raster;
pub mod terminal;
pub mod text;

pub use axis::{Axis, Scale, Ticks};
pub use canvas::{Canvas, Color, Fill, INK, MUTED, Side, Style};
pub use chart::{Chart, WIDTH, small_columns};
pub use panel::{Entry, Grid, Joined, Layer, Map, Mean, Panel, Square, Swatch, Tone};
