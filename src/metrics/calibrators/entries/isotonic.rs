//! Isotonic regression of each class against all others, normalised (Zadrozny & Elkan 2002), as scikit-learn's
//! `CalibratedClassifierCV` has it: the curve is linear between the points of the fit, and constant beyond them.

use anyhow::Result;

use crate::metrics::calibrators::fitted::{Averaged, Calibrator, Fit, Map, Size, normalised, softmax};

pub static ENTRY: Calibrator = Calibrator {
    key: "isotonic",
    about: "a rising curve for each class's probability, normalised",
    paper: "Zadrozny & Elkan 2002",
    suffix: "iso",
    // scikit-learn's guide advises against it for much fewer samples than this.
    size: Size::Advised(|_| 1000),
    fit: Fit::Map(fit),
};

/// The distance within which probabilities are one place, as in scikit-learn. Those of saturated logits, which may be 1e-30, would otherwise
/// be ranked by what no one can tell from 0, and those of equal logits by their rounding.
const ONE_PLACE: f64 = 1e-15;

/// The samples at one place.
struct Place {
    at: f64,
    sum: f64,
    count: f64,
}

/// Neighbouring places with one value, the mean of their samples.
struct Block {
    sum: f64,
    count: f64,
    places: usize,
}

impl Block {
    fn mean(&self) -> f64 {
        self.sum / self.count
    }

    /// Returns this block and the next one as one.
    fn joined(&self, next: &Block) -> Block {
        Block { sum: self.sum + next.sum, count: self.count + next.count, places: self.places + next.places }
    }
}

/// A rising curve by its points.
struct Curve {
    places: Vec<f64>,
    values: Vec<f64>,
}

struct Curves(Vec<Curve>);

fn fit(samples: &Averaged, labels: &[u32]) -> Result<Box<dyn Map>> {
    let rows: Vec<Vec<f64>> = samples.rows().map(softmax).collect();
    let curve = |class: usize| {
        let points = rows.iter().zip(labels);
        Curve::fit(points.map(|(row, label)| (row[class], f64::from(u8::from(*label as usize == class)))).collect())
    };
    Ok(Box::new(Curves((0..samples.classes).map(curve).collect())))
}

impl Map for Curves {
    fn probabilities(&self, logits: &[f64]) -> Vec<f64> {
        normalised(softmax(logits).into_iter().zip(&self.0).map(|(p, curve)| curve.at(p)).collect())
    }
}

impl Curve {
    /// Fits by pooling adjacent violators: neighbours whose means fall are joined until none do.
    fn fit(mut points: Vec<(f64, f64)>) -> Curve {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Points at one place, which is that of the first, are one point of their number.
        let mut places: Vec<Place> = vec![];
        for (at, value) in points {
            match places.last_mut() {
                Some(place) if at - place.at < ONE_PLACE => {
                    place.sum += value;
                    place.count += 1.0;
                }
                _ => places.push(Place { at, sum: value, count: 1.0 }),
            }
        }
        let mut blocks: Vec<Block> = vec![];
        for place in &places {
            blocks.push(Block { sum: place.sum, count: place.count, places: 1 });
            while let [.., a, b] = &blocks[..]
                && a.mean() >= b.mean()
            {
                let joined = a.joined(b);
                blocks.truncate(blocks.len() - 2);
                blocks.push(joined);
            }
        }
        let values = blocks.iter().flat_map(|block| std::iter::repeat_n(block.mean(), block.places)).collect();
        Curve { places: places.iter().map(|place| place.at).collect(), values }
    }

    /// Returns the value at a place.
    fn at(&self, place: f64) -> f64 {
        let above = self.places.partition_point(|known| *known < place);
        if above == 0 || above == self.places.len() {
            return self.values[above.min(self.places.len() - 1)];
        }
        let (a, b) = (self.places[above - 1], self.places[above]);
        let share = (place - a) / (b - a);
        self.values[above - 1] + share * (self.values[above] - self.values[above - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // By hand: 0, 1, 0 at .1, .2, .3 are pooled behind the first to ½, and .9 has 1.
    #[test]
    fn violators_are_pooled() {
        let curve = Curve::fit(vec![(0.3, 0.0), (0.1, 0.0), (0.9, 1.0), (0.2, 1.0)]);
        assert_eq!(curve.values, [0.0, 0.5, 0.5, 1.0]);
        let close = |place, value: f64| assert!((curve.at(place) - value).abs() < 1e-12, "{place}");
        for (place, value) in [(0.0, 0.0), (0.15, 0.25), (0.25, 0.5), (0.6, 0.75), (1.0, 1.0)] {
            close(place, value);
        }
    }
}
