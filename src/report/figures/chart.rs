//! A chart: panels on axes of numbers or names, in a grid under one legend, with a line of notes; as SVG text.

use std::ops::Range;

use anyhow::Result;
use plotters::backend::SVGBackend;
use plotters::drawing::IntoDrawingArea;
use plotters::element::Rectangle;
use plotters::style::text_anchor::HPos;
use plotters::style::{Color, FontStyle, WHITE};

use super::axis::Axis;
use super::layers::Layer;
use crate::results::picture::labels::{GRID, INK, MUTED, shorten, style, width, wrap};
use crate::results::picture::marks::{Canvas, Fill, color, line, mark};

pub const WIDTH: i32 = 900;
const MARGIN: i32 = 14;
const GAP: i32 = 22;
/// Around the plot of a panel: tick labels, title and unit, tick labels and axis title.
const LEFT: i32 = 46;
const TOP: i32 = 50;
const BOTTOM: i32 = 44;
const TITLE_SIZE: f64 = 16.0;
const TEXT_SIZE: f64 = 14.0;
const LINE: i32 = 18;
const LEGEND_LINE: i32 = 26;

/// What a chart shows.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    pub legend: Vec<Entry>,
    pub panels: Vec<Panel>,
    /// Panels side by side.
    pub columns: usize,
    /// Height of the plot of a panel, in pixels.
    pub plot_height: i32,
    pub notes: Vec<String>,
}

/// A line of the legend; `paint` numbers colour and mark.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    pub paint: usize,
    pub swatch: Swatch,
}

/// How an entry is shown in the legend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swatch {
    Mark,
    Line,
    Area,
}

/// One pair of axes.
#[derive(Clone, Debug)]
pub struct Panel {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub layers: Vec<Layer>,
}

/// Where the axes of a panel lie on the canvas.
pub struct Frame<'a> {
    pub x: Range<i32>,
    pub y: Range<i32>,
    panel: &'a Panel,
}

impl Frame<'_> {
    pub fn pixel(&self, (x, y): (f64, f64)) -> (i32, i32) {
        let at = |range: &Range<i32>, share: f64| share * f64::from(range.end - range.start);
        let (right, up) = (at(&self.x, self.panel.x.share(x)), at(&self.y, self.panel.y.share(y)));
        // Values beyond the axis stay at its edge.
        let x = (f64::from(self.x.start) + right).clamp(f64::from(self.x.start), f64::from(self.x.end));
        let y = (f64::from(self.y.end) - up).clamp(f64::from(self.y.start), f64::from(self.y.end));
        (x.round() as i32, y.round() as i32)
    }

    fn draw(&self, canvas: &Canvas) -> Result<()> {
        let room = f64::from(self.x.end - self.x.start);
        let left = self.x.start - LEFT + 6;
        let (title, size) = fit_title(&self.panel.title, room + f64::from(LEFT - 6));
        canvas.draw_text(&title, &style(size, INK, HPos::Left, FontStyle::Bold), (left, self.y.start - 37))?;
        let unit = shorten(&self.panel.y.title, TEXT_SIZE, room + f64::from(LEFT));
        canvas.draw_text(&unit, &style(TEXT_SIZE, MUTED, HPos::Left, FontStyle::Normal), (left, self.y.start - 17))?;
        self.draw_rows(canvas)?;
        self.draw_columns(canvas)?;
        for layer in &self.panel.layers {
            layer.draw(canvas, self)?;
        }
        Ok(())
    }

    fn draw_rows(&self, canvas: &Canvas) -> Result<()> {
        for (value, label) in self.panel.y.labels() {
            let y = self.pixel((0.0, value)).1;
            line(canvas, (self.x.start, y), (self.x.end, y), GRID, 1)?;
            let label_style = style(TEXT_SIZE, MUTED, HPos::Right, FontStyle::Normal);
            canvas.draw_text(&label, &label_style, (self.x.start - 7, y))?;
        }
        line(canvas, (self.x.start, self.y.end), (self.x.end, self.y.end), MUTED, 1)
    }

    fn draw_columns(&self, canvas: &Canvas) -> Result<()> {
        let labels = self.panel.x.labels();
        let room = f64::from(self.x.end - self.x.start) / labels.len().max(1) as f64 - 4.0;
        let text = style(TEXT_SIZE, MUTED, HPos::Center, FontStyle::Normal);
        for (value, label) in &labels {
            let x = self.pixel((*value, 0.0)).0;
            line(canvas, (x, self.y.end), (x, self.y.end + 4), MUTED, 1)?;
            for (place, text_line) in wrap(label, TEXT_SIZE, room, MOST_LABEL_LINES).iter().enumerate() {
                canvas.draw_text(text_line, &text, (x, self.y.end + 14 + place as i32 * 16))?;
            }
        }
        let center = (self.x.start + self.x.end) / 2;
        Ok(canvas.draw_text(&self.panel.x.title, &text, (center, self.y.end + self.panel.label_height(room) + 16))?)
    }
}

const MOST_LABEL_LINES: usize = 3;

/// Bold letters are wider than those that widths are estimated for.
const BOLD: f64 = 1.09;

