//! One panel: a quantity of every series under every condition, on an axis of its own.

use std::ops::Range;

use anyhow::Result;
use plotters::element::{Circle, Rectangle};
use plotters::style::text_anchor::HPos;
use plotters::style::{Color, FontStyle};

use super::comparison::Comparison;
use super::labels::{BAND, GRID, INK, MUTED, style, width};
use super::marks::{Canvas, Fill, color, line, mark};
use super::scale::Scale;

pub const LABEL_SIZE: f64 = 15.0;
pub const LABEL_LINE: i32 = 18;
/// Room left of the axis for tick labels, and above it for the title.
pub const LEFT: i32 = 46;
pub const TOP: i32 = 40;

const TITLE_SIZE: f64 = 18.0;
const VALUE_SIZES: [f64; 2] = [13.0, 12.0];
const RADIUS: f64 = 5.0;
/// Room inside the axis above the largest and below the smallest mark, for value labels.
const INSET: i32 = 24;

/// What a panel shows.
pub struct Quantity {
    pub title: &'static str,
    pub hint: &'static str,
    /// Column and fill of its mark; two columns stand side by side, joined by a line.
    pub columns: &'static [(&'static str, Fill)],
    pub factor: f64,
}

/// In the order of the picture, all for one average of the members: that of their logits. Single models have no mutual information.
pub static QUANTITIES: &[Quantity] = &[
    Quantity {
        title: "Accuracy (%)",
        hint: "higher is better",
        columns: &[("accuracy_lm", Fill::Solid)],
        factor: 100.0,
    },
    Quantity { title: "NLL (nats)", hint: "lower is better", columns: &[("nll_lm", Fill::Solid)], factor: 1.0 },
    Quantity { title: "ECE (%)", hint: "lower is better", columns: &[("ece_lm", Fill::Solid)], factor: 100.0 },
    Quantity {
        title: "MI (nats)",
        hint: "hollow: correct, filled: wrong predictions",
        columns: &[("mi_correct_lm", Fill::Hollow), ("mi_wrong_lm", Fill::Solid)],
        factor: 1.0,
    },
];

/// A quantity with its values.
pub struct Panel {
    quantity: &'static Quantity,
    /// Per column of the quantity, `[series][group][seed]`.
    values: Vec<(Fill, Vec<Vec<Vec<f64>>>)>,
}

impl Panel {
    /// `None` where the results hold no value of the quantity.
    pub fn of(quantity: &'static Quantity, comparison: &Comparison) -> Result<Option<Self>> {
        let mut values = vec![];
        for (column, fill) in quantity.columns {
            values.extend(comparison.values(column, quantity.factor)?.map(|seeds| (*fill, seeds)));
        }
        Ok((!values.is_empty()).then_some(Self { quantity, values }))
    }

    /// Smallest and largest number of seeds behind a mark.
    pub fn seeds(&self) -> (usize, usize) {
        let counts =
            || self.values.iter().flat_map(|(_, all)| all.iter().flatten()).map(Vec::len).filter(|count| *count > 0);
        (counts().min().unwrap_or(0), counts().max().unwrap_or(0))
    }

    /// Whether the panel is that of mutual information.
    pub fn shows_information(&self) -> bool {
        self.quantity.columns.len() > 1
    }

    /// Draws into the rectangle `x` × `y`, whose lower part below the axis is left to `labels`, the lines of each group.
    pub fn draw(&self, canvas: &Canvas, x: Range<i32>, y: Range<i32>, labels: &[Vec<String>]) -> Result<()> {
        let lines = labels.iter().map(Vec::len).max().unwrap_or(0) as i32;
        let frame = Frame {
            x: x.start + LEFT..x.end,
            y: y.start + TOP..y.end - lines * LABEL_LINE - 8,
            groups: labels.len(),
            scale: Scale::around(self.values.iter().flat_map(|(_, all)| all.iter().flatten().flatten().copied())),
        };
        frame.draw_title(canvas, self.quantity)?;
        frame.draw_axis(canvas, labels)?;
        (0..labels.len()).try_for_each(|group| self.draw_group(canvas, &frame, group))
    }

    fn draw_group(&self, canvas: &Canvas, frame: &Frame, group: usize) -> Result<()> {
        let series_count = self.values[0].1.len();
        let size = self.label_size(frame, series_count);
        for series in 0..series_count {
            let (center, slot) = frame.slot(group, series, series_count);
            let of_column = |(fill, all): &(Fill, Vec<Vec<Vec<f64>>>)| Some((*fill, Spread::of(&all[series][group])?));
            let spreads: Vec<_> = self.values.iter().filter_map(of_column).collect();
            let shift = if spreads.len() > 1 { (slot / 5.0).min(7.0) } else { 0.0 };
            let at =
                |place: usize| (center + shift * (2.0 * place as f64 - (spreads.len() as f64 - 1.0))).round() as i32;
            let points: Vec<_> =
                spreads.iter().enumerate().map(|(place, (_, one))| (at(place), frame.pixel(one.mean))).collect();
            for pair in points.windows(2) {
                line(canvas, pair[0], pair[1], color(series).mix(0.6), 2)?;
            }
            for ((fill, spread), point) in spreads.iter().zip(&points) {
                draw_spread(canvas, frame, spread, point.0, series)?;
                mark(canvas, series, *point, RADIUS, *fill)?;
            }
            if let Some(size) = size {
                self.draw_values(canvas, frame, &spreads, center.round() as i32, size)?;
            }
        }
        Ok(())
    }

