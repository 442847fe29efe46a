//! Deep nearest neighbours (Sun et al. 2022, arXiv 2204.06507): the distance of the feature, scaled to length 1, from the k-th nearest one
//! of the images that it is fitted on, k = 50.
//!
//! Differs: OpenOOD has the square of that distance, which ranks alike; pytorch-ood takes the nearest neighbour and does not scale.

use anyhow::{Result, ensure};
use tch::{Kind, Tensor};

use crate::base::small::Usage;
use crate::metrics::ood::features::fitting::{Detector, Entry, Features, Sizes};

/// The neighbour whose distance counts, k.
const NEIGHBOUR: i64 = 50;

pub static ENTRY: Entry = Entry {
    key: "knn",
    definition: "distance of f / |f| from the 50th nearest one",
    paper: "Sun et al. 2022",
    // The bank of unit features, and the cosines of a batch with the order of the nearest.
    kept: |Sizes { images, width, batch, .. }| 4 * (images * width + 2 * images * batch + NEIGHBOUR as u64 * width),
    fit,
};

/// Unit features `[N, d]`.
struct Bank(Tensor);

fn fit(features: &Features) -> Result<Box<dyn Detector>> {
    ensure!(
        features.count() >= NEIGHBOUR,
        Usage(format!(
            "--ood-by knn: takes the {NEIGHBOUR}th nearest image, and there are {} to fit it on: leave it out, or choose the other \
         images by --ood-fit",
            features.count()
        ))
    );
    Ok(Box::new(Bank(unit(&features.values))))
}

fn unit(features: &Tensor) -> Tensor {
    features / features.norm_scalaropt_dim(2.0, [-1], true).clamp_min(1e-12)
}

impl Detector for Bank {
    fn scores(&self, features: &Tensor) -> Tensor {
        let unit = unit(features);
        let cosines = unit.to_kind(self.0.kind()).matmul(&self.0.tr());
        let (_, nearest) = cosines.topk(NEIGHBOUR, 1, true, true);
        // Distances by cosines cancel for near features, so that of the k-th is taken by itself.
        let neighbour = self.0.index_select(0, &nearest.select(1, NEIGHBOUR - 1)).to_kind(Kind::Double);
        (unit - neighbour).norm_scalaropt_dim(2.0, [-1], false)
    }
}
