//! A chart as SVG text: a grid of panels below one legend, followed by a few lines of notes. A chart of many series becomes
//! several blocks with the same axes below each other, since marks and colours of more than [`MOST_SERIES`] series cannot be
//! told apart in one panel.

use super::canvas::{Canvas, MUTED, Side, Style};
use super::frame::{BOTTOM, Frame, LEFT, SMALLEST_TITLE, TEXT_SIZE, TOP};
use super::layers;
use super::panel::{Entry, Joined, KEY_WIDTH, Layer, Legend, Panel};
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

/// Returns the number of small panels side by side: three if there are many and every title and unit fits, otherwise two.
pub fn small_columns(panels: &[Panel]) -> usize {
    let third = f64::from((WIDTH - 2 * MARGIN - 2 * GAP) / 3);
    let longest = |panel: &Panel| {
        let title = BOLD * width(&panel.title, SMALLEST_TITLE);
        title.max(width(&panel.y.title, TEXT_SIZE))
    };
    let fits = panels.iter().all(|panel| longest(panel) <= third - 8.0);
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
        if self.layers.iter().any(|layer| matches!(layer, Layer::Map(_))) { KEY_WIDTH } else { 0 }
    }
}

/// The positions of all parts in pixels.
struct Layout<'a> {
    legend: Legend<'a>,
    columns: i32,
    /// The room to the left of each plot, and that above it.
    left: i32,
    top: i32,
    /// The width of a panel's plot. `step` is the distance from one panel to the next, right and down.
    plot_width: i32,
    step: (i32, i32),
    notes: Vec<String>,
    notes_top: i32,
    width: i32,
    bottom: i32,
}

impl Chart {
    /// Draws the chart. More than eight series are drawn as small multiples.
    pub fn render(&self) -> Canvas {
        let blocks = self.blocks();
        let mut layouts: Vec<Layout> = vec![];
        for block in &blocks {
            layouts.push(block.layout(layouts.last().map_or(0, |above| above.bottom)));
        }
        let width = layouts.iter().map(|layout| layout.width).max().unwrap_or(WIDTH);
        let mut canvas = Canvas::new(width, layouts.last().map_or(0, |layout| layout.bottom));
        blocks.iter().zip(&layouts).for_each(|(block, layout)| block.draw(layout, &mut canvas));
        canvas
    }

    fn draw(&self, layout: &Layout, canvas: &mut Canvas) {
        layout.legend.draw(canvas);
        for (place, panel) in self.panels.iter().enumerate() {
            let (row, column) = (place as i32 / layout.columns, place as i32 % layout.columns);
            let x = MARGIN + layout.left + column * layout.step.0;
            let y = layout.legend.bottom + layout.top + row * layout.step.1;
            let frame = Frame::new(panel, x..x + layout.plot_width, y..y + self.plot_height, layout.left);
            frame.draw(canvas);
            panel.layers.iter().for_each(|layer| layers::draw(layer, canvas, &frame));
        }
        for (place, note) in layout.notes.iter().enumerate() {
            let at = (MARGIN, layout.notes_top + 8 + place as i32 * NOTE_LINE);
            canvas.text(note, at, Style::new(TEXT_SIZE, MUTED, Side::Left));
        }
    }

    /// Places the parts of a chart whose upper edge lies `from` pixels below that of the picture.
    fn layout(&self, from: i32) -> Layout<'_> {
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
        let legend = Legend::place(&self.legend, width, (MARGIN, from));
        let labels = most(&|panel| panel.label_height(f64::from(plot_width)));
        let titled = self.panels.iter().any(|panel| !panel.x.title.is_empty());
        let top = TOP + most(&|panel| panel.title_height(plot_width, left));
        let panel_height = top + self.plot_height + labels + if titled { BOTTOM } else { 12 };
        let rows = (self.panels.len() as i32 + columns - 1) / columns;
        let notes_top = legend.bottom + rows * panel_height + 6;
        let lines = self.notes.iter().flat_map(|note| wrap(note, TEXT_SIZE, f64::from(width - 2 * MARGIN), 4));
        let notes: Vec<String> = lines.collect();
        let bottom = notes_top + notes.len() as i32 * NOTE_LINE + MARGIN;
        let step = (plot_width + around + GAP, panel_height);
        Layout { legend, columns, left, top, plot_width, step, notes, notes_top, width, bottom }
    }
}

