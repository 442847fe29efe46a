//! Estimates the memory of a Laplace approximation before it is fitted.

use anyhow::{Result, ensure};
use tch::Kind;

use super::factor::sketch_width;
use super::pass::Maps;
use super::{Shape, Structure};
use crate::base::tensor::wide;
use crate::machine::memory::gib;

/// The largest number of bytes that the gradients of one batch may take.
pub const BATCH_BYTES: i64 = 256 << 20;

/// The memory of the curvature of all particles, and of the work space for fitting the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Bytes of the stored curvature of all particles.
    pub stored: u64,
    /// The largest number of bytes in use while fitting.
    pub peak: u64,
    /// The number of parameters per particle.
    pub parameters: u64,
}

impl std::fmt::Display for Estimate {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(
            f,
            "the curvature of {} parameters a particle takes {:.3} GiB, at most {:.3} GiB while it is fitted",
            self.parameters,
            gib(self.stored),
            gib(self.peak)
        )
    }
}

impl Estimate {
    pub fn new(maps: &Maps, shape: Shape, particles: u64, classes: i64) -> Estimate {
        const F64: u64 = 8;
        let parameters = maps.parameters() as u64;
        let (one, work) = match shape.structure {
            Structure::Diag => (F64 * parameters, F64 * parameters),
            // The work space holds the sum, its eigenvectors, and the buffers of the eigenvalue solver.
            Structure::Full => (F64 * parameters * (parameters + 1), 2 * F64 * parameters * parameters),
            Structure::Kron => {
                let side = |size: i64, low: bool| {
                    let (size, kept) = (size as u64, shape.kept as u64);
                    if low {
                        (F64 * size * kept, 4 * F64 * size * sketch_width(size as i64, shape.kept) as u64)
                    } else {
                        (F64 * size * size, 2 * F64 * size * size)
                    }
                };
                let low = |size: i64| size >= shape.wide && sketch_width(size, shape.kept) < size;
                let sides = maps.maps.iter().flat_map(|map| {
                    [side(map.inputs, low(map.inputs)), side(map.outputs, low(map.outputs) && !map.role.is_head())]
                });
                let sides: Vec<(u64, u64)> = sides.collect();
                (sides.iter().map(|s| s.0).sum(), sides.iter().map(|s| s.1).max().unwrap_or(0))
            }
        };
        let batch = images_at_once(maps, classes, Kind::Double) as u64 * per_image(maps, classes, Kind::Double) as u64;
        Estimate { stored: one * particles, peak: one * particles + work + batch, parameters }
    }

    /// Checks the estimate against `limit` bytes.
    ///
    /// # Errors
    /// Fails if fitting needs more than `limit` bytes; the message says what to change.
    pub fn check(&self, shape: Shape, limit: u64) -> Result<()> {
        let advice = match shape.structure {
            Structure::Full => {
                "set method.laplace.structure = \"kron\", or fit fewer parameters (subspace.low-rank.rank, blocks)"
            }
            Structure::Kron => "lower method.laplace.wide or method.laplace.kept",
            Structure::Diag => "fit fewer parameters (subspace.low-rank.rank, blocks)",
        };
        ensure!(
            self.peak <= limit,
            "method.laplace: the curvature of {} parameters needs {:.1} GiB, more than method.laplace.memory_gib = {:.1}: \
             {advice}, or raise the bound",
            self.parameters,
            gib(self.peak),
            gib(limit)
        );
        Ok(())
    }
}

/// Returns the bytes of the gradients of one image, counted twice: as they are computed, and concatenated.
pub fn per_image(maps: &Maps, gradients: i64, kind: Kind) -> i64 {
    2 * gradients * maps.parameters() * wide(kind).elt_size_in_bytes() as i64
}

/// Returns the number of images whose gradients are held at once, with `gradients` per image (a Jacobian has one per
/// class).
pub fn images_at_once(maps: &Maps, gradients: i64, kind: Kind) -> i64 {
    (BATCH_BYTES / per_image(maps, gradients, kind).max(1)).clamp(1, 256)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laplace::Tokens;
    use crate::laplace::pass::{Map, Role};

    #[test]
    fn full_curvature_of_many_parameters_is_refused() {
        let map = |role, inputs, outputs| Map { block: 0, role, inputs, outputs };
        let maps = Maps { maps: vec![map(Role::Down, 768, 4), map(Role::Up, 4, 3072)], columns: 0..15_360 };
        let shape = |structure| Shape { structure, tokens: Tokens::Expand, wide: 512, kept: 10 };
        let estimate = |structure| Estimate::new(&maps, shape(structure), 1, 10);
        assert_eq!(estimate(Structure::Diag).stored, 8 * 15_360);
        // The inputs of A and the gradients of B are kept at rank 10; the other sides are 4 x 4.
        assert_eq!(estimate(Structure::Kron).stored, 8 * (10 * (768 + 3072) + 2 * 16));
        assert!(estimate(Structure::Kron).check(shape(Structure::Kron), 1 << 30).is_ok());
        let error = estimate(Structure::Full).check(shape(Structure::Full), 1 << 30).unwrap_err().to_string();
        assert!(error.contains("15360 parameters needs 5.") && error.contains("structure = \"kron\""), "{error}");
    }
}
