//! The frame of one panel on the canvas: title, grid, ticks and labels. It also converts values to pixels.

use std::ops::Range;

use super::canvas::{BAND, Canvas, GRID, INK, MUTED, Point, Side, Style};
use super::panel::Panel;
use super::text::{BOLD, shorten, width, wrap};

/// The margins around the plot of a panel. `LEFT` holds the tick labels, `TOP` a title of one line and the unit, and `BOTTOM` the
/// axis title below the tick labels.
pub(super) const LEFT: i32 = 46;
pub(super) const TOP: i32 = 50;
pub(super) const BOTTOM: i32 = 36;

pub(super) const TEXT_SIZE: f64 = 14.0;
const TITLE_SIZES: [f64; 4] = [16.0, 15.0, 14.0, SMALLEST_TITLE];
pub(super) const SMALLEST_TITLE: f64 = 13.0;
const TITLE_LINE: i32 = 17;
const MOST_TITLE_LINES: usize = 2;
const VALUE_SIZES: [f64; 2] = [13.0, 12.0];
const LABEL_LINE: i32 = 16;
const MOST_LABEL_LINES: usize = 5;
/// The room between the labels of neighbouring places.
const LABEL_GAP: f64 = 10.0;
/// The width in pixels at which the name of a row is cut.
const MOST_NAME: f64 = 110.0;
/// The room within the axes above the largest and below the smallest mark, if values are written beside marks.
const INSET: i32 = 24;

/// The position of a panel's axes on the canvas.
pub(super) struct Frame<'a> {
    pub x: Range<i32>,
    pub y: Range<i32>,
    panel: &'a Panel,
    inset: i32,
    /// The room to the left of the plot.
    left: i32,
}

impl<'a> Frame<'a> {
    /// Creates the frame of a panel with `left` pixels to the left of its plot.
    pub fn new(panel: &'a Panel, x: Range<i32>, y: Range<i32>, left: i32) -> Self {
        Self { x, y, panel, inset: if panel.values { INSET } else { 0 }, left }
    }

    /// Returns the pixel of a pair of values. Values beyond the end of an axis are drawn at its edge.
    pub fn pixel(&self, (x, y): (f64, f64)) -> Point {
        let at = |from: i32, to: i32, share: f64| {
            (f64::from(from) + share.clamp(0.0, 1.0) * f64::from(to - from)).round() as i32
        };
        let x = at(self.x.start, self.x.end, self.panel.x.share(x));
        (x, at(self.y.end - self.inset, self.y.start + self.inset, self.panel.y.share(y)))
    }

    /// Returns the horizontal shift of the mark `rank` among `count` marks that share a place, and the width available
    /// to it, in pixels.
    pub fn slot(&self, rank: usize, count: usize) -> (f64, f64) {
        let Some(places) = self.panel.x.places() else { return (0.0, f64::INFINITY) };
        // The extra 0.3 leaves a gap between neighbouring places.
        let slot = self.width() / places as f64 / (count as f64 + 0.3);
        ((rank as f64 - (count as f64 - 1.0) / 2.0) * slot, slot)
    }

    fn width(&self) -> f64 {
        f64::from(self.x.end - self.x.start)
    }

    /// Formats a value as it is written beside its mark.
    pub fn value(&self, value: f64) -> String {
        self.panel.y.value(value)
    }

    /// Returns the largest font size at which every value of the panel fits into `slot` pixels. `None` if values are
    /// not written.
    pub fn value_size(&self, slot: f64) -> Option<f64> {
        let means = || self.panel.layers.iter().flat_map(|layer| layer.means());
        let fits = |size: &f64| means().all(|mean| width(&self.value(mean.mean), *size) + 1.0 <= slot);
        VALUE_SIZES.into_iter().find(fits).filter(|_| self.panel.values)
    }

    /// Draws everything of the panel except its layers.
    pub fn draw(&self, canvas: &mut Canvas) {
        let left = self.x.start - self.left + 6;
        let room = title_room(self.x.end - self.x.start, self.left);
        let (lines, size) = fit_title(&self.panel.title, room);
        for (above, line) in lines.iter().rev().enumerate() {
            let y = self.y.start - 37 - above as i32 * TITLE_LINE;
            canvas.text(line, (left, y), Style::new(size, INK, Side::Left).bold());
        }
        let unit = shorten(&self.panel.y.title, TEXT_SIZE, room);
        canvas.text(&unit, (left, self.y.start - 17), Style::new(TEXT_SIZE, MUTED, Side::Left));
        self.draw_bands(canvas);
        self.draw_rows(canvas);
        self.draw_columns(canvas);
    }

    /// Shades every other place grey if several marks share a place.
    fn draw_bands(&self, canvas: &mut Canvas) {
        let Some(places) = self.panel.x.places().filter(|_| self.panel.side_by_side() > 0) else { return };
        let edge = |place: usize| self.x.start + (place as f64 * self.width() / places as f64).round() as i32;
        for place in (0..places).step_by(2) {
            canvas.rectangle((edge(place), self.y.start), (edge(place + 1), self.y.end), BAND);
        }
    }

