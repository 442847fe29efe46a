//! The error over the plane through three particles of a run.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use tch::Tensor;

use super::{Plane, errors};
use crate::base::usage::Usage;
use crate::data::SplitName;
use crate::data::batches::SampleSet;
use crate::data::subset::{Subset, chosen};
use crate::results::store::{self, Table};
use crate::session::Opened;

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
        let (csv, marks) = (opened.run.path().join("landscape.csv"), opened.run.path().join("landscape-particles.csv"));
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
    let split_images = opened.session.load(&opened.experiment, split)?;
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
