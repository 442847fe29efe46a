//! A chart as SVG text: a grid of panels below one legend, followed by a few lines of notes.

use super::canvas::{Canvas, MUTED, Side, Style};
use super::frame::{BOTTOM, Frame, LEFT, SMALLEST_TITLE, TEXT_SIZE, TOP};
use super::layers;
use super::legend::{Entry, Legend};
use super::map;
use super::panel::{Layer, Panel};
use super::text::{BOLD, longest_word, width, wrap};

/// The width of a chart in pixels, unless its panels need more.
pub const WIDTH: i32 = 900;
const MARGIN: i32 = 14;
const GAP: i32 = 22;
const NOTE_LINE: i32 = 18;

/// `LEAST_SLOT` is the smallest width in pixels of a mark that stands beside others, and `LEAST_PLACE` that of a place
/// on the axis. With less, marks touch and labels become unreadable. A place grows with the longest word of its label
/// up to `MOST_WORD` pixels; longer words are cut.
const LEAST_SLOT: i32 = 15;
const LEAST_PLACE: i32 = 76;
const MOST_WORD: f64 = 160.0;

/// A chart: a legend, panels and notes.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    pub legend: Vec<Entry>,
    pub panels: Vec<Panel>,
    /// The number of panels side by side. Fewer are used if they would be too narrow.
    pub columns: usize,
    /// The width of a panel's plot in pixels. `None` makes it as wide as the chart allows.
    pub plot_width: Option<i32>,
    pub plot_height: i32,
    /// Whether the chart may become wider than [`WIDTH`] if marks side by side need more room.
    pub grows: bool,
    pub notes: Vec<String>,
}

/// Returns the number of small panels side by side: three if there are many and every title fits, otherwise two.
pub fn small_columns(panels: &[Panel]) -> usize {
    let third = f64::from((WIDTH - 2 * MARGIN - 2 * GAP) / 3);
    let fits = panels.iter().all(|panel| BOLD * width(&panel.title, SMALLEST_TITLE) <= third - 8.0);
    match panels.len() {
        0 | 1 => 1,
        2 | 4 => 2,
        _ if fits => 3,
        _ => 2,
    }
}

impl Panel {
    /// Returns the least width of the plot in pixels.
    fn least_width(&self) -> i32 {
        let (Some(places), marks @ 1..) = (self.x.places(), self.side_by_side()) else { return 0 };
        let words = self.x.labels().iter().map(|(_, label)| longest_word(label, TEXT_SIZE)).fold(0.0, f64::max);
        let word = words.min(MOST_WORD).ceil() as i32 + 8;
        places as i32 * LEAST_PLACE.max(LEAST_SLOT * (marks + 1)).max(word)
    }

    /// Returns the width to the right of the plot in pixels.
    fn right(&self) -> i32 {
        if self.layers.iter().any(|layer| matches!(layer, Layer::Map(_))) { map::KEY_WIDTH } else { 0 }
    }
}

/// The positions of all parts in pixels.
struct Layout<'a> {
    legend: Legend<'a>,
    columns: i32,
    /// The room to the left of each plot.
    left: i32,
    /// The width of a panel's plot. `step` is the distance from one panel to the next, right and down.
    plot_width: i32,
    step: (i32, i32),
    notes: Vec<String>,
    notes_top: i32,
    width: i32,
    bottom: i32,
}

impl Chart {
    /// Returns the chart as SVG text. More than eight series are drawn as small multiples.
    pub fn render(&self) -> String {
        let blocks = self.blocks();
        let mut layouts: Vec<Layout> = vec![];
        for block in &blocks {
            layouts.push(block.layout(layouts.last().map_or(0, |above| above.bottom)));
        }
        let width = layouts.iter().map(|layout| layout.width).max().unwrap_or(WIDTH);
        let mut canvas = Canvas::new(width, layouts.last().map_or(0, |layout| layout.bottom));
        blocks.iter().zip(&layouts).for_each(|(block, layout)| block.draw(layout, &mut canvas));
        canvas.finish()
    }

    fn draw(&self, layout: &Layout, canvas: &mut Canvas) {
        layout.legend.draw(canvas);
        for (place, panel) in self.panels.iter().enumerate() {
            let (row, column) = (place as i32 / layout.columns, place as i32 % layout.columns);
            let x = MARGIN + layout.left + column * layout.step.0;
            let y = layout.legend.bottom + TOP + row * layout.step.1;
            let frame = Frame::new(panel, x..x + layout.plot_width, y..y + self.plot_height, layout.left);
            frame.draw(canvas);
            panel.layers.iter().for_each(|layer| layers::draw(layer, canvas, &frame));
        }
        for (place, note) in layout.notes.iter().enumerate() {
            let at = (MARGIN, layout.notes_top + 8 + place as i32 * NOTE_LINE);
            canvas.text(note, at, Style::new(TEXT_SIZE, MUTED, Side::Left));
        }
    }

    /// Places the parts of a chart whose upper edge lies `top` pixels below that of the picture.
    fn layout(&self, top: i32) -> Layout<'_> {
        let most = |quantity: &dyn Fn(&Panel) -> i32| self.panels.iter().map(quantity).max().unwrap_or(0);
        let left = most(&Panel::left).max(LEFT);
        let (least, around) = (most(&Panel::least_width), left + most(&Panel::right));
        let room = |columns: i32| (WIDTH - 2 * MARGIN - (columns - 1) * GAP) / columns - around;
        let wanted = self.columns.clamp(1, self.panels.len().max(1)) as i32;
        let columns =
            (1..=wanted).rev().find(|columns| self.plot_width.is_some() || room(*columns) >= least).unwrap_or(1);
        let least = if self.grows { least } else { 0 };
        let plot_width = self.plot_width.unwrap_or(room(columns).max(least));
        let width = 2 * MARGIN + columns * (plot_width + around) + (columns - 1) * GAP;
        let width = if self.plot_width.is_some() { width } else { width.max(WIDTH) };
        let legend = Legend::place(&self.legend, width, (MARGIN, top));
        let labels = most(&|panel| panel.label_height(f64::from(plot_width)));
        let titled = self.panels.iter().any(|panel| !panel.x.title.is_empty());
        let panel_height = TOP + self.plot_height + labels + if titled { BOTTOM } else { 12 };
        let rows = (self.panels.len() as i32 + columns - 1) / columns;
        let notes_top = legend.bottom + rows * panel_height + 6;
        let lines = self.notes.iter().flat_map(|note| wrap(note, TEXT_SIZE, f64::from(width - 2 * MARGIN), 4));
        let notes: Vec<String> = lines.collect();
        let bottom = notes_top + notes.len() as i32 * NOTE_LINE + MARGIN;
        let step = (plot_width + around + GAP, panel_height);
        Layout { legend, columns, left, plot_width, step, notes, notes_top, width, bottom }
    }
}
