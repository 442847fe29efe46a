//! Train and test error over the plane through three particles, as maps with the particles as marks (Bella, figure 1).

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use plotters::backend::SVGBackend;
use plotters::drawing::IntoDrawingArea;
use plotters::element::Rectangle;
use plotters::style::text_anchor::HPos;
use plotters::style::{Color, FontStyle, RGBColor, WHITE};

use super::{Drawing, Material};
use crate::files::write_atomic;
use crate::results::picture::labels::{INK, MUTED, style, width};
use crate::results::picture::marks::{Canvas, Fill, line, mark};
use crate::results::picture::scale::Scale;
use crate::results::store;

/// The longer side of a map, in pixels; both axes have the same scale.
const SIZE: i32 = 360;
const LEFT: i32 = 60;
const TOP: i32 = 52;
const GAP: i32 = 110;
/// Steps of colour between the smallest and the largest error.
const LEVELS: usize = 12;
/// Pixels along each side of the squares that a map is painted with.
const CELL: i32 = 3;

/// Dark to light, even in lightness, told apart without colour vision (cividis, Nuñez et al. 2018).
const COLORS: [(f64, f64, f64); 5] =
    [(0.0, 34.0, 78.0), (66.0, 78.0, 108.0), (125.0, 124.0, 120.0), (188.0, 175.0, 111.0), (254.0, 232.0, 56.0)];

/// Errors on a full grid of the plane.
struct Plane {
    /// Ascending coordinates.
    xs: Vec<f64>,
    ys: Vec<f64>,
    /// Train and test error in percent, `[y][x]`.
    errors: [Vec<Vec<f64>>; 2],
    /// Name and place.
    particles: Vec<(String, f64, f64)>,
}

/// Draws `points` (columns x, y, train_error, test_error) with the particles of `marks` (particle, x, y) to `out`.
///
/// Errors: a file that cannot be read, a missing column, a cell that is no number, points that are no full grid.
pub fn draw(points: &Path, marks: &Path, out: &Path) -> Result<()> {
    let svg = render(&Plane::read(points, marks)?).with_context(|| format!("picture {}", out.display()))?;
    write_atomic(out, |writer| Ok(writer.write_all(svg.as_bytes())?))
}

/// The first run whose folder holds a landscape.
pub(super) fn of_runs(material: &Material) -> Result<Option<Drawing>> {
    let files = |folder: &Path| (folder.join("landscape.csv"), folder.join("landscape-particles.csv"));
    let with = |folder: &Path| {
        let (points, marks) = files(folder);
        points.is_file() && marks.is_file()
    };
    let runs: Vec<_> = material.sources.runs.iter().filter(|run| with(&run.folder)).collect();
    let Some(run) = runs.first() else { return Ok(None) };
    let (points, marks) = files(&run.folder);
    let others = match runs.len() - 1 {
        0 => String::new(),
        count => format!(" {count} further runs have a picture in their folder."),
    };
    let caption = format!(
        "Share of wrong predictions on training and on test images where the weight updates are combined to points of the \
         plane through three particles of run {}; axes are distances between weights.{others}",
        run.run
    );
    Ok(Some(Drawing { svg: render(&Plane::read(&points, &marks)?)?, caption }))
}

impl Plane {
    fn read(points: &Path, marks: &Path) -> Result<Self> {
        let rows = numbers(points, &["x", "y", "train_error", "test_error"])?;
        let axis = |column: usize| {
            let mut values: Vec<_> = rows.iter().map(|row| row[column]).collect();
            values.sort_unstable_by(f64::total_cmp);
            values.dedup();
            values
        };
        let (xs, ys) = (axis(0), axis(1));
        let full = xs.len() > 1 && ys.len() > 1 && rows.len() == xs.len() * ys.len();
        let rule = "must be a full grid of at least 2 × 2 points; run `bella landscape` again";
        ensure!(
            full,
            "{}: {} points for {} × {} coordinates: {rule}",
            points.display(),
            rows.len(),
            xs.len(),
            ys.len()
        );
        let mut errors = [(); 2].map(|()| vec![vec![f64::NAN; xs.len()]; ys.len()]);
        for row in &rows {
            let at = |axis: &[f64], value| axis.iter().position(|one| *one == value);
            if let (Some(x), Some(y)) = (at(&xs, row[0]), at(&ys, row[1])) {
                errors[0][y][x] = 100.0 * row[2];
                errors[1][y][x] = 100.0 * row[3];
            }
        }
        let complete = errors.iter().flatten().flatten().all(|error| error.is_finite());
        ensure!(complete, "{}: a point is given twice and another is missing: {rule}", points.display());
        let table = store::read(marks)?;
        let places = numbers(marks, &["x", "y"])?;
        let name = |row| table.get(row, "particle").unwrap_or_default().to_string();
        let particles = places.iter().enumerate().map(|(row, place)| (name(row), place[0], place[1])).collect();
        Ok(Self { xs, ys, errors, particles })
    }

