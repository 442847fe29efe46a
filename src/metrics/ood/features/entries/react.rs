//! Rectified activations (Sun et al. 2021, arXiv 2111.12797): the energy of the logits of min(f, c), with c the 0.9 quantile of all features that
//! it is fitted on (between two of them by linear interpolation).

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use crate::metrics::ood::features::fitting::{Classifier, Detector, Entry, Features, Sizes};

/// The share of features that stay as they are.
const SHARE: f64 = 0.9;

pub static ENTRY: Entry = Entry {
    key: "react",
    definition: "-log sum_c exp z_c of the logits of min(f, c), c the 0.9 quantile of all features",
    paper: "Sun et al. 2021",
    // All features as one list.
    kept: |Sizes { images, width, classes, batch }| {
        4 * images * width + 8 * (classes * width + batch * (width + classes))
    },
    fit,
};

struct Rectified {
    most: f64,
    classifier: Classifier,
}

fn fit(features: &Features) -> Result<Box<dyn Detector>> {
    let all = features.values.to_device(Device::Cpu).to_kind(Kind::Float).contiguous().flatten(0, -1);
    let most = quantile(Vec::<f32>::try_from(all)?, SHARE);
    let Classifier { weight, bias } = &features.classifier;
    let classifier = Classifier { weight: weight.shallow_clone(), bias: bias.shallow_clone() };
    Ok(Box::new(Rectified { most, classifier }))
}

/// Returns the quantile of values, between two of them by linear interpolation, as NumPy has it.
fn quantile(mut values: Vec<f32>, share: f64) -> f64 {
    let place = share * (values.len() - 1) as f64;
    let below = place.floor() as usize;
    let (_, low, above) = values.select_nth_unstable_by(below, f32::total_cmp);
    let high = above.iter().copied().min_by(f32::total_cmp).unwrap_or(*low);
    f64::from(*low) + (f64::from(high) - f64::from(*low)) * (place - below as f64)
}

impl Detector for Rectified {
    fn scores(&self, features: &Tensor) -> Tensor {
        self.classifier.energy(&features.clamp_max(self.most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // numpy.quantile([5, 1, 4, 2, 3], [0, 0.9, 1]) and of [7]
    #[test]
    fn a_quantile_lies_between_two_values() {
        let of = |share| quantile(vec![5.0, 1.0, 4.0, 2.0, 3.0], share);
        assert_eq!([of(0.0), of(1.0), quantile(vec![7.0], 0.9)], [1.0, 5.0, 7.0]);
        assert!((of(0.9) - 4.6).abs() < 1e-12);
    }
}
