//! Training and test error over the plane through three particles, as maps with the particles marked (Bella, figure 1).

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::material::{Drawing, Material};
use crate::base::files::write_atomic;
use crate::plot::{Axis, Canvas, Chart, Grid, Layer, Map, Panel, Ticks};
use crate::results::store;
use crate::run::LANDSCAPE;

/// The length of the longer side of a map, in pixels. Both axes have the same scale.
const SIZE: i32 = 360;

/// The errors on a full grid of the plane, and the particles in it.
struct Plane {
    /// The training and the test error in percent.
    errors: [Grid; 2],
    /// The name and the coordinates of each particle.
    particles: Vec<(String, (f64, f64))>,
}

/// Draws the grid of `points` (columns x, y, train_error, test_error) and the particles of `marks` (columns particle,
/// x, y) to the SVG file `out`.
///
/// # Errors
/// Fails if a file cannot be read, a column is missing, a cell is not a number, or the points are not a full grid.
pub fn draw(points: &Path, marks: &Path, out: &Path) -> Result<()> {
    let svg = render(Plane::read(points, marks)?).svg();
    write_atomic(out, |writer| Ok(writer.write_all(svg.as_bytes())?))
}

/// Draws the landscape of the first run whose folder holds one.
pub(super) fn of_runs(material: &Material) -> Result<Option<Drawing>> {
    let files = |folder: &Path| (folder.join(LANDSCAPE[0]), folder.join(LANDSCAPE[1]));
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
    Ok(Some(Drawing { picture: render(Plane::read(&points, &marks)?), caption }))
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
        let particles = places.iter().enumerate().map(|(row, place)| (name(row), (place[0], place[1]))).collect();
        let errors = errors.map(|values| Grid { xs: xs.clone(), ys: ys.clone(), values });
        Ok(Self { errors, particles })
    }
}

/// Returns the given columns of a CSV file as numbers, row by row.
fn numbers(path: &Path, columns: &[&str]) -> Result<Vec<Vec<f64>>> {
    let table = store::read(path)?;
    let number = |row: usize, column: &str| {
        let cell = table.get(row, column).with_context(|| format!("{}: has no column `{column}`", path.display()))?;
        let value = cell.parse().ok().filter(|value: &f64| value.is_finite());
        value.with_context(|| format!("{}: row {}, `{column}` = `{cell}`: must be a number", path.display(), row + 1))
    };
    (0..table.rows.len()).map(|row| columns.iter().map(|column| number(row, column)).collect()).collect()
}

fn render(plane: Plane) -> Canvas {
    let (plot_width, plot_height) = Map::plot_size(&plane.errors[0], SIZE);
    let titles = ["Train error (%)", "Test error (%)"];
    let panel = |(grid, title): (Grid, &str)| {
        let ends = |axis: &[f64]| Ticks::between(axis[0], axis[axis.len() - 1]);
        Panel {
            title: title.to_string(),
            x: Axis::new("distance between weights", ends(&grid.xs)),
            y: Axis::new("", ends(&grid.ys)),
            layers: vec![Layer::Map(Map(grid)), Layer::Named { points: plane.particles.clone() }],
            values: false,
        }
    };
    let panels = plane.errors.into_iter().zip(titles).map(panel).collect();
    Chart { panels, columns: 2, plot_width: Some(plot_width), plot_height, ..Chart::default() }.render()
}