    /// The error at a place of the plane, linear between the points of the grid.
    fn error(&self, which: usize, x: f64, y: f64) -> f64 {
        let between = |axis: &[f64], value: f64| {
            let upper = axis.partition_point(|one| *one <= value).clamp(1, axis.len() - 1);
            let share = (value - axis[upper - 1]) / (axis[upper] - axis[upper - 1]);
            (upper, share.clamp(0.0, 1.0))
        };
        let ((column, right), (row, up)) = (between(&self.xs, x), between(&self.ys, y));
        let grid = &self.errors[which];
        let along = |row: usize| (1.0 - right) * grid[row][column - 1] + right * grid[row][column];
        (1.0 - up) * along(row - 1) + up * along(row)
    }

    fn x_ends(&self) -> (f64, f64) {
        (self.xs[0], self.xs[self.xs.len() - 1])
    }

    fn y_ends(&self) -> (f64, f64) {
        (self.ys[0], self.ys[self.ys.len() - 1])
    }
}

/// The columns of a CSV as numbers.
fn numbers(path: &Path, columns: &[&str]) -> Result<Vec<Vec<f64>>> {
    let table = store::read(path)?;
    let number = |row: usize, column: &str| {
        let cell = table.get(row, column).with_context(|| format!("{}: has no column `{column}`", path.display()))?;
        let value = cell.parse().ok().filter(|value: &f64| value.is_finite());
        value.with_context(|| format!("{}: row {}, `{column}` = `{cell}`: must be a number", path.display(), row + 1))
    };
    (0..table.rows.len()).map(|row| columns.iter().map(|column| number(row, column)).collect()).collect()
}

/// Where a map lies on the canvas: its upper left corner and its size, in pixels.
struct Frame<'a> {
    plane: &'a Plane,
    left: i32,
    width: i32,
    height: i32,
}

impl<'a> Frame<'a> {
    fn of(plane: &'a Plane, left: i32) -> Self {
        let ((x0, x1), (y0, y1)) = (plane.x_ends(), plane.y_ends());
        let unit = f64::from(SIZE / CELL) / (x1 - x0).max(y1 - y0);
        let pixels = |extent: f64| ((extent * unit).round() as i32).max(20) * CELL;
        Self { plane, left, width: pixels(x1 - x0), height: pixels(y1 - y0) }
    }

    fn bottom(&self) -> i32 {
        TOP + self.height
    }

    fn pixel(&self, x: f64, y: f64) -> (i32, i32) {
        let share = |value: f64, (low, high): (f64, f64), size: i32| {
            ((value - low) / (high - low) * f64::from(size)).round() as i32
        };
        let (right, up) = (share(x, self.plane.x_ends(), self.width), share(y, self.plane.y_ends(), self.height));
        (self.left + right, self.bottom() - up)
    }

    /// The place on the plane of the middle of a cell.
    fn place(&self, column: i32, row: i32) -> (f64, f64) {
        let ((x0, x1), (y0, y1)) = (self.plane.x_ends(), self.plane.y_ends());
        let share = |at: i32, size: i32| (f64::from(at) + 0.5) * f64::from(CELL) / f64::from(size);
        (x0 + (x1 - x0) * share(column, self.width), y1 - (y1 - y0) * share(row, self.height))
    }
}

fn render(plane: &Plane) -> Result<String> {
    let train = Frame::of(plane, LEFT);
    let test = Frame::of(plane, LEFT + train.width + GAP);
    let (width, height) = (2 * (train.width + GAP) + LEFT - 20, train.bottom() + 60);
    let mut svg = String::new();
    {
        let canvas = SVGBackend::with_string(&mut svg, (width as u32, height as u32)).into_drawing_area();
        canvas.fill(&WHITE)?;
        for (frame, title, errors) in [(train, "Train error (%)", 0), (test, "Test error (%)", 1)] {
            canvas.draw_text(title, &style(16.0, INK, HPos::Left, FontStyle::Bold), (frame.left, TOP - 22))?;
            draw_map(&canvas, &frame, errors)?;
        }
        canvas.present()?;
    }
    Ok(svg)
}