/// The most series in one block.
pub const MOST_SERIES: usize = 8;

/// The most blocks of one chart. A chart of more series says how many it leaves out.
const MOST_BLOCKS: usize = 5;

impl Chart {
    /// Returns the blocks of the chart from top to bottom: the chart itself if its legend is short enough. The notes
    /// stand below the last block.
    fn blocks(&self) -> Vec<Chart> {
        if self.legend.len() <= MOST_SERIES {
            return vec![self.clone()];
        }
        let shown = &self.legend[..self.legend.len().min(MOST_BLOCKS * MOST_SERIES)];
        let size = shown.len().div_ceil(shown.len().div_ceil(MOST_SERIES));
        let mut blocks: Vec<Chart> = shown.chunks(size).map(|some| self.block(some, size)).collect();
        if let Some(last) = blocks.last_mut() {
            last.notes.clone_from(&self.notes);
            let left_out = self.legend.len() - shown.len();
            if left_out > 0 {
                last.notes.push(format!("{left_out} more methods and settings stand in the tables."));
            }
        }
        blocks
    }

    /// Returns the chart with a part of its legend, the layers of these series in `slots` slots, and no notes.
    fn block(&self, legend: &[Entry], slots: usize) -> Chart {
        let paints: Vec<usize> = legend.iter().map(|entry| entry.paint).collect();
        let panels = self.panels.iter().filter_map(|panel| panel.of_series(&paints, slots)).collect();
        Chart { legend: legend.to_vec(), panels, notes: vec![], ..self.clone() }
    }
}

impl Panel {
    /// Returns the panel with the layers of some series and those that belong to none. `None` if it has none of these
    /// series, though it has others.
    fn of_series(&self, paints: &[usize], slots: usize) -> Option<Panel> {
        let own: Vec<&Layer> =
            self.layers.iter().filter(|layer| layer.paint().is_none_or(|paint| paints.contains(&paint))).collect();
        let is_painted = |layer: &&Layer| layer.paint().is_some();
        if self.layers.iter().any(|layer| is_painted(&layer)) && !own.iter().any(is_painted) {
            return None;
        }
        let layers = own.into_iter().map(|layer| layer.ranked_among(paints, slots)).collect();
        Some(Panel { layers, ..self.clone() })
    }
}

impl Layer {
    /// Returns the number of the layer's series. `None` if the layer belongs to no series.
    fn paint(&self) -> Option<usize> {
        match self {
            Self::Means { paint, .. }
            | Self::Curve { paint, .. }
            | Self::Area { paint, .. }
            | Self::Dots { paint, .. }
            | Self::Bar { paint, .. } => Some(*paint),
            Self::Reference { .. } | Self::Map(_) | Self::Named { .. } | Self::Texts { .. } | Self::Matrix(_) => None,
        }
    }

    /// Returns the layer with its marks in the slot of its series. Every block has the same number of slots, so that all
    /// panels are equally wide.
    fn ranked_among(&self, paints: &[usize], slots: usize) -> Layer {
        let mut layer = self.clone();
        if let Layer::Means { paint, joined: Joined::Apart { rank, count } | Joined::Beside { rank, count }, .. } =
            &mut layer
        {
            *rank = paints.iter().position(|other| other == paint).unwrap_or(*rank);
            *count = slots;
        }
        layer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Axis, Entry, Mean, Swatch, Ticks};

    /// Returns a chart of `count` series: one panel with a mark of each, and one panel with a mark of the last alone.
    fn chart(count: usize) -> Chart {
        let mark = |paint: usize| {
            let points = vec![Mean::of(0.0, &[paint as f64]).unwrap()];
            Layer::Means { paint, joined: Joined::Apart { rank: paint, count }, points }
        };
        let panel = |layers: Vec<Layer>| Panel {
            title: String::new(),
            x: Axis::new("", Ticks::Names(vec!["clean".into()])),
            y: Axis::new("", Ticks::between(0.0, count as f64)),
            layers,
            values: false,
        };
        Chart {
            legend: (0..count).map(|paint| Entry { name: format!("s{paint}"), paint, swatch: Swatch::Mark }).collect(),
            panels: vec![panel((0..count).map(mark).collect()), panel(vec![mark(count - 1)])],
            columns: 2,
            plot_height: 100,
            notes: vec!["a note".into()],
            ..Chart::default()
        }
    }