    /// The largest value above its mark, with a second one (correct and wrong) below.
    fn draw_values(&self, canvas: &Canvas, frame: &Frame, spreads: &[(Fill, Spread)], x: i32, size: f64) -> Result<()> {
        let style = style(size, INK, HPos::Center, FontStyle::Normal);
        let mut order: Vec<_> = spreads.iter().map(|(_, spread)| spread).collect();
        order.sort_by(|one, other| other.mean.total_cmp(&one.mean));
        for (place, spread) in order.iter().enumerate() {
            let y = if place == 0 { frame.pixel(spread.high) - 15 } else { frame.pixel(spread.low) + 15 };
            canvas.draw_text(&frame.scale.value(spread.mean), &style, (x, y))?;
        }
        Ok(())
    }

    /// The largest size at which all value labels of the panel fit side by side.
    fn label_size(&self, frame: &Frame, series: usize) -> Option<f64> {
        let (_, slot) = frame.slot(0, 0, series);
        let means = self.values.iter().flat_map(|(_, all)| all.iter().flatten()).filter_map(|seeds| Spread::of(seeds));
        let labels: Vec<_> = means.map(|spread| frame.scale.value(spread.mean)).collect();
        let fits = |size: &f64| labels.iter().all(|label| width(label, *size) + 1.0 <= slot);
        VALUE_SIZES.into_iter().find(fits)
    }
}

fn draw_spread(canvas: &Canvas, frame: &Frame, spread: &Spread, x: i32, series: usize) -> Result<()> {
    let (low, high) = (frame.pixel(spread.low), frame.pixel(spread.high));
    if low - high <= 2 * RADIUS as i32 + 2 {
        return Ok(()); // no larger than the mark that will cover it
    }
    line(canvas, (x, low), (x, high), color(series), 2)?;
    for end in [low, high] {
        line(canvas, (x - 4, end), (x + 4, end), color(series), 2)?;
    }
    for seed in &spread.seeds {
        canvas.draw(&Circle::new((x, frame.pixel(*seed)), 2, INK.mix(0.75).filled()))?;
    }
    Ok(())
}

/// Values of all seeds of a series.
struct Spread {
    mean: f64,
    low: f64,
    high: f64,
    seeds: Vec<f64>,
}

impl Spread {
    fn of(seeds: &[f64]) -> Option<Self> {
        let low = seeds.iter().copied().reduce(f64::min)?;
        let high = seeds.iter().copied().reduce(f64::max)?;
        Some(Self { mean: seeds.iter().sum::<f64>() / seeds.len() as f64, low, high, seeds: seeds.to_vec() })
    }
}

/// Where values and groups lie on the canvas, in pixels.
struct Frame {
    x: Range<i32>,
    y: Range<i32>,
    groups: usize,
    scale: Scale,
}

impl Frame {
    fn pixel(&self, value: f64) -> i32 {
        let share = self.scale.share(value);
        let (bottom, top) = (self.y.end - INSET, self.y.start + INSET);
        (f64::from(bottom) - share * f64::from(bottom - top)).round() as i32
    }

    /// Centre and width of a series within a group; some room on either side keeps groups apart.
    fn slot(&self, group: usize, series: usize, series_count: usize) -> (f64, f64) {
        let group_width = f64::from(self.x.end - self.x.start) / self.groups as f64;
        let slot = group_width / (series_count as f64 + 0.3);
        (f64::from(self.x.start) + group as f64 * group_width + (series as f64 + 0.65) * slot, slot)
    }

    fn draw_title(&self, canvas: &Canvas, quantity: &Quantity) -> Result<()> {
        let y = self.y.start - 18;
        canvas.draw_text(quantity.title, &style(TITLE_SIZE, INK, HPos::Left, FontStyle::Bold), (self.x.start, y))?;
        let hint = match self.scale.low {
            0.0 => quantity.hint.to_string(),
            low => format!("{}, axis from {}", quantity.hint, self.scale.tick(low)),
        };
        Ok(canvas.draw_text(&hint, &style(14.0, MUTED, HPos::Right, FontStyle::Normal), (self.x.end, y))?)
    }

    fn draw_axis(&self, canvas: &Canvas, labels: &[Vec<String>]) -> Result<()> {
        let group_width = f64::from(self.x.end - self.x.start) / self.groups as f64;
        let edge = |group: usize| self.x.start + (group as f64 * group_width).round() as i32;
        for group in (0..self.groups).step_by(2) {
            canvas
                .draw(&Rectangle::new([(edge(group), self.y.start), (edge(group + 1), self.y.end)], BAND.filled()))?;
        }
        for tick in self.scale.ticks() {
            let y = self.pixel(tick);
            line(canvas, (self.x.start, y), (self.x.end, y), GRID, 1)?;
            let label = style(LABEL_SIZE, MUTED, HPos::Right, FontStyle::Normal);
            canvas.draw_text(&self.scale.tick(tick), &label, (self.x.start - 8, y))?;
        }
        for (group, lines) in labels.iter().enumerate() {
            let x = (edge(group) + edge(group + 1)) / 2;
            for (place, text) in lines.iter().enumerate() {
                let label = style(LABEL_SIZE, INK, HPos::Center, FontStyle::Normal);
                canvas.draw_text(text, &label, (x, self.y.end + 14 + place as i32 * LABEL_LINE))?;
            }
        }
        Ok(())
    }
}
