//! The error over the plane through three particles (Bella, figure 1; the plane as in Garipov et al. 2018, arXiv
//! 1802.10026). The points of the plane are exact combinations of the particles' updates. Coordinates are distances
//! between weights.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use tch::{Kind, Tensor};

use crate::base::small::Usage;
use crate::base::tensor::host_f64;
use crate::data::SplitName;
use crate::data::batches::SampleSet;
use crate::data::subset::{Subset, chosen};
use crate::machine::Chunk;
use crate::machine::memory::{ChunkSize, MemoryEstimate, Task};
use crate::metrics::argmax;
use crate::model::Model;
use crate::model::network::Graph;
use crate::predict::{Members, Predictor};
use crate::results::store::{self, Table};
use crate::run::LANDSCAPE;
use crate::session::Opened;
use crate::subspace::Subspace;
use crate::subspace::geometry::WeightSpace;

/// A plane with the first particle at (0, 0), the second on the x axis, and the third above the axis.
#[derive(Clone, Copy, Debug)]
pub struct Plane {
    /// The distance between the first two particles, ‖ΔW_2 − ΔW_1‖.
    pub width: f64,
    /// The coordinates of the third particle.
    pub third: (f64, f64),
}

impl Plane {
    /// Returns the plane through the three rows of `theta: [3, P]`.
    ///
    /// # Errors
    /// Fails if the three particles lie on one line.
    pub fn through(subspace: &dyn Subspace, theta: &Tensor) -> Result<Plane> {
        let squared = WeightSpace::new(subspace.layout()).distances(theta);
        let squared = host_f64(&squared.sum_dim_intlist([0i64].as_slice(), false, Kind::Double))?;
        let (d12, d13, d23) = (squared[1], squared[2], squared[5]);
        let width = d12.sqrt();
        let x = (d12 + d13 - d23) / (2.0 * width);
        let y = (d13 - x * x).max(0.0).sqrt();
        // Because of rounding, even equal particles have a small distance.
        const ROUNDING: f64 = 1e-6;
        let apart = width > ROUNDING * d13.sqrt() && y > ROUNDING * d13.sqrt();
        ensure!(apart, "the three particles lie on one line or on each other: they span no plane");
        Ok(Plane { width, third: (x, y) })
    }

    /// Returns the coordinates of the three particles.
    pub fn particles(&self) -> [(f64, f64); 3] {
        [(0.0, 0.0), (self.width, 0.0), self.third]
    }

    /// Returns the weights of the three particles at a point of the plane. They sum to 1.
    pub fn coefficients(&self, (x, y): (f64, f64)) -> [f64; 3] {
        let third = y / self.third.1;
        let second = (x - third * self.third.0) / self.width;
        [1.0 - second - third, second, third]
    }

    /// Returns the points of a grid of `side` × `side` around the triangle, row by row from below. The grid extends
    /// beyond the triangle on each side by `margin` times the triangle's extent.
    pub fn grid(&self, side: usize, margin: f64) -> Vec<(f64, f64)> {
        let (left, right) = (self.third.0.min(0.0), self.third.0.max(self.width));
        let axis = |from: f64, to: f64| {
            let extra = margin * (to - from);
            let step = (to - from + 2.0 * extra) / (side - 1) as f64;
            (0..side).map(|i| from - extra + step * i as f64).collect::<Vec<_>>()
        };
        let (xs, ys) = (axis(left, right), axis(0.0, self.third.1));
        ys.iter().flat_map(|y| xs.iter().map(|x| (*x, *y))).collect()
    }
}