    #[test]
    fn lines_of_one_colour_differ_by_their_dashes() {
        let line = |paint: usize| Layer::Curve { paint, points: vec![(0.0, 0.0), (1.0, 1.0)] };
        let panel = Panel {
            title: String::new(),
            x: Axis::new("", Ticks::between(0.0, 1.0)),
            y: Axis::new("", Ticks::between(0.0, 1.0)),
            layers: vec![line(0), line(7)],
            values: false,
        };
        let entry = |paint| Entry { name: format!("s{paint}"), paint, swatch: Swatch::Line };
        let chart =
            Chart { legend: vec![entry(0), entry(7)], panels: vec![panel], plot_height: 100, ..Chart::default() };
        let drawn = chart.render();
        let lines: Vec<bool> =
            drawn.svg().lines().filter(|tag| tag.contains("#5A5A5A")).map(|tag| tag.contains("dasharray")).collect();
        assert_eq!(lines, [false, true, false, true], "entries, then lines");
        crate::plot::raster::png(&drawn, 1.0).unwrap();
    }

    // Numbers below 1 with four decimals, and a logarithmic axis of two and a half powers of ten, in panels of a third of the width.
    #[test]
    fn labels_of_ticks_are_whole_and_apart() {
        let panel = |ticks: Ticks, high: f64| Panel {
            title: "t".into(),
            x: Axis::new("x", ticks),
            y: Axis::new("y", Ticks::between(0.2475, high)),
            layers: vec![],
            values: false,
        };
        let logarithmic = [Ticks::Log(3e-5, 0.007), Ticks::Log(2.1e-4, 9e-4), Ticks::Log(1e-7, 1.0)];
        let panels: Vec<Panel> = logarithmic.into_iter().map(|ticks| panel(ticks, 0.2484)).collect();
        let wide = Chart { panels, columns: 3, plot_height: 150, ..Chart::default() };
        let drawn = wide.render().svg();
        assert!(!drawn.contains('…') && drawn.contains(">0.2478<") && drawn.contains(">1e-4<"), "{drawn}");
        let few = Chart { panels: vec![panel(Ticks::between(1.0, 1.0006), 0.25)], plot_width: Some(90), ..wide };
        let drawn = few.render().svg();
        assert!(drawn.matches(">1.00").count() == 2 && drawn.contains(">1.0000<"), "{drawn}");
    }

    #[test]
    fn eight_series_share_one_block() {
        let blocks = chart(8).blocks();
        assert_eq!((blocks.len(), blocks[0].panels.len(), blocks[0].panels[0].layers.len()), (1, 2, 8));
    }

    #[test]
    fn more_series_stand_in_blocks_with_their_own_marks() {
        let blocks = chart(11).blocks();
        assert_eq!(blocks.iter().map(|block| block.legend.len()).collect::<Vec<_>>(), [6, 5]);
        assert_eq!(blocks.iter().map(|block| block.panels.len()).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(blocks.iter().map(|block| block.notes.len()).collect::<Vec<_>>(), [0, 1]);
        let Layer::Means { paint, joined, .. } = &blocks[1].panels[0].layers[0] else { panic!("marks were expected") };
        assert_eq!((*paint, *joined), (6, Joined::Apart { rank: 0, count: 6 }));
        let drawn = chart(11).render().svg();
        assert_eq!(drawn.matches("<svg").count(), 1);
        assert!((0..11).all(|series| drawn.contains(&format!(">s{series}<"))), "{drawn}");
    }

    #[test]
    fn a_chart_says_how_many_series_it_leaves_out() {
        let blocks = chart(43).blocks();
        assert_eq!(blocks.len(), 5);
        assert_eq!(blocks[4].notes, ["a note", "3 more methods and settings stand in the tables."]);
    }
}
