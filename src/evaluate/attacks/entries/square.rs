//! Square, which sees scores and no gradients: squares of one colour are put at random places of the perturbation, and kept
//! where they make the margin of the label smaller (Andriushchenko et al. 2020, arXiv 1912.00049, Algorithms 1 and 2).
//!
//! Differs from the authors' code: places and colours are drawn for each image, not for a batch, so that an image's result does not
//! depend on the others.

use anyhow::Result;
use tch::{Kind, Tensor};

use crate::base::random::{Purpose, below, stream, uniform};
use crate::evaluate::attacks::resisting::{Breaking, On, Resisting};
use crate::evaluate::attacks::{Entry, Settings, project};

pub static ENTRY: Entry = Entry {
    key: "square",
    about: "random squares that lower the margin; no gradients",
    reads: &["queries", "restarts", "seed"],
    ranks: true,
    classes: 2,
    kept: 8,
    build: |settings| Box::new(Square { settings }),
};

/// The number of squares, unless it is set.
const QUERIES: usize = 5000;

pub(super) struct Square {
    pub settings: Settings,
}

impl Breaking for Square {
    fn go(&self, images: &mut Resisting) -> Result<()> {
        let queries = self.settings.queries.unwrap_or(QUERIES);
        (0..self.settings.starts()).try_for_each(|number| {
            let draws = Seeded { seed: self.settings.seed(), number };
            images.attack(&|on| search(on, queries, &draws))
        })
    }

    fn words(&self) -> String {
        let settings = &self.settings;
        format!(
            " {} queries{}{}",
            settings.queries.unwrap_or(QUERIES),
            settings.words_of_starts(),
            settings.seed_words()
        )
    }
}

/// The place of a square and its signs in the three channels.
struct Patch {
    top: i64,
    left: i64,
    signs: [f64; 3],
}

/// The source of random numbers.
trait Draws {
    /// Returns signs `[3, 1, w]`, those of the first stripes of an image.
    fn stripes(&self, image: u32, width: i64) -> Vec<f64>;

    /// Returns a square of an image, whose place is below `places` in each direction.
    fn square(&self, image: u32, query: usize, places: [i64; 2]) -> Patch;
}

struct Seeded {
    seed: u64,
    number: u64,
}

impl Draws for Seeded {
    fn stripes(&self, image: u32, width: i64) -> Vec<f64> {
        let mut rng = stream(self.seed, Purpose::Attack, &[u64::from(image), self.number]);
        (0..3 * width).map(|_| if uniform(&mut rng) < 0.5 { -1.0 } else { 1.0 }).collect()
    }

    fn square(&self, image: u32, query: usize, places: [i64; 2]) -> Patch {
        let mut rng = stream(self.seed, Purpose::Attack, &[u64::from(image), self.number, query as u64]);
        let [top, left] = places.map(|places| below(&mut rng, places as u64) as i64);
        Patch { top, left, signs: [(); 3].map(|()| if uniform(&mut rng) < 0.5 { -1.0 } else { 1.0 }) }
    }
}

/// Returns the side of the square of a query: 0.8 of the area at first, halved at the queries that the authors give.
fn side(query: usize, [height, width]: [i64; 2]) -> i64 {
    let halvings = [10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000].iter().filter(|after| query > **after).count();
    let area = 0.8 / f64::from(1 << halvings) * (height * width) as f64;
    (area.sqrt().round_ties_even() as i64).max(1).min(height).min(width)
}

/// Returns the score of the label less the highest other one, `[B]`.
fn margins(scores: &Tensor, labels: &Tensor) -> Tensor {
    let labels = labels.unsqueeze(1);
    let own = scores.gather(1, &labels, false).squeeze_dim(1);
    own - scores.scatter_value(1, &labels, f64::NEG_INFINITY).amax([1i64].as_slice(), false)
}

