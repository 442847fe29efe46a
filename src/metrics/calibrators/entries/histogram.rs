//! Histogram binning of each class against all others, normalised (Zadrozny & Elkan 2001), as netcal's `HistogramBinning` has it: 15 bins
//! [lo, hi), of which an empty one has its middle.

use anyhow::Result;

use crate::metrics::calibration::BINS;
use crate::metrics::calibrators::fitted::{Averaged, Calibrator, Fit, Map, Size, normalised, softmax};

pub static ENTRY: Calibrator = Calibrator {
    key: "histogram",
    about: "the share of each class in 15 bins of its probability, normalised",
    paper: "Zadrozny & Elkan 2001",
    suffix: "hist",
    size: Size::Parameters(|classes| BINS * classes),
    fit: Fit::Map(fit),
};

/// The values of the bins of each class.
struct Bins(Vec<[f64; BINS]>);

fn bin(probability: f64) -> usize {
    (1..BINS).take_while(|edge| probability >= *edge as f64 / BINS as f64).count()
}

fn fit(samples: &Averaged, labels: &[u32]) -> Result<Box<dyn Map>> {
    let mut counts = vec![[(0.0, 0.0); BINS]; samples.classes];
    for (row, label) in samples.rows().map(softmax).zip(labels) {
        for (class, probability) in row.into_iter().enumerate() {
            let (hits, all) = &mut counts[class][bin(probability)];
            *hits += f64::from(u8::from(*label as usize == class));
            *all += 1.0;
        }
    }
    let value = |(bin, (hits, all)): (usize, &(f64, f64))| {
        if *all > 0.0 { hits / all } else { (bin as f64 + 0.5) / BINS as f64 }
    };
    let values = |bins: &[(f64, f64); BINS]| std::array::from_fn(|at| value((at, &bins[at])));
    // A class without a held-out image has no curve: netcal gives it 0.
    let seen = |class: usize| labels.iter().any(|label| *label as usize == class);
    let bins = counts.iter().enumerate().map(|(class, bins)| if seen(class) { values(bins) } else { [0.0; BINS] });
    Ok(Box::new(Bins(bins.collect())))
}

impl Map for Bins {
    fn probabilities(&self, logits: &[f64]) -> Vec<f64> {
        normalised(softmax(logits).into_iter().zip(&self.0).map(|(p, bins)| bins[bin(p)]).collect())
    }
}