fn draw_map(canvas: &Canvas, frame: &Frame, which: usize) -> Result<()> {
    let all = || frame.plane.errors[which].iter().flatten().copied();
    let low = all().fold(f64::INFINITY, f64::min);
    let high = all().fold(f64::NEG_INFINITY, f64::max).max(low + 1e-9);
    let level = |error: f64| (((error - low) / (high - low) * LEVELS as f64) as usize).min(LEVELS - 1);
    for row in 0..frame.height / CELL {
        let error = |column: i32| {
            let (x, y) = frame.place(column, row);
            frame.plane.error(which, x, y)
        };
        let levels: Vec<_> = (0..frame.width / CELL).map(|column| level(error(column))).collect();
        let (mut x, y) = (frame.left, TOP + row * CELL);
        // Neighbours of one level are one rectangle.
        for run in levels.chunk_by(|a, b| a == b) {
            let end = x + run.len() as i32 * CELL;
            canvas.draw(&Rectangle::new([(x, y), (end, y + CELL)], shade(run[0]).filled()))?;
            x = end;
        }
    }
    draw_axes(canvas, frame)?;
    draw_particles(canvas, frame)?;
    draw_key(canvas, frame, low, high)
}

fn shade(level: usize) -> RGBColor {
    let at = level as f64 / (LEVELS - 1) as f64 * (COLORS.len() - 1) as f64;
    let lower = (at as usize).min(COLORS.len() - 2);
    let (from, to, share) = (COLORS[lower], COLORS[lower + 1], at - lower as f64);
    let mix = |from: f64, to: f64| (from + share * (to - from)).round() as u8;
    RGBColor(mix(from.0, to.0), mix(from.1, to.1), mix(from.2, to.2))
}

fn draw_axes(canvas: &Canvas, frame: &Frame) -> Result<()> {
    let (bottom, text) = (frame.bottom(), |side| style(14.0, MUTED, side, FontStyle::Normal));
    let ((x0, x1), (y0, y1)) = (frame.plane.x_ends(), frame.plane.y_ends());
    let (across, up) = (Scale::between(x0, x1), Scale::between(y0, y1));
    for tick in across.ticks() {
        let x = frame.pixel(tick, y0).0;
        line(canvas, (x, bottom), (x, bottom + 4), MUTED, 1)?;
        canvas.draw_text(&across.tick(tick), &text(HPos::Center), (x, bottom + 15))?;
    }
    for tick in up.ticks() {
        let y = frame.pixel(x0, tick).1;
        line(canvas, (frame.left - 4, y), (frame.left, y), MUTED, 1)?;
        canvas.draw_text(&up.tick(tick), &text(HPos::Right), (frame.left - 8, y))?;
    }
    let label = "distance between weights";
    Ok(canvas.draw_text(label, &text(HPos::Center), (frame.left + frame.width / 2, bottom + 38))?)
}

fn draw_particles(canvas: &Canvas, frame: &Frame) -> Result<()> {
    for (name, x, y) in &frame.plane.particles {
        let (x, y) = frame.pixel(*x, *y);
        // A grey circle with a white inside and a white label: seen on dark and on light ground.
        mark(canvas, 0, (x, y), 6.0, Fill::Hollow)?;
        let right = x + 16 + width(name, 14.0).ceil() as i32;
        canvas.draw(&Rectangle::new([(x + 9, y - 19), (right, y - 2)], WHITE.mix(0.85).filled()))?;
        canvas.draw_text(name, &style(14.0, INK, HPos::Left, FontStyle::Normal), (x + 12, y - 10))?;
    }
    Ok(())
}

/// The colours with the errors they stand for.
fn draw_key(canvas: &Canvas, frame: &Frame, low: f64, high: f64) -> Result<()> {
    let left = frame.left + frame.width + 14;
    let edge = |level: usize| frame.bottom() - (f64::from(frame.height) * level as f64 / LEVELS as f64).round() as i32;
    for level in 0..LEVELS {
        let corners = [(left, edge(level + 1)), (left + 14, edge(level))];
        canvas.draw(&Rectangle::new(corners, shade(level).filled()))?;
    }
    let text = style(13.0, MUTED, HPos::Left, FontStyle::Normal);
    for level in (0..=LEVELS).step_by(3) {
        let error = low + (high - low) * level as f64 / LEVELS as f64;
        canvas.draw_text(&format!("{error:.1}"), &text, (left + 19, edge(level)))?;
    }
    Ok(())
}