/// Puts so many squares on images that resist.
fn search(on: &On, queries: usize, draws: &dyn Draws) -> Result<Tensor> {
    let clean = on.clean.pixels;
    let (size, device) = (clean.size(), clean.device());
    let [height, width] = [size[2], size[3]];
    let stripes: Vec<f64> = on.clean.indices.iter().flat_map(|image| draws.stripes(*image, width)).collect();
    let stripes = Tensor::from_slice(&stripes).view([-1, 3, 1, width]).to_device(device);
    let mut best = project(clean, &(clean.to_kind(Kind::Double) + stripes * on.epsilon), on.epsilon);
    let mut margin = margins(&on.classifier.scores(&best)?, on.clean.labels);
    for query in 0..queries {
        let active = margin.gt(0.0).nonzero().squeeze_dim(1);
        if active.numel() == 0 {
            break;
        }
        let of = |values: &Tensor| values.index_select(0, &active);
        let side = side(query, [height, width]);
        let places = [(height - side).max(1), (width - side).max(1)];
        let patches = Vec::<i64>::try_from(&active)?;
        let patches = patches.iter().map(|row| draws.square(on.clean.indices[*row as usize], query, places));
        let shape = [active.size()[0], 3, height, width];
        let change = painted(patches, side, shape).to_device(device) * (2.0 * on.epsilon);
        let (before, old) = (of(&best), of(&margin));
        let moved = project(&of(clean), &(before.to_kind(Kind::Double) + change), on.epsilon);
        let new = margins(&on.classifier.scores(&moved)?, &of(on.clean.labels));
        let is_better = new.lt_tensor(&old).logical_or(&new.le(0.0));
        best = best.index_copy(0, &active, &moved.where_self(&is_better.view([-1, 1, 1, 1]), &before));
        margin = margin.index_copy(0, &active, &new.where_self(&is_better, &old));
    }
    Ok(best)
}

/// Returns squares of signs on zeros, `[B, 3, h, w]` in f64.
fn painted(patches: impl Iterator<Item = Patch>, side: i64, shape: [i64; 4]) -> Tensor {
    let change = Tensor::zeros(shape, (Kind::Double, tch::Device::Cpu));
    for (row, Patch { top, left, signs }) in (0..).zip(patches) {
        let colour = Tensor::from_slice(&signs).view([3, 1, 1]);
        change.get(row).narrow(1, top, side).narrow(2, left, side).copy_(&colour.expand([3, side, side], false));
    }
    change
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::golden::near;
    use crate::evaluate::attacks::goldens::on_few;

    /// The numbers that `scripts/make_attack_goldens.py` hands to the authors' code.
    struct Given;

    impl Draws for Given {
        fn stripes(&self, _: u32, width: i64) -> Vec<f64> {
            (0..3 * width).map(|i| if (i * i / 3) % 2 == 0 { 1.0 } else { -1.0 }).collect()
        }

        fn square(&self, _: u32, query: usize, places: [i64; 2]) -> Patch {
            let query = query as i64;
            let place = |k: i64, places: i64| (k * 7 / 2) % places;
            let sign = |channel: i64| if (query * (channel + 2) / 3) % 2 == 0 { 1.0 } else { -1.0 };
            let [top, left] = [place(2 * query, places[0]), place(2 * query + 1, places[1])];
            Patch { top, left, signs: [sign(0), sign(1), sign(2)] }
        }
    }

    #[test]
    fn squares_are_those_of_the_authors() {
        on_few(|golden, on| {
            let found = search(on, golden.number("squares/queries") as usize, &Given).unwrap();
            near(&found, &golden.tensor("squares/pixels"), 1e-5);
        });
    }

    /// 0.8 of 100 pixels is a square of side 9; 0.4 of them after ten queries one of side 6; at the end it is one pixel.
    #[test]
    fn squares_shrink() {
        assert_eq!([0, 10, 11, 51, 8001].map(|query| side(query, [10, 10])), [9, 9, 6, 4, 1]);
    }
}