/// Returns the share of wrong predictions on `images` at each of `points`, given as weights of the particles
/// `theta: [3, P]`. One forward pass evaluates `chunk` points.
pub fn errors(
    model: &Model,
    subspace: &dyn Subspace,
    theta: &Tensor,
    points: &[[f64; 3]],
    images: &SampleSet,
    (chunk, batch_size): (usize, usize),
) -> Result<Vec<f64>> {
    model.check_classes()?;
    let all: Vec<u32> = (0..images.samples() as u32).collect();
    let bar = crate::base::logging::bar(points.len() as u64, "points");
    let mut errors = Vec::new();
    // Each point is a row of its own (of rank 3 r if the particles have rank r), and its layer weights are made from
    // that row.
    let member = 3 * theta.size()[1] as u64 * (Kind::Float.elt_size_in_bytes() + model.kind.elt_size_in_bytes()) as u64;
    let task = Task {
        what: "landscape",
        coming: 0,
        need: MemoryEstimate { member, ..model.need(Graph::None) },
        whole: ChunkSize { members: chunk, images: batch_size },
        at_most: None,
        members: None,
        device: model.device,
        advice: "lower --chunk",
    };
    for part in points.chunks(task.plan()?.cut().members) {
        let flat: Vec<f32> = part.iter().flatten().map(|weight| *weight as f32).collect();
        let coefficients = Tensor::from_slice(&flat).view([-1, 3]).to_device(theta.device());
        let combined = subspace.combine(theta, &coefficients)?;
        let members = Members::Rows { subspace: &*combined.subspace, rows: &combined.theta };
        let hidden = indicatif::ProgressBar::hidden();
        let logits = Predictor::new(model, members, Chunk::Auto).all_logits(images, &all, batch_size, &hidden)?;
        for of_point in logits.chunks_exact(all.len() * model.head.classes() as usize) {
            errors.push(error(of_point, &images.split.labels));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(errors)
}

/// Returns the share of images that logits `[B * C]` classify wrongly.
fn error(logits: &[f32], labels: &[u32]) -> f64 {
    let guesses = logits.chunks_exact(logits.len() / labels.len()).map(|logits| argmax(logits) as u32);
    guesses.zip(labels).filter(|(guess, label)| guess != *label).count() as f64 / labels.len() as f64
}

/// The part of a plane to compute.
pub struct Landscape {
    /// The three particles, counted from 0.
    pub particles: Vec<i64>,
    /// The number of points along each side of the grid.
    pub grid: usize,
    /// The margin around the triangle, as a share of its extent.
    pub margin: f64,
    /// The number of images of each split.
    pub samples: usize,
    /// The largest number of grid points that go through the network at once.
    pub chunk: usize,
}

/// The outcome, as it lies in the folder of the run.
pub struct Computed {
    /// The errors at the points of the grid.
    pub csv: PathBuf,
    /// The places of the particles.
    pub marks: PathBuf,
    /// The lowest training error and the lowest test error on the plane.
    pub lowest: [f64; 2],
}

impl Landscape {
    /// Computes the errors for a run, and writes them into its folder.
    ///
    /// # Errors
    /// Fails if the run does not have the particles, if they span no plane, if memory runs out, or if a file cannot be
    /// written.
    pub fn compute(&self, opened: &Opened) -> Result<Computed> {
        let theta = opened.stored()?.posterior.theta();
        let count = theta.size()[0];
        ensure!(count > 2, "{}: this run has {count} of the three particles that a plane needs", opened.run.id());
        let three = self.particles.len() == 3 && self.particles.iter().all(|i| (0..count).contains(i));
        if !three {
            let why =
                format!("--particles {:?}: name three of this run's {count} particles, counted from 0", self.particles);
            return Err(Usage(why).into());
        }
        let rows = theta.index_select(0, &Tensor::from_slice(&self.particles).to_device(theta.device()));
        let subspace = opened.session.subspace()?;
        let plane = Plane::through(subspace, &rows).with_context(|| format!("--particles {:?}", self.particles))?;
        let points = plane.grid(self.grid, self.margin);
        let coefficients: Vec<[f64; 3]> = points.iter().map(|point| plane.coefficients(*point)).collect();
        let sizes = (self.chunk, opened.batch_size(None));
        let over = |split| -> Result<Vec<f64>> {
            let images = subset(opened, split, self.samples)?;
            errors(&opened.session.model, subspace, &rows, &coefficients, &images, sizes)
        };
        let (train, test) = (over(SplitName::Train)?, over(SplitName::Test)?);
        let [csv, marks, _] = LANDSCAPE.map(|name| opened.run.path().join(name));
        let lines = points.iter().zip(train.iter().zip(&test)).map(|((x, y), (train, test))| [*x, *y, *train, *test]);
        write(&csv, ["x", "y", "train_error", "test_error"], lines)?;
        let named = self.particles.iter().zip(plane.particles()).map(|(particle, (x, y))| [*particle as f64, x, y]);
        write(&marks, ["particle", "x", "y"], named)?;
        let best = |errors: &[f64]| errors.iter().copied().fold(f64::INFINITY, f64::min);
        Ok(Computed { csv, marks, lowest: [best(&train), best(&test)] })
    }
}

/// Returns `count` images of a split, or all if it has fewer, taken from the classes in turn.
fn subset(opened: &Opened, split: SplitName, count: usize) -> Result<SampleSet> {
    let split_images = opened.split(split)?;
    let count = count.min(split_images.len());
    let chosen = chosen(Some(Subset::Each(count)), split, &split_images.labels)?;
    let chosen = chosen.ok_or_else(|| anyhow!("{split}: no images"))?;
    SampleSet::new(split_images.select(&chosen), opened.session.device, opened.session.settings.workers)
}

fn write<const N: usize>(path: &Path, header: [&str; N], lines: impl Iterator<Item = [f64; N]>) -> Result<()> {
    let mut table = Table::new(header);
    table.rows.extend(lines.map(|line| line.map(|value| value.to_string()).to_vec()));
    store::write(path, &table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn particles_have_weight_one_at_their_own_place() {
        let plane = Plane { width: 3.0, third: (1.0, 2.0) };
        for (at, point) in plane.particles().into_iter().enumerate() {
            let weights = plane.coefficients(point);
            assert!((0..3).all(|i| (weights[i] - f64::from(u8::from(i == at))).abs() < 1e-12), "{weights:?}");
        }
        let centre = plane.coefficients((4.0 / 3.0, 2.0 / 3.0));
        assert!(centre.iter().all(|weight| (weight - 1.0 / 3.0).abs() < 1e-12), "{centre:?}");
    }

    #[test]
    fn grid_surrounds_the_triangle() {
        let plane = Plane { width: 3.0, third: (-1.0, 2.0) };
        let grid = plane.grid(5, 0.25);
        assert_eq!((grid.len(), grid[0], grid[24]), (25, (-2.0, -0.5), (4.0, 2.5)));
        assert_eq!(grid[12], (1.0, 1.0));
    }
}