/// The title at the largest size at which it fits into `room` pixels, or cut at the smallest.
fn fit_title(title: &str, room: f64) -> (String, f64) {
    let sizes = [TITLE_SIZE, 15.0, 14.0, 13.0];
    let fits = |size: &f64| BOLD * width(title, *size) <= room;
    match sizes.into_iter().find(fits) {
        Some(size) => (title.to_string(), size),
        None => (shorten(title, 13.0, room / BOLD), 13.0),
    }
}

impl Panel {
    /// Pixels of the labels under the axis when each has `room`.
    fn label_height(&self, room: f64) -> i32 {
        let lines = |(_, label): &(f64, String)| wrap(label, TEXT_SIZE, room, MOST_LABEL_LINES).len();
        self.x.labels().iter().map(lines).max().unwrap_or(1) as i32 * 16 + 2
    }
}

/// An entry with its name as far as there is room, and the place of its swatch.
type Placed<'a> = (&'a Entry, String, (i32, i32));

/// Panels side by side: three where there are many and every title fits, else two.
pub fn small_columns(panels: &[Panel]) -> usize {
    let third = f64::from((WIDTH - 2 * MARGIN - 2 * GAP) / 3);
    let fits = panels.iter().all(|panel| BOLD * width(&panel.title, 13.0) <= third - 8.0);
    match panels.len() {
        0 | 1 => 1,
        2 | 4 => 2,
        _ if fits => 3,
        _ => 2,
    }
}

impl Chart {
    /// The chart as SVG text, [`WIDTH`] pixels wide.
    pub fn render(&self) -> Result<String> {
        let columns = self.columns.clamp(1, self.panels.len().max(1)) as i32;
        let panel_width = (WIDTH - 2 * MARGIN - (columns - 1) * GAP) / columns;
        let (legend, legend_bottom) = self.place_legend();
        let room = |panel: &Panel| f64::from(panel_width - LEFT) / panel.x.labels().len().max(1) as f64 - 4.0;
        let labels = self.panels.iter().map(|panel| panel.label_height(room(panel))).max().unwrap_or(0);
        let panel_height = TOP + self.plot_height + BOTTOM - 18 + labels;
        let rows = (self.panels.len() as i32 + columns - 1) / columns;
        let notes_top = legend_bottom + rows * panel_height + 6;
        let notes: Vec<_> =
            self.notes.iter().flat_map(|note| wrap(note, TEXT_SIZE, f64::from(WIDTH - 2 * MARGIN), 4)).collect();
        let height = notes_top + notes.len() as i32 * LINE + MARGIN;
        let mut svg = String::new();
        {
            let canvas = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32)).into_drawing_area();
            canvas.fill(&WHITE)?;
            for (entry, name, at) in &legend {
                draw_entry(&canvas, entry, name, *at)?;
            }
            for (place, panel) in self.panels.iter().enumerate() {
                let (row, column) = (place as i32 / columns, place as i32 % columns);
                let x = MARGIN + column * (panel_width + GAP);
                let y = legend_bottom + row * panel_height + TOP;
                Frame { x: x + LEFT..x + panel_width, y: y..y + self.plot_height, panel }.draw(&canvas)?;
            }
            for (place, note) in notes.iter().enumerate() {
                let at = (MARGIN, notes_top + 8 + place as i32 * LINE);
                canvas.draw_text(note, &style(TEXT_SIZE, MUTED, HPos::Left, FontStyle::Normal), at)?;
            }
            canvas.present()?;
        }
        Ok(svg)
    }

    /// Entries from left to right in as many lines as they need, and where the legend ends.
    fn place_legend(&self) -> (Vec<Placed<'_>>, i32) {
        let (mut x, mut y) = (MARGIN, MARGIN + LEGEND_LINE / 2);
        let mut placed = vec![];
        for entry in &self.legend {
            let name = shorten(&entry.name, TITLE_SIZE, f64::from(WIDTH - 2 * MARGIN - 30));
            let taken = 24 + width(&name, TITLE_SIZE).ceil() as i32;
            if x + taken > WIDTH - MARGIN && x > MARGIN {
                (x, y) = (MARGIN, y + LEGEND_LINE);
            }
            placed.push((entry, name, (x + 8, y)));
            x += taken + 22;
        }
        let bottom = if placed.is_empty() { MARGIN } else { y + LEGEND_LINE / 2 + 8 };
        (placed, bottom)
    }
}

fn draw_entry(canvas: &Canvas, entry: &Entry, name: &str, (x, y): (i32, i32)) -> Result<()> {
    match entry.swatch {
        Swatch::Mark => mark(canvas, entry.paint, (x, y), 5.0, Fill::Solid)?,
        Swatch::Line => line(canvas, (x - 8, y), (x + 8, y), color(entry.paint), 3)?,
        Swatch::Area => {
            let corners = [(x - 8, y - 6), (x + 8, y + 6)];
            canvas.draw(&Rectangle::new(corners, color(entry.paint).mix(0.35).filled()))?;
            canvas.draw(&Rectangle::new(corners, color(entry.paint).stroke_width(2)))?;
        }
    }
    Ok(canvas.draw_text(name, &style(TITLE_SIZE, INK, HPos::Left, FontStyle::Normal), (x + 15, y))?)
}
