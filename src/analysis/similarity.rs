//! The similarity of particles: pairwise cosines and distances of their updates ΔW, for each block and over all blocks
//! (Bella, Table 9).

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use tch::{Kind, Tensor};

use crate::base::tensor::host_f64;
use crate::results::store::{Table, write};
use crate::run::SIMILARITY;
use crate::session::Opened;
use crate::subspace::Subspace;
use crate::subspace::geometry::WeightSpace;

/// The cosines and distances of one block, or of all blocks together. Rows and columns are particles.
pub struct Similarity {
    /// The block's name, or `all`.
    pub block: String,
    /// The cosines of the updates, n · n, row-major. `None` if an update is zero and so has no direction.
    pub cosines: Vec<Option<f64>>,
    /// The distances ‖ΔW_i − ΔW_j‖_F, n · n, row-major.
    pub distances: Vec<f64>,
}

/// Returns the similarities of a run's particles, first over all blocks, and writes them into its folder, to the path that
/// comes with them.
///
/// # Errors
/// Fails if the run has one particle, or if the file cannot be written.
pub fn of_run(opened: &Opened) -> Result<(Vec<Similarity>, PathBuf)> {
    let theta = opened.stored()?.posterior.theta();
    let particles = theta.size()[0] as usize;
    let all = similarities(opened.session.subspace()?, theta).with_context(|| opened.run.id())?;
    let path = opened.run.path().join(SIMILARITY);
    let mut table = Table::new(["block", "i", "j", "cosine", "distance"]);
    for Similarity { block, cosines, distances } in &all {
        for (pair, (cosine, distance)) in cosines.iter().zip(distances).enumerate() {
            let (i, j) = ((pair / particles).to_string(), (pair % particles).to_string());
            let cosine = cosine.map_or(String::new(), |cosine| cosine.to_string());
            table.rows.push(vec![block.clone(), i, j, cosine, distance.to_string()]);
        }
    }
    write(&path, &table)?;
    Ok((all, path))
}

/// Returns the similarities of `theta: [n, P]`, first of all blocks together and then of each block.
pub fn similarities(subspace: &dyn Subspace, theta: &Tensor) -> Result<Vec<Similarity>> {
    let particles = theta.size()[0];
    ensure!(particles > 1, "one particle has nothing to be compared with");
    let origin = subspace.origin().to_device(theta.device()).to_kind(theta.kind()).unsqueeze(0);
    let squared = WeightSpace::new(subspace.layout()).distances(&Tensor::cat(&[theta, &origin], 0));
    let all = squared.sum_dim_intlist([0i64].as_slice(), true, Kind::Double);
    let values = host_f64(&Tensor::cat(&[all, squared], 0))?;
    let names = std::iter::once("all").chain(subspace.layout().blocks.iter().map(|block| block.name.as_str()));
    let size = particles as usize + 1;
    Ok(names.zip(values.chunks_exact(size * size)).map(|(block, squared)| of_block(block, squared, size)).collect())
}

/// Computes the similarities from squared distances D, with inner products ⟨i, j⟩ = (D_io + D_jo − D_ij) / 2. The
/// origin o has the last row and column. Shape `[n + 1, n + 1]`.
fn of_block(block: &str, squared: &[f64], size: usize) -> Similarity {
    let (at, origin) = (|i: usize, j: usize| squared[i * size + j], size - 1);
    let pairs = || (0..origin).flat_map(|i| (0..origin).map(move |j| (i, j)));
    let cosine = |(i, j): (usize, usize)| {
        let norms = (at(i, origin) * at(j, origin)).sqrt();
        let inner = (at(i, origin) + at(j, origin) - at(i, j)) / 2.0;
        (norms > 0.0).then(|| (inner / norms).clamp(-1.0, 1.0))
    };
    Similarity {
        block: block.to_string(),
        cosines: pairs().map(cosine).collect(),
        distances: pairs().map(|(i, j)| at(i, j).sqrt()).collect(),
    }
}