    fn draw_rows(&self, canvas: &mut Canvas) {
        for (value, label) in self.panel.y.labels() {
            let y = self.pixel((0.0, value)).1;
            if self.panel.y.places().is_none() {
                canvas.line(&[(self.x.start, y), (self.x.end, y)], GRID, 1);
            }
            let label = shorten(&label, TEXT_SIZE, f64::from(self.left - 12));
            canvas.text(&label, (self.x.start - 7, y), Style::new(TEXT_SIZE, MUTED, Side::Right));
        }
        if self.inset == 0 {
            canvas.line(&[(self.x.start, self.y.end), (self.x.end, self.y.end)], MUTED, 1);
        }
    }

    fn draw_columns(&self, canvas: &mut Canvas) {
        let bands = self.panel.side_by_side() > 0 && self.panel.x.places().is_some();
        let text = Style::new(TEXT_SIZE, if bands { INK } else { MUTED }, Side::Center);
        for (value, label) in &self.panel.columns(self.width()) {
            let x = self.pixel((*value, 0.0)).0;
            if !bands {
                canvas.line(&[(x, self.y.end), (x, self.y.end + 4)], MUTED, 1);
            }
            for (place, words) in self.panel.label_lines(label, self.width()).iter().enumerate() {
                canvas.text(words, (x, self.y.end + 14 + place as i32 * LABEL_LINE), text);
            }
        }
        if !self.panel.x.title.is_empty() {
            let center = (self.x.start + self.x.end) / 2;
            let y = self.y.end + self.panel.label_height(self.width()) + 16;
            canvas.text(&self.panel.x.title, (center, y), Style::new(TEXT_SIZE, MUTED, Side::Center));
        }
    }
}

fn name_lines(name: &str, room: f64) -> Vec<String> {
    wrap(name, TEXT_SIZE, room, MOST_LABEL_LINES)
}

impl Panel {
    /// Returns the room to the left of the plot in pixels: more than the usual one for long numbers and for the names of rows.
    pub(super) fn left(&self) -> i32 {
        let longest = self.y.labels().iter().map(|(_, label)| width(label, TEXT_SIZE)).fold(0.0, f64::max);
        LEFT.max(longest.min(MOST_NAME).ceil() as i32 + 14)
    }

    /// Returns the ticks below a plot of `plot_width` pixels with their labels: as many numbers as stand beside each other.
    fn columns(&self, plot_width: f64) -> Vec<(f64, String)> {
        let apart = |pair: &[(f64, String)]| {
            let half = |label: &str| width(label, TEXT_SIZE) / 2.0;
            let between = (self.x.share(pair[1].0) - self.x.share(pair[0].0)) * plot_width;
            between >= half(&pair[0].1) + half(&pair[1].1) + LABEL_GAP
        };
        let mut choices = self.x.choices();
        let fitting = choices.iter().position(|labels| labels.windows(2).all(apart));
        choices.swap_remove(fitting.unwrap_or(choices.len() - 1))
    }

    /// Returns the lines of a label below a plot of `plot_width` pixels. A name is broken, a number is not.
    fn label_lines(&self, label: &str, plot_width: f64) -> Vec<String> {
        match self.x.places() {
            Some(places) => name_lines(label, plot_width / places.max(1) as f64 - LABEL_GAP),
            None => vec![label.to_string()],
        }
    }

    /// Returns the height in pixels of the labels below a plot of `plot_width` pixels.
    pub(super) fn label_height(&self, plot_width: f64) -> i32 {
        let lines = self.columns(plot_width).iter().map(|(_, label)| self.label_lines(label, plot_width).len()).max();
        lines.unwrap_or(1) as i32 * LABEL_LINE + 2
    }

    /// Returns the height in pixels that the title takes beside that of one line.
    pub(super) fn title_height(&self, plot_width: i32, left: i32) -> i32 {
        (fit_title(&self.title, title_room(plot_width, left)).0.len() as i32 - 1) * TITLE_LINE
    }
}

/// Returns the width in pixels of the title above a plot with `left` pixels to its left.
fn title_room(plot_width: i32, left: i32) -> f64 {
    f64::from(plot_width + left - 6)
}

/// Returns the title in one line and the largest size at which it fits into `room` pixels. If none fits, the title has two lines of the
/// smallest size, the second of which may be cut.
fn fit_title(title: &str, room: f64) -> (Vec<String>, f64) {
    match TITLE_SIZES.into_iter().find(|size| BOLD * width(title, *size) <= room) {
        Some(size) => (vec![title.to_string()], size),
        None => (wrap(title, SMALLEST_TITLE, room / BOLD, MOST_TITLE_LINES), SMALLEST_TITLE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_that_does_not_fit_has_two_lines() {
        let title = "AUTOATTACK on mean-probability, 50 steps 300 queries 3 targets";
        let (lines, size) = fit_title(title, 400.0);
        assert_eq!((lines.len(), size), (2, SMALLEST_TITLE));
        assert_eq!(lines.join(" "), title);
        assert!(lines.iter().all(|line| BOLD * width(line, size) <= 400.0), "{lines:?}");
        assert_eq!(fit_title("ECE (%)", 400.0).0, ["ECE (%)"]);
    }

    #[test]
    fn labels_of_attacks_are_whole_and_do_not_touch() {
        let name = "autoattack 0.003 50 steps 300 queries 3 targets";
        let room = 820.0 / 10.0 - LABEL_GAP;
        let lines = name_lines(name, room);
        assert_eq!(lines.join(" "), name);
        assert!(lines.len() > 3 && lines.iter().all(|line| width(line, TEXT_SIZE) <= room), "{lines:?}");
    }
}
