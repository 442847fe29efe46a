//! The legend of a chart: entries from left to right, in as many lines as they need.

use super::canvas::{Canvas, Fill, INK, Point, Side, Style, color};
use super::panel::Tone;
use super::text::{shorten, width};

const SIZE: f64 = 16.0;
const LINE: i32 = 26;

/// A name in the legend. `paint` is the number of its colour and mark.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    pub paint: usize,
    pub swatch: Swatch,
}

/// The symbol of an entry in the legend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swatch {
    Mark,
    Line,
    Area,
    /// A bar of this tone.
    Bar(Tone),
    Dot,
}

/// The legend with the positions of its entries.
pub(super) struct Legend<'a> {
    /// Each entry with its name, cut if it is too long, and the position of its swatch.
    entries: Vec<(&'a Entry, String, Point)>,
    pub bottom: i32,
}

impl<'a> Legend<'a> {
    /// Places the entries in a chart of `chart_width` pixels, with `margin` pixels free on both sides and
    /// above, where the chart begins `top` pixels below the upper edge of the picture.
    pub fn place(entries: &'a [Entry], chart_width: i32, (margin, top): (i32, i32)) -> Self {
        let (mut x, mut y) = (margin, top + margin + LINE / 2);
        let mut placed = vec![];
        for entry in entries {
            let name = shorten(&entry.name, SIZE, f64::from(chart_width - 2 * margin - 30));
            let taken = 24 + width(&name, SIZE).ceil() as i32;
            if x + taken > chart_width - margin && x > margin {
                (x, y) = (margin, y + LINE);
            }
            placed.push((entry, name, (x + 8, y)));
            x += taken + 22;
        }
        let bottom = if placed.is_empty() { top + margin } else { y + LINE / 2 + 8 };
        Self { entries: placed, bottom }
    }

    pub fn draw(&self, canvas: &mut Canvas) {
        for (entry, name, (x, y)) in &self.entries {
            let (x, y, paint) = (*x, *y, color(entry.paint));
            match entry.swatch {
                Swatch::Mark => canvas.mark(entry.paint, (x, y), 5.0, Fill::Solid),
                Swatch::Line => canvas.line(&[(x - 8, y), (x + 8, y)], paint, 3),
                Swatch::Bar(tone) => canvas.rectangle((x - 8, y - 6), (x + 8, y + 6), paint.faint(tone.strength())),
                Swatch::Dot => canvas.dot((x, y), 4, paint.faint(0.55)),
                Swatch::Area => {
                    let (from, to) = ((x - 8, y - 6), (x + 8, y + 6));
                    canvas.rectangle(from, to, paint.faint(0.35));
                    canvas.line(&[from, (to.0, from.1), to, (from.0, to.1), from], paint, 2);
                }
            }
            canvas.text(name, (x + 15, y), Style::new(SIZE, INK, Side::Left));
        }
    }
}
